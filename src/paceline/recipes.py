"""The recipes a user can name: what is done around the user's optimizer so that stale gradients lose little.

What each ingredient does is said where it is done: :mod:`paceline.worker.warm_up`,
:mod:`paceline.gradients.norm_limit`, :mod:`paceline.worker.own_momentum`. This module only knows
what can be said.

======================  ==========================================================
text                    value
======================  ==========================================================
``plain``               ``Plain()``: the user's optimizer as it is
``stable``              ``Stable()``: warm-up over the first 100 updates
``stable:300``          ``Stable(warmup=300)``: over the first 300
``stable:5%of2000``     ``Stable(warmup=100)``: over a share of a total
======================  ==========================================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from paceline.errors import bad_value

WARMUP_UPDATES = 100

_SHARE = re.compile(r"(\d+(?:\.\d+)?)%of(\d+)")
_WORDS = "'plain', 'stable', 'stable:300' (updates) or 'stable:5%of2000' (share of a total)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plain:
    """Nothing is altered."""

    def __str__(self) -> str:
        return "plain"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stable:
    """Warm-up, relative clip and, where pushes are applied one by one, momentum per worker.

    ``warmup``: updates over which learning rates rise to the user's; 0 for none. An update is as
    many batches as a window of every worker has, whatever the strategy.
    """

    warmup: int = WARMUP_UPDATES

    def __post_init__(self) -> None:
        if not isinstance(self.warmup, int) or isinstance(self.warmup, bool) or self.warmup < 0:
            raise bad_value("warmup", self.warmup, "a whole number of updates >= 0")

    def __str__(self) -> str:
        return "stable" if self.warmup == WARMUP_UPDATES else f"stable:{self.warmup}"


Recipe = Plain | Stable
PLAIN_RECIPE = Plain()


def parse_recipe(text: str | Recipe) -> Recipe:
    """The recipe that ``text`` names. ``parse_recipe(str(x)) == x`` for every ``x``.

    Raises UsageError that lists the words, for text that names none.
    """
    if isinstance(text, Plain | Stable):
        return text
    word, _, rest = str(text).strip().lower().replace(" ", "").partition(":")
    if word == "plain" and not rest:
        return Plain()
    if word == "stable":
        return Stable(warmup=_updates(text, rest)) if rest else Stable()
    raise bad_value("recipe", text, _WORDS)


def _updates(text: str, rest: str) -> int:
    if rest.isdecimal():
        return int(rest)
    share = _SHARE.fullmatch(rest)
    if share is None or float(share[1]) > 100:
        raise bad_value("recipe", text, _WORDS)
    return round(float(share[1]) / 100 * int(share[2]))
