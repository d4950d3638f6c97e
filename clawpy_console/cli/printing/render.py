"""Finds the function that prints the document of a verb."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clawpy_console.cli.printing.agents import agents, bubbles, guidance, permissions, profile, tasks
from clawpy_console.cli.printing.cards import card_with_session, cards, muted, reply, unmuted, work, xray
from clawpy_console.cli.printing.engine import (
    check,
    config,
    dnd,
    doctor,
    export,
    key,
    metrics,
    notify,
    resume,
    simulate,
    status,
    stop,
    token,
    train,
)
from clawpy_console.cli.printing.learning import candidates, drafts, forget, learnings, recall, remember
from clawpy_console.cli.printing.style import Document, Lines, bad, clean, dim, plain
from engine.model import Refusal


def render(verb: str, document: Document, action: str | None = None, *, colour: bool = False) -> str:
    """The text for the document of a verb or of one of its actions; by default its card, session and changes."""
    printer = RENDER.get(f"{verb} {action}") or RENDER.get(verb, card_with_session)
    text = "\n".join(printer(clean(document))) or EMPTY.get(verb, "")
    return text if colour else plain(text)


def refusal(error: Refusal, *, colour: bool) -> str:
    """The text of a refusal: what was not done, why, and how to fix it."""
    text = bad("clawpy: ") + clean(error.message)
    text += "\n        " + dim(clean(error.fix)) if error.fix else ""
    return text if colour else plain(text)


NAMED = (
    agents, bubbles, candidates, cards, check, config, dnd, doctor, drafts, export, forget, guidance, key, learnings,
    metrics, muted, notify, permissions, profile, recall, remember, reply, resume, simulate, status, stop, tasks, token,
    train, work, xray,
)  # fmt: skip
RENDER: Mapping[str, Callable[[Document], Lines]] = {item.__name__: item for item in NAMED} | {
    "predict": cards,
    "propose": cards,
    "muted unmute": unmuted,
}
"""The function for each verb: the one of its name, with these exceptions."""

EMPTY = {
    "muted": "Nothing is muted.",
    "bubbles": "No findings yet.",
    "permissions": "No permission requests.",
    "tasks": "No tasks.",
    "recall": "Nothing found.",
    "drafts": "No drafts. They are made at night.",
}
"""What is printed when there is nothing to list."""
