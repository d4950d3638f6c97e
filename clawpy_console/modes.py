"""The screens of the console by name; all but the first are imported when they are gone to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import cast

from textual.screen import Screen

from clawpy_console.screens.mission.screen import MissionScreen

FIRST = "mission"
"""The screen of a start."""


def _screen(mode: str) -> Screen[None]:
    module = import_module(f"clawpy_console.screens.{mode}.screen")
    return cast(Screen[None], getattr(module, f"{mode.capitalize()}Screen")())


MODES: dict[str, str | Callable[[], Screen[None]]] = {
    FIRST: MissionScreen,
    **{mode: partial(_screen, mode) for mode in ("work", "hierarchy", "memory", "learning", "safety", "insights")},
}
