"""A rank of ``paceline measure`` under another launcher: its interface, what it says of failures."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from paceline.errors import PacelineError
from paceline.launch import group_member
from paceline.launch.group_member import GroupPlan, join
from paceline.launch.hosts import gloo_interface
from paceline.transport.addresses import Remote

HERE = Remote(host="127.0.0.1", port=29500)


def test_gloo_takes_the_interface_that_leads_to_the_others(monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    assert gloo_interface(HERE) == {"GLOO_SOCKET_IFNAME": "lo"}
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")  # somebody knows better
    assert gloo_interface(HERE) == {}


def test_ranks_that_cannot_meet_say_so_in_a_sentence(monkeypatch):
    def refused(*_):
        raise RuntimeError(
            "Gloo connectFullMesh failed: Connection refused, remote=[127.0.0.1]\nand more"
        )

    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29611"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    found = SimpleNamespace(rendezvous=lambda *_: iter([(None, 1, 2)]))
    monkeypatch.setitem(sys.modules, "torch.distributed.rendezvous", found)  # torch takes 2 s
    monkeypatch.setattr(group_member, "_take_part", refused)
    with pytest.raises(PacelineError) as raised:
        join(1, 2, GroupPlan(), lambda _: None)
    said = str(raised.value)
    assert said.startswith("Rank 1 cannot reach the other ranks")
    assert "through the interface eth7" in said
    assert "GLOO_SOCKET_IFNAME=eth1" in said
    assert "and more" not in said
