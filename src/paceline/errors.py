"""The exceptions paceline raises, in one tree.

    PacelineError
    ├── UsageError (also ValueError)    a value or a call of the user's is wrong; says the remedy
    │   └── MismatchError               ranks differ in model, optimizer, options or data
    ├── ConsistencyError                what must be equal on all ranks is not; names it, ranks, values
    ├── NonFiniteError                  too many windows in a row were skipped; names the parameter
    ├── CheckpointError                 a checkpoint cannot be written, or what is there is not whole
    └── StoppedError                    the run cannot go on
        ├── PeerLostError               another rank died, or was stopped, under a strategy that needs it
        ├── PeerFailedError             another rank raised; carries its text
        ├── ServerLostError             the server process is gone
        └── EvictedError                this worker was silent too long and has been replaced

``assert`` is for our own mistakes. Nothing here knows who raises it.
"""


class PacelineError(Exception):
    """Base of everything paceline raises on purpose."""


class UsageError(PacelineError, ValueError):
    """The caller's value or call is wrong. The message names field, value, range and remedy."""


class MismatchError(UsageError):
    """Ranks disagree about something that must be equal. The message names the first difference."""


class ConsistencyError(PacelineError):
    """Something that must be equal on all ranks is not. Names the first difference and who says what."""


class NonFiniteError(PacelineError):
    """``max_skips`` windows in a row had a gradient that was not finite. Names the first parameter."""


class CheckpointError(PacelineError):
    """A checkpoint cannot be written (a full disk), or what is to be read is damaged or foreign."""


class StoppedError(PacelineError):
    """The run cannot go on, for a reason outside this process."""


class PeerLostError(StoppedError):
    """A rank died or fell silent under a strategy that cannot go on without it."""


class PeerFailedError(StoppedError):
    """A rank raised an exception. The message carries its text."""


class ServerLostError(StoppedError):
    """The server process ended while this worker still needed it."""


class EvictedError(StoppedError):
    """This worker was silent for longer than ``evict_after_s`` and is no longer a member."""


def bad_value(field: str, value: object, allowed: str, remedy: str = "") -> UsageError:
    """A :class:`UsageError` in the house form: field, value, allowed range, remedy."""
    text = f"{field}={value!r}: expected {allowed}."
    return UsageError(f"{text} {remedy}" if remedy else text)
