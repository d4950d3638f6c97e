"""Documents of verbs as text: aligned, coloured in a terminal only, plain in a pipe (SPEC 9.7, 9.8).

One module for each group of verbs; `PRINTERS` names the function for each verb. Colour never carries meaning alone, and
text from outside loses its control characters here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clawpy_console.cli.printing import learning, system, work
from clawpy_console.cli.printing.style import Lines, bad, clean, dim, strip_colours
from clawpy_console.fields import Document
from engine.model import Refusal

PRINTERS: Mapping[str, Callable[[Document], Lines]] = {
    "agents": learning.format_agents,
    "branch": work.format_branch,
    "bubbles": learning.format_bubbles,
    "candidates": learning.format_candidates,
    "cards": work.format_cards,
    "check": system.format_check,
    "config": system.format_config,
    "discard": work.format_discard,
    "dnd": system.format_dnd,
    "doctor": system.format_doctor,
    "drafts": learning.format_drafts,
    "export": learning.format_export,
    "forget": learning.format_forget,
    "guidance": learning.format_guidance,
    "key": system.format_key,
    "land": work.format_land,
    "learnings": learning.format_learnings,
    "metrics": learning.format_metrics,
    "muted": work.format_muted,
    "muted unmute": work.format_unmuted,
    "notify": system.format_notify,
    "permissions": work.format_permissions,
    "predict": work.format_cards,
    "profile": learning.format_profile,
    "propose": work.format_cards,
    "recall": learning.format_recall,
    "remember": learning.format_remember,
    "reply": work.format_reply,
    "resume": system.format_resume,
    "simulate": system.format_simulate,
    "status": system.format_status,
    "stop": system.format_stop,
    "tasks": work.format_tasks,
    "token": system.format_token,
    "train": learning.format_train,
    "undo": work.format_undo,
    "work": work.format_work,
    "xray": work.format_xray,
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
    printer = PRINTERS.get(f"{verb} {action}") or PRINTERS.get(verb, work.format_card_with_session)
    text = "\n".join(printer(clean(document))) or EMPTY_TEXTS.get(verb, "")
    return text if colour else strip_colours(text)


def render_refusal(refusal: Refusal, *, colour: bool) -> str:
    """The text of a refusal: what was not done, why, and how to fix it."""
    text = bad("clawpy: ") + clean(refusal.message)
    text += "\n        " + dim(clean(refusal.fix)) if refusal.fix else ""
    return text if colour else strip_colours(text)
