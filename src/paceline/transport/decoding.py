"""Reads messages: every type that there is, and nothing else. Never executes anything."""

from __future__ import annotations

from typing import Any

import msgspec

from paceline.transport.messages import AnyMessage
from paceline.transport.shard_messages import AnyShardMessage
from paceline.transport.witness_messages import Vouch, Vouched, Witness, Witnessed

_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
    AnyMessage | AnyShardMessage | Witness | Witnessed | Vouch | Vouched
)


def decode(data: bytes) -> Any:
    """The message in ``data``. Raises msgspec.DecodeError / ValidationError on anything else."""
    return _decoder.decode(data)
