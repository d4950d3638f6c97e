"""Every verb once, as a function from an engine and arguments to a JSON document (SPEC 9.8).

The command line, the control socket and later the gateway all come through `dispatch`; none has logic of its own.
What is not done raises `Refusal`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.api import (
    adapting,
    asking,
    cards,
    checking,
    conversing,
    deciding,
    guiding,
    holding,
    learning,
    managing,
    measuring,
    neighbours,
    notifying,
    recalling,
    remembering,
    training,
    working,
)
from engine.api.arguments import Arguments
from engine.api.wire import Document
from engine.model import Refusal, sanitise

if TYPE_CHECKING:
    from engine.engine import Engine

Work = Callable[["Engine", Arguments], Document]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: what it does, the arguments it knows, and whether using it means that the operator is there."""

    work: Work
    takes: frozenset[str]
    speaks: bool


def dispatch(engine: Engine, verb: str, arguments: Any) -> Document:
    """Do `verb`. Raises `Refusal`: `unknown_verb`, `bad_arguments`, or whatever the verb refuses."""
    known = VERBS.get(verb) if isinstance(verb, str) else None
    if known is None:
        raise Refusal("unknown_verb", f"there is no verb {sanitise(str(verb))[:40]!r}", "one of " + ", ".join(VERBS))
    read = Arguments(arguments, known=known.takes)
    action = read.text("action") if "action" in known.takes else ""
    if known.speaks and ("action" not in known.takes or action not in ("", "list", "show", "get", "scopes")):
        engine.autonomy.heard(f"clawpy {verb}")
    return known.work(engine, read)


def _verb(work: Work, *takes: str, speaks: bool = False) -> Verb:
    return Verb(work, frozenset(takes), speaks)


VERBS: Mapping[str, Verb] = {
    "predict": _verb(cards.predict, "workspaces", "channel", "snoozed", "shown", speaks=True),
    "cards": _verb(cards.cards, "workspaces", "channel", "snoozed", "all", "limit", "shown"),
    "propose": _verb(cards.propose, "text", "workspace", "channel", "continues", speaks=True),
    "approve": _verb(cards.approve, "id", "edit", "parameters", "wait", "withoutSandbox", speaks=True),
    "dismiss": _verb(cards.dismiss, "id", "reason", speaks=True),
    "muted": _verb(cards.muted, "action", "id", speaks=True),
    "snooze": _verb(cards.snooze, "id", "seconds", speaks=True),
    "undo": _verb(cards.undo, "id", speaks=True),
    "work": _verb(working.work, "id", "workspaces", "limit", "lines", "diff", "shown"),
    "land": _verb(working.land, "id", "only", speaks=True),
    "comment": _verb(working.comment, "id", "file", "line", "text", "old", "remove", "send", speaks=True),
    "branch": _verb(working.branch, "id", speaks=True),
    "discard": _verb(working.discard, "id", speaks=True),
    "xray": _verb(conversing.xray, "id", "call"),
    "reply": _verb(conversing.reply, "id", "text", speaks=True),
    "permissions": _verb(asking.permissions, "action", "id", "session", "all", "limit", speaks=True),
    "status": _verb(holding.status),
    "stop": _verb(holding.stop, "reason"),
    "resume": _verb(holding.resume, "word", speaks=True),
    "dnd": _verb(holding.dnd, "seconds", "off", speaks=True),
    "agents": _verb(
        managing.agents, "action", "id", "reportsTo", "title", "archetype", "domain", "channel", "tier", speaks=True
    ),
    "guidance": _verb(guiding.guidance, "id", "reportsTo"),
    "profile": _verb(guiding.profile, "id", "text", "yes", "undo", speaks=True),
    "learnings": _verb(
        learning.learnings,
        *("action", "workspace", "id", "reason", "scope", "session", "kind", "words", "limit", "judge"),
        speaks=True,
    ),
    "bubbles": _verb(guiding.bubbles, "action", "id", "state", "agent", "limit", speaks=True),
    "tasks": _verb(
        managing.tasks, "action", "id", "title", "channel", "workspace", "needs", "state", "limit", speaks=True
    ),
    "config": _verb(managing.config, "action", "key", "value", speaks=True),
    "remember": _verb(remembering.remember, "lines", "first", "source", "settle"),
    "candidates": _verb(adapting.candidates, "action", "id", "status", "type", "kind", "reason", "limit", speaks=True),
    "drafts": _verb(deciding.drafts, "action", "id", "edit", speaks=True),
    "forget": _verb(deciding.forget, "what", "yes", speaks=True),
    "recall": _verb(recalling.recall, "query", "k", "agent", "workspaces", "lines"),
    "check": _verb(checking.check, "command", "prompt", "lines", "cwd"),
    "export": _verb(training.export, "what", "format", speaks=True),
    "metrics": _verb(measuring.metrics, "days", "workspace"),
    "train": _verb(training.train, "action", "file", speaks=True),
    "note": _verb(neighbours.note, "text", "by", "kind", "workspace"),
    "suggest": _verb(neighbours.suggest, "text", "by", "reason", "workspace", "channel"),
    "notify": _verb(notifying.notify, "action", "surface", speaks=True),
    "key": _verb(checking.key, "action", "name"),
    "doctor": _verb(checking.examine, "workspaces", "online"),
}
