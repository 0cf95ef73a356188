import json
from dataclasses import replace

from paceline.measure.result import Place
from paceline.measure.sentences import judge
from paceline.measure.text import as_json, render
from paceline.report.heat import heat_page, heat_svg

from .fabricated import measured_group


def test_a_clean_group():
    judged = judge(measured_group(rates=[125e6] * 4))
    assert judged.verdict == "No link, port or host stands out."
    assert not judged.slow


def test_a_port_is_named_with_both_figures():
    """One host: ranks are called by their numbers. Figures are goodput, factor and remedy."""
    judged = judge(measured_group(rates=[125e6, 125e6, 25e6, 125e6], hosts="aaaa"))
    assert [(one.kind, one.ranks) for one in judged.slow] == [("port", (2,))]
    assert judged.verdict == (
        "Rank 2's port is slow both ways, to and from everyone: bandwidth 24.9 MB/s, "
        "the other links' 124 MB/s: 5.0 times slower."
    )


def test_a_host_is_called_by_its_name():
    rates = [125e6, 125e6, 25e6, 25e6, 125e6, 125e6]
    (slow,) = judge(measured_group(rates=rates, hosts="aabbcc", inside=2e9)).slow
    assert (slow.kind, slow.ranks) == ("host", (2, 3))
    assert slow.sentence.startswith("Host b (ranks 2, 3) has a slow port, both ways: bandwidth 24.")


def test_a_lower_negotiated_rate_is_remarked():
    measured = measured_group(rates=[125e6] * 4)
    slow = Place(host="c", interface="eth0", rate_bits_per_s=1e8)
    measured = replace(measured, places=(*measured.places[:2], slow, measured.places[3]))
    assert judge(measured).remarks == (
        "rank 2: eth0 of c has negotiated 100 Mb/s, the best 1000 Mb/s",
    )


def test_a_busy_host_is_remarked_once():
    measured = measured_group(rates=[125e6] * 4, hosts="aabb")
    places = tuple(replace(one, load=3.0) if one.host == "b" else one for one in measured.places)
    (remark,) = judge(replace(measured, places=places)).remarks
    assert remark.startswith("b is busy: a load of 3.0 a core")


def test_terminal_json_and_pictures():
    measured = measured_group(rates=[125e6, 125e6, 25e6, 125e6])
    judged = judge(measured)
    text = render(measured, judged, None, "cluster.toml")
    assert text.startswith(judged.verdict)
    assert "bandwidth, row sends to column" in text
    document = json.loads(as_json(measured, judged, None, "cluster.toml"))
    assert document["schema"] == 1
    assert document["slow"][0]["ranks"] == [2]
    assert heat_svg(measured).count("MB/s") == 12
    assert "bandwidth 24.9 MB/s" in heat_page(measured, judged)
