"""Which text belongs to which verb."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from clawpy_console.cli.printing.agents import agents, bubbles, guidance, permissions, profile, tasks
from clawpy_console.cli.printing.candidates import candidates
from clawpy_console.cli.printing.cards import cards, lap, muted, work
from clawpy_console.cli.printing.learnings import learnings
from clawpy_console.cli.printing.memory import drafts, forget, recall, remember
from clawpy_console.cli.printing.metrics import export, metrics, train
from clawpy_console.cli.printing.notifications import notify
from clawpy_console.cli.printing.settings import check, config, doctor, key
from clawpy_console.cli.printing.simulation import simulation
from clawpy_console.cli.printing.state import dnd, resume, status, stop
from clawpy_console.cli.printing.style import Document, Style, clean
from clawpy_console.cli.printing.xray import replied, xray
from engine.values import Refusal


def render(verb: str, document: Document, options: Mapping[str, Any], style: Style) -> str:
    """The text for a verb's document."""
    return RENDER[verb](document, options, style)


def refusal(error: Refusal, style: Style) -> str:
    """What was not done, why, and how to mend it."""
    lines = [style.bad("clawpy: ") + clean(error.message)]
    if error.fix:
        lines.append("        " + style.dim(clean(error.fix)))
    return "\n".join(lines)


RENDER: Mapping[str, Callable[[Document, Mapping[str, Any], Style], str]] = {
    "predict": cards,
    "cards": cards,
    "propose": cards,
    "approve": lap,
    "dismiss": lap,
    "muted": muted,
    "snooze": lap,
    "undo": lap,
    "land": lap,
    "comment": lap,
    "branch": lap,
    "discard": lap,
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
    "token": lambda document, options, style: str(document["token"]),
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
