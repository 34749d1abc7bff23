"""What the cells of an executed notebook printed, kept small: a loop that flushes ten thousand lines would otherwise
leave ten thousand outputs of megabytes in the file."""

from __future__ import annotations

from collections.abc import Sequence

MAX_CHARACTERS = 20_000  # of one stream of one cell


def shorten_streams(cells: Sequence, log_name: str) -> str:
    """Join what each code cell of `cells` (nbformat's, changed in place) wrote to one stream, and cut its middle out where
    it is longer than MAX_CHARACTERS; beginning and end stay.

    Returns the whole text of every cell that was cut, with its number, for the file `log_name`; empty where none was.
    """
    log = []
    for number, cell in enumerate(cells, 1):
        if cell.cell_type != "code":
            continue
        cell.outputs = _joined(cell.outputs)
        for output in cell.outputs:
            if output.output_type == "stream" and len(output.text) > MAX_CHARACTERS:
                log.append(f"--- cell {number}, {output.name} ---\n{output.text}")
                output.text = _without_middle(output.text, log_name)
    return "\n".join(log)


def _joined(outputs: Sequence) -> list:
    """One output per stream where several follow each other; a carriage return takes back the line, as a terminal would."""
    joined: list = []
    streams: dict[str, int] = {}
    for output in outputs:
        if output.output_type != "stream":
            streams = {}  # order against figures and results is kept
        elif output.name in streams:
            joined[streams[output.name]].text += output.text
            continue
        else:
            streams[output.name] = len(joined)
        joined.append(output)
    for output in joined:
        if output.output_type == "stream":
            output.text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in output.text.split("\n"))
    return joined


def _without_middle(text: str, log_name: str) -> str:
    half = MAX_CHARACTERS // 2
    head, tail = text[:half].rpartition("\n")[0] or text[:half], text[-half:].partition("\n")[2] or text[-half:]
    return f"{head}\n... {len(text) - len(head) - len(tail):,} characters left out; {log_name} has all of them ...\n{tail}"
