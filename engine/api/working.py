"""The verbs of sessions and what they changed: work, land, branch, discard (SPEC 3.9, 9.8)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from engine.api import wire
from engine.api.arguments import Arguments
from engine.api.find import Found, find
from engine.api.wire import Document
from engine.model import ChangeState, FilePart, Refusal, SessionState

if TYPE_CHECKING:
    from engine.engine import Engine


TAIL = 40
"""So many lines of a transcript `work ID` shows unless asked for another number."""


def work(engine: Engine, arguments: Arguments) -> Document:
    """Sessions and what waits to be landed; with an id one of them, with the end of its transcript.

    Of workspaces that were not asked for, `elsewhere` counts the sessions, by workspace.
    """
    wanted = arguments.maybe("id")
    if wanted is None:
        workspaces = arguments.texts("workspaces")
        limit = int(arguments.number("limit", 20, least=1, most=1000))
        known = engine.sessions.list(limit=1000 if workspaces else limit)
        sessions = [one for one in known if not workspaces or one.workspace in workspaces][:limit]
        elsewhere = Counter(one.workspace for one in known if workspaces and one.workspace not in workspaces)
        changes = [
            one
            for one in engine.changes.list(state=ChangeState.WAITING, limit=1000 if workspaces else limit)
            if not workspaces or one.workspace in workspaces
        ][:limit]
        return {
            "sessions": [wire.session(one) for one in sessions],
            "changeSets": [wire.change_set(one) for one in changes],
            "elsewhere": dict(elsewhere.most_common()),
        }
    found = _named(engine, wanted)
    if arguments.flag("shown") and found.card is not None:
        engine.cards.look_at(found.card.id)
    document = with_transcript(engine, found, int(arguments.number("lines", TAIL, least=0, most=2000)))
    if arguments.flag("diff") and found.change_set is not None:
        document["diff"] = [
            {
                "path": file.path,
                "status": file.status,
                "oldPath": file.old_path or "",
                "binary": file.binary,
                "hunks": file.hunks,
                "landedHunks": list(file.landed),
            }
            for file in engine.changes.diff(found.change_set.id)
        ]
    return document


def land(engine: Engine, arguments: Arguments) -> Document:
    """Bring a change set into the working tree, or `only` some of its files, or of these some hunks."""
    found = _named(engine, arguments.needed("id"))
    engine.changes.land(found.change_set_id, [_part(one) for one in arguments.items("only")])
    return shown(find(engine, found.change_set_id))


def branch(engine: Engine, arguments: Arguments) -> Document:
    """Commit a change set onto a branch of its own."""
    found = _named(engine, arguments.needed("id"))
    engine.changes.branch(found.change_set_id)
    return shown(find(engine, found.change_set_id))


def discard(engine: Engine, arguments: Arguments) -> Document:
    """Throw a change set away; of what was interrupted and left none, acknowledge the interruption."""
    found = _named(engine, arguments.needed("id"))
    if found.session is not None and found.session.state is SessionState.INTERRUPTED:
        engine.acknowledge(found.session.id)
        if found.change_set is None:
            return shown(found)
    engine.changes.discard(found.change_set_id)
    engine.cards.aftermath.catch_up()  # a verb's engine makes no cycle, which would count it
    return shown(find(engine, found.change_set_id))


def comment(engine: Engine, arguments: Arguments) -> Document:
    """Comment on a line of a change set, remove a comment, or send all that were not sent to the agent that made it, as
    a card that continues its session; without any of these, its comments."""
    found = _named(engine, arguments.needed("id"))
    changes, id = engine.changes, found.change_set_id
    path, text = arguments.maybe("file"), arguments.maybe("text")
    if path is not None and text is not None:
        line = int(arguments.number("line", 0, least=0, most=10_000_000))
        changes.comment(id, path, line, text, old=arguments.flag("old"))
    if number := int(arguments.number("remove", 0, least=1, most=1_000_000)):
        changes.remove_comment(id, number)
    document = shown(find(engine, id))
    if arguments.flag("send"):
        session = found.session
        assert session is not None  # it has a change set
        if session.flow is not None:
            raise Refusal(
                "no_agent", f"{session.id} was not made by an agent, so its comments stay as notes", "`clawpy propose`"
            )
        text, numbers = changes.unsent_comments(id)
        document["continues"] = wire.card(engine.cards.propose(text, workspace=session.workspace, continues=session.id))
        document["changeSet"] = wire.change_set(changes.sent_comments(id, numbers))
    return document


def _part(given: object) -> FilePart:
    """`{"path": "cart.py", "hunks": [1, 3]}`, or the path alone."""
    if isinstance(given, str):
        return FilePart(given)
    path, hunks = (given.get("path"), given.get("hunks") or []) if isinstance(given, dict) else (None, None)
    if not isinstance(path, str) or not isinstance(hunks, list) or not all(type(one) is int for one in hunks):
        raise Refusal("bad_arguments", "only: a path, or a path with hunks", '{"path": "cart.py", "hunks": [1, 3]}')
    return FilePart(path, tuple(hunks))


def _named(engine: Engine, wanted: str) -> Found:
    return find(engine, wanted, see="clawpy work")


def shown(found: Found) -> Document:
    """A card with its session and its change set."""
    return {
        "prediction": None if found.card is None else wire.card(found.card),
        "session": wire.session(found.session),
        "changeSet": wire.change_set(found.change_set),
    }


def with_transcript(engine: Engine, found: Found, lines: int) -> Document:
    """The same, with the last `lines` of its transcript."""
    document = shown(found)
    if found.session is not None and lines:
        after = max(0, found.session.lines - lines)
        transcript = engine.sessions.transcript(found.session.id, after=after, limit=lines)
        document["transcript"] = [wire.line(one) for one in transcript]
    return document
