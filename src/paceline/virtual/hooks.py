"""The end of one worker's script, where the interpreter's own end is nobody's in particular."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(kw_only=True, slots=True, eq=False)
class Hook:
    """What one Worker wants to hear: see :class:`paceline.worker.exits.ExitHooks`."""

    ending: Ending
    on_failure: Callable[[BaseException], None]
    on_exit: Callable[[], None]

    def remove(self) -> None:
        """Call back no more."""
        if self in self.ending.hooks:
            self.ending.hooks.remove(self)


class Ending:
    """The hooks of one worker's script. Called by whoever runs it, in its thread."""

    def __init__(self) -> None:
        self.hooks: list[Hook] = []

    def hook(
        self, *, on_failure: Callable[[BaseException], None], on_exit: Callable[[], None]
    ) -> Hook:
        """Call these at the end."""
        hook = Hook(ending=self, on_failure=on_failure, on_exit=on_exit)
        self.hooks.append(hook)
        return hook

    def failed(self, error: BaseException) -> None:
        """The script raised ``error``."""
        for hook in reversed(tuple(self.hooks)):
            hook.on_failure(error)

    def ended(self) -> None:
        """The script is over, however it went."""
        for hook in reversed(tuple(self.hooks)):
            hook.on_exit()
