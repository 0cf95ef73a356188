"""Measurements that never were: links of given rates, timed with a little noise."""

import numpy as np

from paceline.measure.links import Timed
from paceline.measure.result import Measurement, Place, links_record, part, places_record


def timed_pass(rng, rates, alpha_s):
    """``rates``: bytes a second, shape (ranks, ranks)."""
    ranks = len(rates)
    sizes = np.broadcast_to(np.tile([1e6, 2e6, 4e6], 3), (ranks, ranks, 9))
    noise = 1 + 0.01 * rng.exponential(size=sizes.shape)
    trips = 2 * alpha_s * (1 + 0.02 * rng.exponential(size=(ranks, ranks, 40)))
    times = (2 * alpha_s + sizes / rates[:, :, None]) * noise
    return Timed(round_trips_s=trips, sizes_bytes=sizes, times_s=times)


def measured_group(*, rates, hosts="", inside=None, alpha_s=1e-4, seed=0, interface="eth0"):
    """A group whose ports have ``rates``; ``hosts``: a letter a rank; ``inside``: a host's own rate."""
    rng = np.random.default_rng(seed)
    matrix = np.minimum.outer(np.array(rates), np.array(rates))
    names = list(hosts or "abcdefgh"[: len(rates)])
    if inside is not None:
        same = np.array(names)[:, None] == np.array(names)[None, :]
        matrix = np.where(same, inside, matrix)
    passes = [timed_pass(rng, matrix, alpha_s) for _ in range(4)]
    places = [Place(host=name, interface=interface, rate_bits_per_s=1e9) for name in names]
    records = [places_record(places), links_record(passes), {"complete": True}]
    measured = Measurement()
    for record in records:
        measured = part(measured, record)
    return measured
