"""Documents of verbs as text: aligned, coloured in a terminal only, plain in a pipe (SPEC 9.7, 9.8).

One module for each group of verbs; `PRINTERS` names the function for each verb. Colour never carries meaning alone, and
text from outside loses its control characters here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clawpy_console.cli.printing import cards, engine, learning
from clawpy_console.cli.printing.style import Document, Lines, bad, clean, dim, strip_colours
from engine.model import Refusal

PRINTERS: Mapping[str, Callable[[Document], Lines]] = {
    "agents": learning.agents,
    "bubbles": learning.bubbles,
    "candidates": learning.candidates,
    "cards": cards.cards,
    "check": engine.check,
    "config": engine.config,
    "discard": cards.discard,
    "dnd": engine.dnd,
    "doctor": engine.doctor,
    "drafts": learning.drafts,
    "export": engine.export,
    "forget": learning.forget,
    "guidance": learning.guidance,
    "key": engine.key,
    "land": cards.land,
    "learnings": learning.learnings,
    "metrics": engine.metrics,
    "muted": cards.muted,
    "muted unmute": cards.unmuted,
    "notify": engine.notify,
    "permissions": cards.permissions,
    "predict": cards.cards,
    "profile": learning.profile,
    "propose": cards.cards,
    "recall": learning.recall,
    "remember": learning.remember,
    "reply": cards.reply,
    "resume": engine.resume,
    "simulate": engine.simulate,
    "status": engine.status,
    "stop": engine.stop,
    "tasks": cards.tasks,
    "token": engine.token,
    "train": engine.train,
    "work": cards.work,
    "xray": cards.xray,
}
"""The function that prints the document of a verb, or of one of its actions."""

EMPTY_TEXTS = {
    "muted": "Nothing is muted.",
    "bubbles": "No findings yet.",
    "permissions": "No permission requests.",
    "tasks": "No tasks.",
    "recall": "Nothing found.",
    "drafts": "No drafts. They are made at night.",
}
"""Printed when there is nothing to list, by verb."""


def render_document(verb: str, document: Document, action: str | None = None, *, colour: bool = False) -> str:
    """The text for the document of a verb or of one of its actions; by default its card, session and changes."""
    printer = PRINTERS.get(f"{verb} {action}") or PRINTERS.get(verb, cards.card_with_session)
    text = "\n".join(printer(clean(document))) or EMPTY_TEXTS.get(verb, "")
    return text if colour else strip_colours(text)


def render_refusal(refusal: Refusal, *, colour: bool) -> str:
    """The text of a refusal: what was not done, why, and how to fix it."""
    text = bad("clawpy: ") + clean(refusal.message)
    text += "\n        " + dim(clean(refusal.fix)) if refusal.fix else ""
    return text if colour else strip_colours(text)
