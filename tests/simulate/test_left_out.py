"""Fewer workers than a cluster's file describes: every command says in one line whose absence that means."""

import pytest
from click.testing import CliRunner

from paceline.cli import paceline
from paceline.launch.request import RunRequest, left_out_of
from paceline.simulate.cluster import ClusterModel
from paceline.simulate.left_out import left_out

TEXT = """
[workers]
count = 6
step_s = 0.01
[[stragglers]]
rank = 2
factor = 2.0
[network]
delay_s = 0.001
[[links]]
rank = 4
delay_s = 0.1
"""


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        (6, ""),
        (5, "c.toml describes 6 workers, 5 take part: rank 5 left out"),
        (3, "c.toml describes 6 workers, 3 take part: ranks 3 to 5 left out, and with rank 4 what the "
            "file says of it"),
        (1, "c.toml describes 6 workers, 1 takes part: ranks 1 to 5 left out, and with ranks 2, 4 what "
            "the file says of them"),
    ],
)  # fmt: skip
def test_who_is_left_out_and_whether_the_file_says_something_of_them(workers, said):
    assert left_out(ClusterModel.parse(TEXT), workers, "c.toml") == said


@pytest.fixture
def cluster(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize("how", ["emulate", "virtual"])
def test_a_run_says_so(cluster, how):
    request = RunRequest(script=cluster, workers=5, **{how: cluster})
    assert "5 take part: rank 5 left out" in left_out_of(request)
    assert left_out_of(RunRequest(script=cluster, workers=5)) == ""


def test_simulate_says_so_of_the_largest_of_several_sizes(cluster):
    words = ["simulate", str(cluster), "--steps", "5", "--strategies", "sync", "--workers"]
    done = CliRunner().invoke(paceline, [*words, "5"])
    assert "5 take part: rank 5 left out" in done.stderr
    assert "left out" not in CliRunner().invoke(paceline, [*words, "5,6,8"]).stderr
