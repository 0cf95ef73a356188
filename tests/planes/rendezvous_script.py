"""A worker that some launcher other than ``paceline run`` starts: it joins, greets and leaves."""

from __future__ import annotations

import os

from paceline.launch.context import current_launch
from paceline.worker.session import Session


def main() -> None:
    launch = current_launch()
    assert launch.server is None
    for meeting in ("first", "second"):
        session = Session.connect(launch, evict_after_s=10.0, on_beat=lambda: None)
        met = session.gather(meeting, str(launch.rank).encode())
        fork_keeps_nothing(session)
        session.close("finished")
        # One write a line: both ranks share the pipe.
        os.write(1, f"rank {launch.rank} met {b' '.join(met).decode()}\n".encode())


def fork_keeps_nothing(session: Session) -> None:
    """A forked child (a DataLoader's) has none of the session's descriptors, and cannot leave."""
    held = [session._data.fileno(), session._heartbeat._channel.fileno()]
    child = os.fork()
    if child == 0:
        session.close("departed")
        os._exit(sum(is_open(fd) for fd in held))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all(is_open(fd) for fd in held)


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
