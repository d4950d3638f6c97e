"""Which text belongs to which verb."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clawpy_console.cli.printing.agents import agents, bubbles, guidance, permissions, profile, tasks
from clawpy_console.cli.printing.candidates import candidates
from clawpy_console.cli.printing.cards import cards, lap, muted, unmuted, work
from clawpy_console.cli.printing.learnings import learnings
from clawpy_console.cli.printing.memory import drafts, forget, recall, remember
from clawpy_console.cli.printing.metrics import export, metrics, train
from clawpy_console.cli.printing.notifications import notify
from clawpy_console.cli.printing.settings import check, config, doctor, key
from clawpy_console.cli.printing.simulation import simulation
from clawpy_console.cli.printing.state import dnd, resume, status, stop
from clawpy_console.cli.printing.style import Document, Lines, bad, clean, dim, plain
from clawpy_console.cli.printing.xray import replied, xray
from engine.values import Refusal


def render(verb: str, document: Document, action: str | None = None, *, colour: bool = False) -> str:
    """The text for the document of a verb, or of one of its actions. Card, session and changes are what is printed of
    most of them."""
    printer = RENDER.get(f"{verb} {action}") or RENDER.get(verb, lap)
    text = "\n".join(printer(clean(document))) or EMPTY.get(verb, "")
    return text if colour else plain(text)


def refusal(error: Refusal, *, colour: bool) -> str:
    """What was not done, why, and how to mend it."""
    text = bad("clawpy: ") + clean(error.message)
    text += "\n        " + dim(clean(error.fix)) if error.fix else ""
    return text if colour else plain(text)


RENDER: Mapping[str, Callable[[Document], Lines]] = {
    "predict": cards,
    "cards": cards,
    "propose": cards,
    "muted": muted,
    "muted unmute": unmuted,
    "work": work,
    "xray": xray,
    "reply": replied,
    "status": status,
    "resume": resume,
    "stop": stop,
    "dnd": dnd,
    "agents": agents,
    "guidance": guidance,
    "profile": profile,
    "bubbles": bubbles,
    "learnings": learnings,
    "permissions": permissions,
    "tasks": tasks,
    "config": config,
    "key": key,
    "notify": notify,
    "token": lambda document: iter([document["token"]]),
    "remember": remember,
    "recall": recall,
    "candidates": candidates,
    "drafts": drafts,
    "forget": forget,
    "export": export,
    "metrics": metrics,
    "train": train,
    "check": check,
    "doctor": doctor,
    "simulate": simulation,
}

EMPTY = {
    "muted": "Nothing is muted.",
    "bubbles": "No findings yet.",
    "permissions": "No permission requests.",
    "tasks": "No tasks.",
    "recall": "Nothing found.",
    "drafts": "No drafts. They are made at night.",
}
"""What is said where there is nothing to list."""
