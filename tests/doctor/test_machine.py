"""Machines made of files: what is read of /proc and /sys, and of a driver's library that is played."""

from math import inf
from types import SimpleNamespace

from paceline.doctor.cards import cards
from paceline.doctor.interfaces import Interface, interfaces, used
from paceline.doctor.machine import machine


def written(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def nic(name, *, speed="1000", state="up", rx=100, tx=200):
    return {
        f"class/net/{name}/speed": speed,
        f"class/net/{name}/operstate": state,
        f"class/net/{name}/statistics/rx_bytes": str(rx),
        f"class/net/{name}/statistics/tx_bytes": str(tx),
    }


def test_negotiated_rates_and_counters(tmp_path):
    root = written(tmp_path, {
        **nic("eth0"), **nic("eth1", speed="25000"), **nic("lo", speed="-1", state="unknown"),
        **nic("br0", speed="-1", state="down"), "class/net/bonding_masters": "bond0",
    })  # fmt: skip
    found = {one.name: one for one in interfaces(root)}
    assert list(found) == ["br0", "eth0", "eth1", "lo"]
    assert found["eth0"] == Interface(name="eth0", up=True, rate_bits_per_s=1e9, moved_bytes=300)
    assert found["eth1"].rate_bits_per_s == 25e9
    assert found["lo"].rate_bits_per_s is None
    assert found["lo"].is_loopback
    assert not found["br0"].up
    assert interfaces(tmp_path / "nowhere") == []


def test_the_interface_that_moved_most_was_used(tmp_path):
    before = interfaces(written(tmp_path, {**nic("eth0"), **nic("eth1"), **nic("lo", rx=10**9)}))
    after = interfaces(written(tmp_path, {**nic("eth0", rx=900), **nic("eth1", tx=90_000)}))
    assert used(before, after).name == "eth1"
    assert used(after, after) is None


def test_cores_load_memory(tmp_path):
    root = written(tmp_path, {
        "loadavg": "3.25 2.0 1.0 1/200 4242",
        "meminfo": "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 250 kB\nHugePages_Total: 0",
        "self/cgroup": "0::/docker/abc",
        "fs/cgroup/docker/cpu.max": "150000 100000",
        "fs/cgroup/docker/abc/cpu.max": "max 100000",
    })  # fmt: skip
    seen = machine(cores=8, shm_bytes=64, proc=root, sys_root=root)
    assert (seen.load, seen.memory_bytes, seen.available_bytes) == (3.25, 1_024_000, 256_000)
    assert seen.quota_cores == 1.5
    assert seen.usable_cores == 1.5


def test_an_old_cgroup_and_none(tmp_path):
    root = written(tmp_path, {"fs/cgroup/cpu/cpu.cfs_quota_us": "250000",
                              "fs/cgroup/cpu/cpu.cfs_period_us": "100000"})  # fmt: skip
    assert machine(cores=8, shm_bytes=0, proc=root, sys_root=root).quota_cores == 2.5
    (root / "fs/cgroup/cpu/cpu.cfs_quota_us").write_text("-1")
    bare = machine(cores=8, shm_bytes=0, proc=root, sys_root=root)
    assert (bare.quota_cores, bare.load, bare.usable_cores) == (inf, 0.0, 8.0)


class Nvml:
    """Plays ``pynvml``: two cards, of which the second does not know its PCIe link."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM = 1
    reasons = (0x1 | 0x40, 0x1)

    def __init__(self, driver=True):
        self.driver, self.open = driver, False

    def nvmlInit(self):  # noqa: N802
        if not self.driver:
            raise self.NVMLError
        self.open = True

    def nvmlShutdown(self):  # noqa: N802
        self.open = False

    def nvmlDeviceGetCount(self):  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def __getattr__(self, name):
        values = {"Name": b"H200", "ClockInfo": 345, "MaxClockInfo": 1980,
                  "CurrPcieLinkGeneration": 1, "MaxPcieLinkGeneration": 5, "CurrPcieLinkWidth": 8,
                  "MaxPcieLinkWidth": 16, "UtilizationRates": SimpleNamespace(gpu=93)}  # fmt: skip
        what = name.removeprefix("nvmlDeviceGet")

        def answer(handle, *_):
            if what == "CurrentClocksThrottleReasons":
                return self.reasons[handle]
            if handle == 1 and "Pcie" in what:
                raise self.NVMLError
            return values[what]

        return answer


def test_cards_clocks_reasons_and_pcie():
    nvml = Nvml()
    first, second = cards(nvml)
    assert first.reasons == ("too hot (hardware)",)
    assert (first.clock_hz, first.max_clock_hz, first.busy) == (345e6, 1980e6, 0.93)
    assert (first.generation, first.max_generation, first.width, first.max_width) == (1, 5, 8, 16)
    assert first.name == "H200"
    assert second.reasons == ()
    assert second.width == second.max_width == 0
    assert not nvml.open


def test_no_driver_is_no_card():
    assert cards(Nvml(driver=False)) == []
