"""What is said of compression: at a run's start, and at its end. Decides nothing."""

from __future__ import annotations

from paceline.compression import Compression
from paceline.payloads import Parameters, push_bytes
from paceline.worker.compression_account import Account

_LOSSY = (
    "feedback=off: what compression withholds from an update is lost for ever, and training ends worse for "
    "it (docs/compression.md shows by how much). Leave it out unless you study just that."
)
_FOR_NOTHING = (
    "virtual time: encoding and decoding take nothing unless the cluster file's [network] says what, as "
    "push_bytes and coding_s (a real run prints both)."
)


def described(compression: Compression | None, workers: int, parameters: Parameters) -> str:
    """For the start line; "" if nothing is compressed."""
    if compression is None or workers == 1:
        return ""
    whole, sent = push_bytes(None, parameters), push_bytes(compression.method, parameters)
    said = f"compress {compression}: {sent / 1e6:.3g} MB a push instead of {whole / 1e6:.3g}"
    if compression.pull is not None:
        pulled = push_bytes(compression.pull, parameters)
        said += f", {pulled / 1e6:.3g} a pull by workers on other hosts"
    return said + (f", after {compression.warmup} updates" if compression.warmup else "")


def notices(compression: Compression | None, workers: int, *, virtual: bool) -> list[str]:
    """What is worth saying beside it. ``virtual``: the run's clock is not the machine's."""
    if compression is None:
        return []
    if workers == 1:
        return [
            f"compress={str(compression)!r} does nothing with one worker: nothing is exchanged."
        ]
    return [
        text for text, said in ((_LOSSY, not compression.feedback), (_FOR_NOTHING, virtual)) if said
    ]


def dropped(compression: Compression | None, workers: int) -> str:
    """What happened to a checkpoint's residuals if nobody goes on with them."""
    if workers == 1:
        why = "with one worker nothing is exchanged"
    else:
        why = "compress is not given" if compression is None else "feedback=off"
    return f"what compression had withheld from updates until then is dropped: {why}"


def savings(compression: Compression | None, account: Account | None) -> str:
    """What came of it; "" if there is nothing to say."""
    return "" if account is None else account.sentence(str(compression))
