"""What agents of the operator's that are already at work may do: note something, suggest a card (SPEC 10.4).

Under their own name, and never as the operator: it is no sign that he is there, and a card of theirs waits for him like
any other.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from engine.api import wire
from engine.api.arguments import Arguments
from engine.api.wire import Document
from engine.model import NewMemory, Refusal, sanitise

if TYPE_CHECKING:
    from engine.engine import Engine

KINDS = ("fact", "decision", "correction", "note")
"""What can be noted. A note is for the work of the day and kept for one; the others until they are forgotten."""

_AUTHORITIES = """
    admin administrator alfred api automation autonomy boss butler ceo chief clawpy clawpyconsole console customer
    engine gateway human lucius me moderator myself nightly operator owner root safety self system theoperator theowner
    theuser twin user you
"""
AUTHORITIES = frozenset(_AUTHORITIES.split())
"""Who an agent may not pass for: the operator, the engine, and those who speak in their name."""

_DIGITS = str.maketrans("013457$@|!", "oieastsaii")

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


def agent_name(told: str) -> str:
    """The name an agent goes by, in a word that fits a line; what it says of itself is only that.

    Raises `Refusal`: `bad_arguments` for none, `not_its_name` for one that carries authority, however it is spelt.
    """
    from engine.safety.content.normalise import fold  # it brings the whole filter along

    name = " ".join(sanitise(told).split())[:LONGEST_NAME]
    if not name:
        raise Refusal("bad_arguments", "an agent needs a name", "for example claude-code")
    plain = unicodedata.normalize("NFKD", fold(name)).casefold()
    letters = "".join(filter(str.isalnum, plain))
    spoken = "".join(filter(str.isalnum, plain.translate(_DIGITS)))
    bare = {letters, letters.rstrip("0123456789"), spoken, spoken.replace("i", "l")}
    if bare & AUTHORITIES or not any(one.isalnum() for one in name):
        raise Refusal("not_its_name", f"no agent may be named {name!r}", "use its own name, for example claude-code")
    return name


def _name(arguments: Arguments) -> str:
    return agent_name(arguments.needed("by"))
