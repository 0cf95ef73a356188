"""The shards on other hosts: how they come, what the server says to them, how their end is noticed.

Each calls on the server and says where it stands; the server calls back, and over that connection gives
its orders, one after the other. A shard that ends, or is silent for too long, stops the run: what it held
is gone. Knows no tensors and no policy.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.server.connection import Line, log
from paceline.transport.addresses import remote_from
from paceline.transport.channel import ChannelClosedError
from paceline.transport.frame_channel import FrameChannel, call
from paceline.transport.framing import FrameError
from paceline.transport.messages import (
    PROTOCOL_VERSION,
    Beat,
    Hello,
    Message,
    ShardPlace,
    Stop,
    Welcome,
)
from paceline.transport.shard_messages import Came, Lost, Standing

PATIENCE_S = 10.0
"""An update of a shard takes a fraction of a second; a host that is gone answers nothing at all."""


class FarShard:
    """One shard. ``number``: from 1; ``lost(shard, why)``: it is gone, called once; ``patience_s()``: how
    long it may be silent."""

    def __init__(
        self,
        hello: Hello,
        line: Line,
        heard_s: float,
        lost: Callable[[FarShard, str], None],
        patience_s: Callable[[], float],
    ) -> None:
        self.number = hello.rank
        self.line = line
        self.heard_s = heard_s
        self.place = ShardPlace(address="", socket="", host="")
        self._name = f"shard {hello.rank} (pid {hello.pid} on {hello.host or 'another host'})"
        self._lost = lost
        self._patience_s = patience_s
        self._channel: FrameChannel | None = None
        self._gone = False

    def __str__(self) -> str:
        return self._name

    @property
    def ready(self) -> bool:
        """Whether it takes orders."""
        return self._channel is not None and not self._gone

    def call_on(self, standing: Standing, key: Path | None, introduction: Hello) -> None:
        """Call back where it says it stands. Raises FrameError if nobody proper is there."""
        remote = remote_from(standing.address)
        if remote is None or self._channel is not None:
            raise FrameError("a Standing that makes no sense")
        try:
            channel = call(remote, key)
            channel.send(introduction)
            welcome = channel.receive(PATIENCE_S)
        except (ChannelClosedError, TimeoutError) as error:
            raise FrameError(f"{self} does not answer at {remote}: {error}") from None
        if not isinstance(welcome, Welcome):
            raise FrameError(f"{self} answers at {remote} with {welcome}")
        self.place = ShardPlace(
            address=standing.address, socket=standing.socket, host=standing.host
        )
        self._channel = channel

    def tell(self, order: Message) -> None:
        """Send an order. Whoever is gone is told nothing."""
        if self._channel is not None and not self._gone:
            try:
                self._channel.send(order)
            except ChannelClosedError as error:
                self.lose(str(error))

    def answer(self, within_s: float = 0.0) -> Any:
        """The reply to the last order that has one; None if the shard is gone, or says nothing for
        ``patience_s`` (``within_s``, if that is longer)."""
        if self._channel is None or self._gone:
            return None
        try:
            return self._channel.receive(max(within_s, self._patience_s()))
        except (ChannelClosedError, FrameError, TimeoutError) as error:
            self.lose(str(error))
        return None

    def lose(self, why: str) -> None:
        """It is gone."""
        if not self._gone:
            self._gone = True
            self._lost(self, why)

    def close(self) -> None:
        """Hang up, which ends it."""
        self._gone = True
        self.line.close()
        if self._channel is not None:
            self._channel.close()


class FarShards:
    """All of them, ``count`` when they have come. ``key``: the file of the run's key; ``introduction``: how
    the server says who it is. ``halt``: stops the run; ``patience_s``: how long one may be silent;
    ``generation``: of Workers; what shards say of earlier ones is not heard.
    ``on_whole()``: the last one has come; ``on_came(rank)``: a shard has a push of a worker's;
    ``on_lost_worker(rank)``: it has lost touch with one.
    """

    def __init__(
        self,
        count: int,
        *,
        key: Path | None,
        clock_s: Callable[[], float],
        introduction: Hello,
    ) -> None:
        self.count = count
        self.generation = 0
        self.patience_s = PATIENCE_S
        self._key = key
        self._clock_s = clock_s
        self.halt: Callable[[Stop], None] = _not_halted
        self._introduction = introduction
        self._shards: dict[int, FarShard] = {}
        self.on_whole: Callable[[], None] = _nothing
        self.on_came: Callable[[int], None] = _nobody
        self.on_lost_worker: Callable[[int], None] = _nobody

    @property
    def all(self) -> list[FarShard]:
        """Those that have come, by number."""
        return [self._shards[number] for number in sorted(self._shards)]

    @property
    def whole(self) -> bool:
        """Whether all take orders."""
        return sum(shard.ready for shard in self._shards.values()) == self.count

    def takes(self, line: Line, message: object) -> bool:
        """Whether ``message`` came from a shard; it is heard then. Raises FrameError."""
        if isinstance(message, Hello) and message.role == "shard":
            self._greet(line, message)
            return True
        shard = self._at(line)
        if shard is not None:
            shard.heard_s = self._clock_s()
            self._hear(shard, message)
        return shard is not None

    def ended(self, line: Line) -> bool:
        """Whether ``line`` was a shard's."""
        shard = self._at(line)
        if shard is not None:
            shard.lose("its connection ended")
        return shard is not None

    def look_around(self) -> None:
        """A few times a second: who is silent?"""
        now_s = self._clock_s()
        for shard in self.all:
            if shard.ready and now_s - shard.heard_s > self.patience_s:  # earlier it imports torch
                shard.lose(f"it was silent for {now_s - shard.heard_s:.0f} s")

    def close(self) -> None:
        """Hang up on all."""
        for shard in self._shards.values():
            shard.close()

    def _greet(self, line: Line, hello: Hello) -> None:
        problem = self._objection(hello)
        if problem:
            log(f"shard {hello.rank} (pid {hello.pid} on {hello.host}) refused: {problem}")
            line.send(Stop(kind="refused", rank=-1, text=problem))
            return
        line.trust(f"shard {hello.rank} (pid {hello.pid} on {hello.host})", urgent=True)
        self._shards[hello.rank] = FarShard(
            hello, line, self._clock_s(), self._lost, lambda: self.patience_s
        )
        line.send(Welcome(incarnation=0))

    def _objection(self, hello: Hello) -> str:
        if hello.protocol != PROTOCOL_VERSION:
            return f"protocol {hello.protocol}: the server speaks {PROTOCOL_VERSION}"
        if not 0 < hello.rank <= self.count:
            return f"shard {hello.rank}: expected 1 to {self.count}. Say the same --shards on all hosts."
        if hello.rank in self._shards:
            return f"shard {hello.rank} is here already"
        return ""

    def _hear(self, shard: FarShard, message: object) -> None:
        if isinstance(message, Standing):
            shard.call_on(message, self._key, self._introduction)
            if self.whole:
                self.on_whole()
        elif isinstance(message, Came | Lost):
            if message.generation == self.generation:
                (self.on_came if isinstance(message, Came) else self.on_lost_worker)(message.rank)
        elif not isinstance(message, Beat):
            raise FrameError(f"unexpected {type(message).__name__} of {shard}")

    def _at(self, line: Line) -> FarShard | None:
        return next((one for one in self._shards.values() if one.line is line), None)

    def _lost(self, shard: FarShard, why: str) -> None:
        text = f"{shard}, which held a part of the parameters, is lost: {why}"
        self.halt(Stop(kind="peer-lost", rank=-1, text=text))


def _nothing() -> None:
    return


def _not_halted(stop: Stop) -> None:
    log(stop.text)


def _nobody(_rank: int) -> None:
    return
