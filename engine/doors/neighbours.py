"""What agents of the operator's that are already at work may do: note something, suggest a card (SPEC 10.4).

Under their own name, and never as the operator: it is no sign that he is there, and a card of theirs waits for him like
any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.doors import wire
from engine.doors.arguments import Arguments
from engine.doors.wire import Document
from engine.values import NewMemory, Refusal, sanitise

if TYPE_CHECKING:
    from engine.engine import Engine

KINDS = ("fact", "decision", "correction")
"""What can be noted; all of it is kept until it is forgotten."""

LONGEST_NAME = 60
LONGEST_REASON = 500


def note(engine: Engine, arguments: Arguments) -> Document:
    """Remember `text` as said `by` an agent; what looks like a secret is cut out of it."""
    by = _name(arguments)
    kind = arguments.choice("kind", KINDS, KINDS[0])
    one = NewMemory(
        arguments.needed("text"), kind=kind, speaker=by, workspace=arguments.text("workspace"), source=f"mcp:{by}"
    )
    done = engine.memory.add([one])
    return {"id": done.ids[0], "new": bool(done.new), "by": by}


def suggest(engine: Engine, arguments: Arguments) -> Document:
    """A card with `text`, suggested `by` an agent for a reason; one that waits already is answered as it is."""
    by, text = _name(arguments), arguments.needed("text")
    workspace, channel = arguments.needed("workspace"), arguments.maybe("channel")
    pending = engine.cards.pending(include_snoozed=True)
    words = sanitise(text).strip()
    for one in pending:
        if (one.assignment.prompt, one.assignment.workspace) == (words, workspace):
            return {"predictions": [wire.card(one)], "new": False}
    why = " ".join(sanitise(arguments.text("reason")).split())[:LONGEST_REASON]
    reasoning = f"suggested by {by}" + (f": {why}" if why else "")
    made = engine.cards.propose(text, workspace=workspace, channel=channel, reasoning=reasoning)
    return {"predictions": [wire.card(made)], "new": True}


def _name(arguments: Arguments) -> str:
    """Who it is, in a word that fits a line; what it says of itself is only that."""
    name = " ".join(sanitise(arguments.needed("by")).split())[:LONGEST_NAME]
    if not name:
        raise Refusal("bad_arguments", "the argument 'by' must be a name", "for instance claude-code")
    return name
