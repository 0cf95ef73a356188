"""The scripted dialogues in ``dialogues/`` give exactly the orders written there, reasons included."""

import pytest

from policy.dialogue import FILES, transcript


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_dialogue(path):
    script = path.read_text(encoding="utf-8")
    assert transcript(script) == script
