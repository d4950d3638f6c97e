"""Replacements for the outside world, in simulations and in tests of a whole engine.

Nothing else can be replaced: rails, permits, cards, the Twin, states, schedule, quiet hours and costs are always real.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.execution.runners.model.host_client import ModelHost
from engine.execution.runners.runner import Runner
from engine.execution.sandbox import Sandbox
from engine.frozen import frozen
from engine.prediction.context import ContextSource
from engine.prediction.twin import Calibrator


@frozen
class Overrides:
    """Replacements for one engine; None means the real implementation."""

    runners: Sequence[Runner] | None = None
    contexts: ContextSource | None = None
    calibrator: Calibrator | None = None
    sandbox: Sandbox | None = None
    model_host: ModelHost | None = None
    """A host that outlives the engine, because it takes seconds to start."""
    throw_away: bool = False
    """The home is temporary, so commits do not wait for the disk (SQLite's `synchronous=OFF`)."""
    unreachable: bool = False
    """No control socket, no watcher of the stop file, no notifications."""
    lenient: bool = False
    """With invalid settings, the engine runs with the defaults."""
