"""A few lines above the stack: what happened while nobody looked, and the three optional steps of a first run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from textual.content import Content

from clawpy_console import agent_setup, words
from clawpy_console.keys import shown_key
from clawpy_console.screens.mission.since import since_fields
from clawpy_console.widgets.reflowing_text import render_fields
from engine import document

if TYPE_CHECKING:
    from engine import Engine

MAX_WIDTH = 200
"""Cells after which a line of what happened goes on below."""


def first_run(engine: Engine, keymap: Mapping[str, str]) -> list[Content]:
    """The first-run lines: what to press and what happens then, optional steps. Escape hides them for good; while no
    agent is found each fits 75 cells. Blocking: call it in a thread."""

    def key(action: str) -> tuple[str, str]:
        return (shown_key(action, keymap), "$accent")

    served = engine.agent_setup.served()
    models = [] if served else list(engine.agent_setup.local_models().ids)
    return [
        Content.assemble(
            ("Each card is useful work: ", "bold $ink"), key("stack.approve"), " runs it, ",
            key("stack.dismiss"), " dismisses it, ", key("stack.snooze"), " snoozes it",
        ),
        Content.assemble(
            "Changes wait as a diff: ", key("app.work"), " shows them, ",
            key("work.land"), " lands them, ", key("work.undo"), " undoes that",
        ),
        Content.assemble(
            key("mission.own"), " writes your own prompt; ",
            agent_setup.line(served, engine.agent_setup.find_agents(), models, shown_key("app.hire", keymap)),
        ),
        Content.assemble("--workspace DIR adds folders · nothing runs by itself · ", ("esc", "$accent"), " hides this"),
    ]  # fmt: skip


def since_then(engine: Engine, at: datetime, now: datetime) -> list[Content]:
    """What happened since `at`; nothing when nothing did. Blocking."""
    if not (lines := render_fields(since_fields(document(engine.since(at))), MAX_WIDTH)):
        return []
    return [Content.styled(f"While you were away, {words.span(now - at)}", "bold $accent"), *lines]
