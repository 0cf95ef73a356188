"""What a worker that is sent differences is told, and what the server keeps for it."""

from __future__ import annotations

import torch

from compress.models import compression
from paceline.gradients.layout import FlatLayout, layout_of
from paceline.server.parcels import Outgo
from paceline.server.pulls import Pulls
from paceline.server.versions import Versions
from paceline.transport.messages import DIFFERENCE, WINDOW, Decided, Ended, Started

FAR, NEAR = 1, 0
LAYOUT: FlatLayout = layout_of([("matrix", (40, 50), (50, 1), torch.float32)])


class Server:
    """Versions, and whoever reads them."""

    def __init__(self, word: str = "topk:0.01,warmup=0,pull=topk:0.01") -> None:
        self.versions = Versions(torch.zeros(LAYOUT.total_bytes, dtype=torch.uint8))
        self.pulls = Pulls(
            self.versions, compression=compression(word).of_pulls(), layout=LAYOUT, far=[FAR],
            workers=2, clock_s=iter(range(1000)).__next__,
        )  # fmt: skip
        self.outgo = Outgo(self.pulls.stored)
        self.version = 0

    def update(self, by: float = 1.0) -> None:
        """Another version, in which every value is larger by ``by`` times its place."""
        room = self.versions.room()
        now, last = (_values(b.pieces.memory) for b in (room, self.versions.current))
        now.copy_(last + by * torch.arange(2000).view(40, 50))
        self.versions.publish(room)
        self.version += 1

    def start(self, rank: int) -> Started:
        self.versions.take_back(rank)
        started = Started(
            clock=0, version=self.version, batches=[], leases=[], progress=0, waited_s=0.0,
            parameters_fd=self.versions.give(rank),
        )  # fmt: skip
        return self.pulls.started(rank, started, 1)

    def end(self, rank: int) -> Ended:
        self.versions.take_back(rank)
        return Ended(
            version=0, clock=0, progress=0, waited_s=0.0, parameters_fd=self.pulls.exact(rank)
        )

    def held(self, rank: int) -> torch.Tensor:
        return _values(self.versions.held(rank).pieces.memory)


def _values(memory: torch.Tensor) -> torch.Tensor:
    return LAYOUT.views(memory)[0]


def decided(fd: int) -> Decided:
    return Decided(
        applied=True, kind="", reason="", version=0, clock=0, lag=0, norm=1.0, leases=[], progress=0,
        waited_s=0.0, applied_s=0.0, parameters_fd=fd, next=None,
    )  # fmt: skip


def test_a_window_gets_a_difference_and_an_end_the_version() -> None:
    server = Server()
    whole = server.outgo._stored(server.versions.current.fd).memory
    assert server.outgo.before(server.end(FAR)) == [(WINDOW, whole)]
    server.update()
    started = server.start(FAR)
    ((place, sent),) = server.outgo.before(started)
    assert place == DIFFERENCE
    assert sent.nbytes == started.difference_bytes == 16 + 20 * 8
    assert started.coding_s == 1
    assert int((server.held(FAR) != 0).sum()) == 20
    again = server.start(FAR)  # nothing is new
    assert again.difference_bytes == 0
    assert server.outgo.before(again) == []
    ((place, sent),) = server.outgo.before(server.end(FAR))
    assert (place, sent.nbytes) == (WINDOW, LAYOUT.total_bytes)
    assert torch.equal(server.held(FAR), _values(server.versions.current.pieces.memory))
    assert server.outgo.before(server.start(FAR)) == []  # it has the version


def test_who_cannot_go_on_yet_keeps_what_it_has() -> None:
    server = Server()
    server.outgo.before(server.end(FAR))
    server.update()
    server.start(FAR)
    had = server.held(FAR).clone()
    server.update()
    server.versions.take_back(FAR)
    told = server.pulls.decided(FAR, decided(server.versions.give(FAR)))
    assert torch.equal(server.held(FAR), had)
    assert told.parameters_fd == server.versions.held(FAR).fd


def test_who_is_near_is_given_versions() -> None:
    server = Server()
    server.end(NEAR)
    server.update()
    started = server.start(NEAR)
    assert started.difference_bytes is None
    assert started.parameters_fd == server.versions.current.fd
    assert server.pulls.decided(NEAR, decided(7)).parameters_fd == 7


def test_what_is_not_finite_comes_whole_and_so_does_what_follows_it() -> None:
    server = Server()
    server.outgo.before(server.end(FAR))
    for by in (float("inf"), 1.0):
        server.update(by)
        started = server.start(FAR)
        assert started.difference_bytes is None
        ((place, _),) = server.outgo.before(started)
        assert place == WINDOW


def test_a_copy_is_all_that_a_worker_costs_and_it_goes_with_it() -> None:
    """Who has a copy holds no version: with a slow far worker there are no more versions than without."""
    server = Server()
    server.end(FAR)
    server.update()
    server.start(FAR)
    for _ in range(5):
        server.update()
    assert len(server.versions._buffers) <= 2
    server.pulls.forget(FAR)
    assert server.pulls._copies == {}
    assert server.versions.held(FAR) is server.versions.current
