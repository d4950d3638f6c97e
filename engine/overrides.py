"""Replacements of the outside world, for simulations and for tests of the whole engine.

Each has one real implementation, which `open_engine` uses for None. Nothing else can be replaced: rails, permits,
cards, the Twin, states, schedule, quiet hours and costs are always real.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from engine.execution.runners.model.host_client import ModelHost
from engine.execution.runners.runner import Runner
from engine.execution.sandbox import Sandbox
from engine.frozen import frozen
from engine.prediction.context import WorkspaceContext
from engine.prediction.signals import OurWrite
from engine.prediction.twin import Calibrator


class Contexts(Protocol):
    """Reads workspaces. The real one is `engine.prediction.context_reader.ContextReader`."""

    def read_all(
        self,
        workspaces: Sequence[str],
        *,
        last_input: datetime | None,
        ours: Mapping[str, Sequence[OurWrite]] | None = None,
    ) -> list[WorkspaceContext]:
        """The context of each workspace, in their order."""

    def last_activity(
        self,
        workspaces: Sequence[str],
        *,
        last_input: datetime | None,
        ours: Mapping[str, Sequence[OurWrite]] | None = None,
    ) -> datetime | None:
        """When anyone but us last did anything there; None if nothing is known of it."""


@frozen
class Overrides:
    """Replacements; None means the real thing. `throw_away`: the home is temporary, so commits do not wait for the disk
    (SQLite's `synchronous=OFF`). `model_host` outlives the engine, because it takes seconds to start. `deaf`: no
    control socket, and no watcher of the stop file. `lenient`: with invalid settings it runs on the defaults."""

    runners: Sequence[Runner] | None = None
    contexts: Contexts | None = None
    calibrator: Calibrator | None = None
    sandbox: Sandbox | None = None
    model_host: ModelHost | None = None
    throw_away: bool = False
    deaf: bool = False
    lenient: bool = False
