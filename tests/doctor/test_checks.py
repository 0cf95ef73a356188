"""One complaint at a time, on an otherwise healthy machine; and none on the healthy one."""

import re
from dataclasses import replace
from math import inf

import pytest

from paceline.doctor.cards import Card
from paceline.doctor.checks import findings
from paceline.doctor.facts import Facts
from paceline.doctor.interfaces import Interface
from paceline.doctor.machine import Machine
from paceline.doctor.speed import Speeds
from paceline.doctor.text import as_json, render

MACHINE = Machine(
    cores=8, quota_cores=inf, load=0.5, memory_bytes=32 * 10**9, available_bytes=20 * 10**9,
    shm_bytes=16 * 10**9,
)  # fmt: skip
ETH0 = Interface(name="eth0", up=True, rate_bits_per_s=1e10, moved_bytes=0)
LO = Interface(name="lo", up=True, rate_bits_per_s=None, moved_bytes=0)
SPEEDS = Speeds(
    processes=8, copy_alone=1e10, copy_together=4e10, compute_alone=1e11, compute_together=7e11,
    all_reduce_s=0.004,
)  # fmt: skip
CARD = Card(
    index=0, name="H200", clock_hz=1.9e9, max_clock_hz=1.98e9, generation=5, max_generation=5,
    width=16, max_width=16, busy=0.9, reasons=(),
)  # fmt: skip
HEALTHY = Facts(
    machine=MACHINE, threads=8, interfaces=(ETH0, LO), host="h1", address="10.0.0.1", chosen="",
    chosen_by="", address_interface="eth0", hosts=4, cards=(CARD,), cards_known=True, speeds=SPEEDS,
)  # fmt: skip


def on_machine(**changes):
    return replace(HEALTHY, machine=replace(MACHINE, **changes))


def on_card(**changes):
    return replace(HEALTHY, cards=(replace(CARD, **changes),))


SLOW = replace(ETH0, name="eth1", rate_bits_per_s=1e8)
COMPLAINTS = [
    ("busy", on_machine(load=5.0), "load of 5.0 on 8 cores"),
    ("too-many-threads", replace(HEALTHY, threads=16), "16 threads a process, for 8 cores"),
    ("memory", on_machine(available_bytes=10**9), "1.00 GB of 32.0 GB"),
    ("shm", on_machine(shm_bytes=64 * 2**20), "/dev/shm holds 67.1 MB"),
    ("loopback", replace(HEALTHY, address="127.0.1.1", address_interface="lo"), "h1, resolves to 127"),
    ("loopback", replace(HEALTHY, address="", address_interface=""), "resolves to nothing"),
    ("no-such-interface", replace(HEALTHY, chosen="ib0", chosen_by="NCCL_SOCKET_IFNAME"), "ib0"),
    ("interface", replace(HEALTHY, interfaces=(ETH0, SLOW), chosen="eth1", chosen_by="GLOO_SOCKET_IFNAME"),
     "use eth1 (100 Mb/s), not eth0 (10000 Mb/s)"),
    ("interface", replace(HEALTHY, interfaces=(replace(ETH0, rate_bits_per_s=1e8),)), "100 Mb/s only"),
    ("interface", replace(HEALTHY, interfaces=(replace(ETH0, up=False),)), "eth0, which .* is down"),
    ("throttled", on_card(reasons=("hardware thermal slowdown",)), "hardware thermal slowdown"),
    ("low-clock", on_card(clock_hz=0.99e9), "50% of its clock"),
    ("pcie", on_card(width=4), "4 of 16 PCIe lanes"),
    ("pcie", on_card(generation=3), "generation 3 of 5"),
    ("no-gain", replace(HEALTHY, speeds=replace(SPEEDS, compute_together=1.1e11)), "1.10 times"),
]  # fmt: skip


def test_a_healthy_machine():
    assert not findings(HEALTHY)
    assert render(HEALTHY, []).startswith("Nothing of this machine stands out.")


@pytest.mark.parametrize(("cause", "facts", "words"), COMPLAINTS, ids=lambda value: str(value)[:20])
def test_each_complaint_alone(cause, facts, words):
    (found,) = findings(facts)
    assert found.cause == cause
    assert re.search(words.replace("(", r"\(").replace(")", r"\)"), found.sentence)
    assert found.evidence
    assert found.action.endswith((".", ")"))
    assert found.sentence in render(facts, [found])


def test_a_quota_makes_too_many_threads_too():
    causes = [one.cause for one in findings(on_machine(quota_cores=2.0))]
    assert causes == ["too-many-threads", "cpu-quota"]


def test_what_is_no_fault():
    """Loopback is right on one host; an idle card lowers its clocks; a busy machine does not scale."""
    assert not findings(replace(HEALTHY, hosts=1, address="127.0.0.1", address_interface="lo"))
    assert not findings(on_card(busy=0.0, clock_hz=2e8, generation=1))
    loaded = replace(on_machine(load=8.0), speeds=replace(SPEEDS, compute_together=1e11))
    assert [one.cause for one in findings(loaded)] == ["busy"]


def test_json_has_a_schema_and_no_infinity():
    text = as_json(HEALTHY, findings(HEALTHY))
    assert '"schema": 1' in text
    assert "Infinity" not in text
