"""Two workers that all tests here share: their start costs more than what they do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from verify.troupe import Troupe


@pytest.fixture(scope="session")
def troupe() -> Iterator[Troupe]:
    with Troupe(2) as troupe:
        yield troupe
