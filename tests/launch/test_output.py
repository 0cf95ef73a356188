"""Workers' output arrives line by line, prefixed, whole, and on the stream it was written to."""

from __future__ import annotations

import io

from paceline.launch.output import MAX_PARTIAL_BYTES, Console, LineSplitter


def console(*, status: bool = False) -> tuple[Console, io.StringIO, io.StringIO]:
    stdout, stderr = io.StringIO(), io.StringIO()
    return Console(stdout=stdout, stderr=stderr, status=status), stdout, stderr


def test_lines_are_cut_wherever_the_bytes_are():
    splitter = LineSplitter()
    whole = "erste\nzweite: é\n\ndritte".encode()
    found = [line for byte in whole for line in splitter.feed(bytes([byte]))]
    assert found + splitter.finish() == ["erste", "zweite: é", "", "dritte"]
    assert splitter.finish() == []


def test_of_a_line_written_over_the_last_state_counts():
    splitter = LineSplitter()
    assert splitter.feed(b"10 %\r20 %\r100 %\nnext\r\n") == ["100 %", "next"]


def test_a_line_without_an_end_does_not_grow_for_ever():
    splitter = LineSplitter()
    assert splitter.feed(b"x" * (MAX_PARTIAL_BYTES + 1)) == ["x" * (MAX_PARTIAL_BYTES + 1)]


def test_bytes_that_are_no_text_do_not_stop_the_output():
    assert LineSplitter().feed(b"\xff!\n") == ["�!"]


def test_what_torch_says_of_addresses_without_a_name_is_left_out_and_nothing_else():
    shown, _, stderr = console()
    said = "[W socket.cpp:207] [c10d] The hostname of the client socket cannot be retrieved. err=-3"
    shown.worker_line("stderr", 1, said)
    shown.worker_line(
        "stderr", 1, "[E1130 socket.cpp:1] [c10d] The client socket has failed to connect"
    )
    assert stderr.getvalue() == (
        "[1] [E1130 socket.cpp:1] [c10d] The client socket has failed to connect\n"
    )


def test_each_stream_goes_where_it_belongs():
    shown, stdout, stderr = console()
    shown.worker_line("stdout", 2, "loss 0.5")
    shown.worker_line("stderr", 0, "warning")
    shown.say("4 workers")
    shown.status("not on a file")
    assert stdout.getvalue() == "[2] loss 0.5\n"
    assert stderr.getvalue() == "[0] warning\npaceline: 4 workers\n"


def test_the_status_line_stays_below_the_output():
    shown, stdout, stderr = console(status=True)
    shown.status("version 1")
    shown.worker_line("stdout", 0, "hello")
    assert stdout.getvalue() == "[0] hello\n"
    assert stderr.getvalue().endswith("\r\x1b[K\r\x1b[Kversion 1")


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_reader_that_went_away_is_mentioned_once():
    stderr = io.StringIO()
    shown = Console(stdout=Gone(), stderr=stderr, status=False)
    for _ in range(3):
        shown.worker_line("stdout", 0, "hello")
    assert (
        stderr.getvalue() == "paceline: nobody reads stdout any more; the run goes on without it\n"
    )
    Console(stdout=Gone(), stderr=Gone(), status=False).say("to nobody")
