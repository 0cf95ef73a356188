"""When a group says that a sum is there. (Its collectives are tested through the planes.)"""

from __future__ import annotations

from typing import Any

import torch

from paceline.transport.collective import Group, Pending


class Ended:
    """A collective that is over."""

    def wait(self, slice_s: Any = None) -> None:
        pass

    def is_completed(self) -> bool:
        return True


def test_who_hears_of_a_gathered_sum_sees_it_added_up() -> None:
    group = object.__new__(Group)  # without a process group: nothing is sent here
    group.device = torch.device("cpu")
    total, seen = torch.zeros(2), []
    parts = (torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), torch.tensor([5.0, 6.0]))
    group.finish(
        Pending(work=Ended(), parts=parts, total=total, on_done=lambda: seen.append(total.tolist()))
    )
    assert seen == [[9.0, 12.0]]
