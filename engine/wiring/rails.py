"""The rails, and what ends when they stop everything."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from engine.safety.safety import Hooks, Safety

if TYPE_CHECKING:
    from engine.engine import Engine


def build(core: Engine) -> None:
    """The pipeline and its holds."""
    home, clock, randomness = core.home, core.clock, core.randomness
    core.safety = Safety(
        core.database,
        core.settings,
        clock,
        randomness,
        data=home.data,
        decisions=core.feedback,
        hooks=Hooks(
            stop_sessions=partial(_stop_all, core),
            agent_budget=core.hierarchy.budget,
            quiet=lambda: core.autonomy.quiet(),
            confined=lambda: core.sessions.sandbox.confines,
            on_change=lambda: core.autonomy.poke(),
        ),
    )


def _stop_all(core: Engine, reason: str) -> None:
    """The kill switch: sessions and all their processes, and the one that speaks to models for them."""
    core.sessions.stop_all(reason)
    if not core.host_lent:
        core.host.end()
