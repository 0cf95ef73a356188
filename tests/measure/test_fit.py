import numpy as np
import pytest

from paceline.measure.fit import bandwidth, latency


def transfers(rng, *, rate, burst=0.0, noise=0.05):
    sizes = np.repeat([0.5e6, 2e6, 4e6], 5)
    times = 1e-4 + np.maximum(sizes - burst, 0) / rate
    return sizes, times * (1 + noise * rng.exponential(size=len(sizes)))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("rate", [25e6, 125e6, 2e9])
def test_bandwidth_whatever_a_token_bucket_lets_through_at_first(seed, rate):
    found = bandwidth(*transfers(np.random.default_rng(seed), rate=rate, burst=131072))
    assert found.bytes_per_s == pytest.approx(rate, rel=0.1)


def test_a_few_disturbed_transfers_do_not_count():
    sizes, times = transfers(np.random.default_rng(0), rate=1e8, noise=0.0)
    times[::6] *= 4
    assert bandwidth(sizes, times).bytes_per_s == pytest.approx(1e8, rel=0.02)


def test_no_slope_is_no_limit():
    assert bandwidth([1e6, 2e6], [0.1, 0.1]).bytes_per_s == float("inf")
    with pytest.raises(ValueError, match="one size"):
        bandwidth([1e6, 1e6], [0.1, 0.2])


@pytest.mark.parametrize("seed", range(10))
def test_latency_and_its_jitter(seed):
    ways_s = 1e-3 + 2e-4 * np.random.default_rng(seed).exponential(size=400)
    found = latency(2 * ways_s)
    assert found.p50_s == pytest.approx(1e-3 + 2e-4 * np.log(2), rel=0.05)
    assert found.alpha_s == pytest.approx(1e-3 + 2e-4 * np.log(4 / 3), rel=0.05)
    assert found.base_s == pytest.approx(1e-3, rel=0.05)
    assert found.jitter_s == pytest.approx(2e-4, rel=0.3)
    assert found.p99_s > 1.5e-3
