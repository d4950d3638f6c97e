"""What memory reads of sessions and tasks. The composition root passes the functions in, since those services are above
memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.frozen import frozen
from engine.model import ChangeSet, SessionView, Task, TranscriptLine
from engine.storage.ledger import LedgerEntry

ENDED = frozenset({"SessionEnded", "ChangeSetDiscarded"})
"""The facts after which a session says how it went: at its end, and when its changes were thrown away."""


@frozen
class Work:
    """What memory asks of sessions (`get` raises `Refusal` `unknown_session`), of tasks (`task` raises `Refusal`
    `unknown_task`), and of what sessions changed."""

    get: Callable[[str], SessionView]
    transcript: Callable[..., Sequence[TranscriptLine]]
    """A page of a session's transcript: `(session_id, after=number, limit=lines)`."""
    continues: Callable[[str], str]
    """The session that one goes on with, "" for none."""
    running: Callable[[], Sequence[SessionView]]
    task: Callable[[str], Task]
    needing: Callable[[str], Sequence[Task]]
    """Tasks of the board that need this one done first."""
    change: Callable[[str], ChangeSet | None]
    """What a session changed."""


def session_of(fact: LedgerEntry) -> str:
    """The session that a fact of `ENDED` tells of."""
    return str(fact.payload.get("session_id") or fact.subject)
