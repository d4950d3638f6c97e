"""Engines that do nothing by themselves."""

from pathlib import Path
from typing import Any

from engine import Engine, Home
from engine.clock import Clock
from engine.randomness import Randomness
from engine.services import Overrides


def open_idle_engine(
    home: Home,
    *workspaces: Path | str,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
    **overrides: Any,
) -> Engine:
    """Open an engine on these folders whose schedule stands still; `overrides` are the fields of `Overrides`."""
    from engine import open_engine  # late: most tests need no whole engine

    return open_engine(
        home,
        workspaces=list(map(str, workspaces)),
        clock=clock,
        randomness=randomness,
        start_schedule=False,
        overrides=Overrides(**overrides),
    )
