"""The screens of the console by name; all but the first are imported when they are gone to."""

from __future__ import annotations

from collections.abc import Callable

from textual.screen import Screen

from clawpy_console.screens.mission.screen import MissionScreen


def _work() -> Screen[None]:
    from clawpy_console.screens.work.screen import WorkScreen

    return WorkScreen()


def _hierarchy() -> Screen[None]:
    from clawpy_console.screens.hierarchy.screen import HierarchyScreen

    return HierarchyScreen()


def _memory() -> Screen[None]:
    from clawpy_console.screens.memory.screen import MemoryScreen

    return MemoryScreen()


def _learning() -> Screen[None]:
    from clawpy_console.screens.learning.screen import LearningScreen

    return LearningScreen()


def _safety() -> Screen[None]:
    from clawpy_console.screens.safety.screen import SafetyScreen

    return SafetyScreen()


def _insights() -> Screen[None]:
    from clawpy_console.screens.insights.screen import InsightsScreen

    return InsightsScreen()


FIRST = "mission"
"""The screen of a start."""

MODES: dict[str, str | Callable[[], Screen[None]]] = {
    FIRST: MissionScreen, "work": _work, "hierarchy": _hierarchy, "memory": _memory, "learning": _learning,
    "safety": _safety, "insights": _insights,
}  # fmt: skip
