"""A group of threads: queues are its links."""

import queue
from concurrent.futures import ThreadPoolExecutor


class ThreadWire:
    """One rank's end; ``links[a, b]`` carries what a sends to b."""

    def __init__(self, rank, world_size, links):
        self.rank, self.world_size, self._links = rank, world_size, links

    def send(self, array, to):
        self._links[self.rank, to].put(array.copy())

    def recv(self, array, source):
        array[...] = self._links[source, self.rank].get(timeout=10)

    def both(self, out, to, into, source):
        self.send(out, to)
        self.recv(into, source)


def on_all(world_size, act):
    """What ``act(wire)`` gives on every rank, each in a thread of its own."""
    pairs = [(a, b) for a in range(world_size) for b in range(world_size)]
    links = {pair: queue.Queue() for pair in pairs}
    wires = [ThreadWire(rank, world_size, links) for rank in range(world_size)]
    with ThreadPoolExecutor(world_size) as pool:
        return [done.result(timeout=20) for done in [pool.submit(act, wire) for wire in wires]]
