"""How the process of a virtual run ends."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch.distributed

from paceline.virtual.__main__ import flush_open_files


class Talkative:
    """Answers with a warning to whoever asks what it is, as torch's deprecated names do."""

    def __init__(self) -> None:
        self.kept: list[object] = []  # so that the garbage collector knows it

    @property
    def __class__(self) -> type:
        warnings.warn("asked", FutureWarning, stacklevel=2)
        return Talkative


def test_what_scripts_left_open_is_written_and_nobody_hears_of_it(tmp_path: Path) -> None:
    talkative, deprecated = Talkative(), torch.distributed.reduce_op
    with pytest.warns(FutureWarning):
        assert not isinstance(talkative, Path)
    with (tmp_path / "left_open").open("w") as file, warnings.catch_warnings():
        file.write("said")
        warnings.simplefilter("error")
        flush_open_files()
        assert (tmp_path / "left_open").read_text() == "said"
    del talkative, deprecated
