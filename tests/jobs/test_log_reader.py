"""A growing log: partial lines, partial UTF-8, carriage returns (F7)."""

import time

import pytest

from seedlab.jobs.log_reader import LogDecoder, LogReader

TEXT = "größe 10%\rgröße 55%\rgröße 100% ✓\r\nplain\n\x1b[31mred\x1b[0m\nlast"
LINES = ["größe 100% ✓", "plain", "red"]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_pieces_of_any_size_give_the_same_lines(size):
    data, decoder, lines = TEXT.encode(), LogDecoder(), []
    for start in range(0, len(data), size):
        lines += decoder.feed(data[start : start + size])
    assert (lines, decoder.current) == (LINES, "last")


def test_the_unfinished_line_is_shown_as_it_stands():
    decoder = LogDecoder()
    shown = []
    for piece in (b"10%", b"\r", b"20%\r", b"3", b"0%", b"\n", b"\xc3", b"\xa4", b"\x1b[", b"2K", b"x"):
        decoder.feed(piece)
        shown.append(decoder.current)
    assert shown == ["10%", "10%", "20%", "3", "30%", "", "", "ä", "ä", "ä", "äx"]


def test_bytes_that_are_no_text_do_not_stop_the_reader():
    assert LogDecoder().feed(b"a\xff\xfeb\n") == ["a\ufffd\ufffdb"]


def test_reading_goes_on_and_starts_anew_where_the_log_was_emptied(tmp_path):
    file = tmp_path / "log.txt"
    reader = LogReader(file)
    assert (reader.poll(), reader.current) == ([], "")
    file.write_bytes(b"one\ntw")
    assert (reader.poll(), reader.current) == (["one"], "tw")
    assert reader.poll() == []
    with open(file, "ab") as out:
        out.write(b"o\n")
    assert reader.poll() == ["two"]
    file.write_bytes(b"new\n")
    assert reader.poll() == ["new"]


def test_following_shows_the_last_line_at_once_and_ends_with_the_job(start):
    code = (
        "import sys, time\nsys.stdout.write('one\\nstep 1'); sys.stdout.flush(); time.sleep(0.6)\n"
        "sys.stdout.write('\\rstep 2'); sys.stdout.flush(); time.sleep(0.6)\n"
        "sys.stdout.buffer.write('\\nä'.encode()[:2]); sys.stdout.flush(); time.sleep(0.3)\n"
        "sys.stdout.buffer.write('ä\\nend'.encode()[1:]); sys.exit(3)"
    )
    begun = time.monotonic()
    job = start("a", code)
    seen, lines = [], []
    for update in job.follow(interval_s=0.05):
        seen.append((time.monotonic() - begun, update.current))
        lines += update.lines
    assert lines == ["one", "step 2", "ä"] and seen[-1][1] == "end"
    assert min(when for when, current in seen if current == "step 1") < 2
    assert "\ufffd" not in "".join(current for _, current in seen)
    assert (job.status()["state"], job.status()["exit_code"]) == ("failed", 3)
