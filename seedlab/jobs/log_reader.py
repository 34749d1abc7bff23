"""Reads a growing log as a terminal would show it: no half characters, no progress bars line upon line."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from pathlib import Path

_BREAK = re.compile("(\r|\n)")
_CONTROL = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\[[0-?]*$|$)")  # colours and cursor moves, whole or cut off


@dataclass(frozen=True)
class LogUpdate:
    """`lines` have ended; `current` is the unfinished last line as it stands now."""

    lines: list[str]
    current: str


class LogDecoder:
    """Bytes to lines, in pieces of any size.  A carriage return starts the line anew; one before a line feed does not."""

    def __init__(self):
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._line = ""
        self._returned = False

    def feed(self, data: bytes) -> list[str]:
        """Lines that ended within `data`; half a character or half a line waits for the rest."""
        lines = []
        for part in _BREAK.split(self._decode(data)):
            if part == "\n":
                lines.append(_CONTROL.sub("", self._line))
                self._line, self._returned = "", False
            elif part == "\r":
                self._returned = True
            elif part:
                self._line = part if self._returned else self._line + part
                self._returned = False
        return lines

    @property
    def current(self) -> str:
        """The last line, as far as it was written."""
        return _CONTROL.sub("", self._line)


class LogReader:
    """Reads a log from where it stopped the last time."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._offset = 0
        self._decoder = LogDecoder()

    @property
    def current(self) -> str:
        return self._decoder.current

    def poll(self) -> list[str]:
        """Lines that ended since the last call; none where the log does not exist yet."""
        try:
            with open(self.path, "rb") as source:
                if source.seek(0, 2) < self._offset:  # emptied or replaced: its new content from the start
                    self._offset, self._decoder = 0, LogDecoder()
                source.seek(self._offset)
                data = source.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        return self._decoder.feed(data)
