"""Made-up sessions, transcripts and change sets, which memory reads and summarises."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.events.work import SessionEnded
from engine.model import (
    ChangeSet,
    ChangeState,
    FileChange,
    NewMemory,
    Refusal,
    SessionState,
    SessionView,
    Task,
    TranscriptLine,
)
from engine.storage.database import Database
from tests.support import MONDAY_MORNING as NOW
from tests.support.sessions import make_session_view


def make_view(name: str = "session_1", **fields: Any) -> SessionView:
    """A session that succeeded; `fields` replace some of its fields."""
    succeeded = {
        "id": name, "prompt": "Fix the parser", "workspace": "/home/me/shop", "cwd": "/home/me/shop",
        "agent": "backend_builder", "state": SessionState.SUCCEEDED, "ended_at": NOW,
        "summary": "The parser reads dates again.",
    }  # fmt: skip
    return make_session_view(**succeeded | fields)


@dataclass
class StandInWork:
    """Sessions, their transcripts and changes, as `engine.memory.WorkReader` has them, without tasks that are read by
    their ids; all that is remembered."""

    views: dict[str, SessionView] = field(default_factory=dict)
    lines: dict[str, list[TranscriptLine]] = field(default_factory=dict)
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    remembered: dict[str, NewMemory] = field(default_factory=dict)
    secret_values: tuple[str, ...] = ()
    """Values that nothing remembered may contain."""

    def add(self, session_view: SessionView, *lines: tuple[str, str]) -> SessionView:
        self.views[session_view.id] = session_view
        self.lines[session_view.id] = [
            TranscriptLine(number, NOW, kind, text) for number, (kind, text) in enumerate(lines, 1)
        ]
        return session_view

    def session(self, session_id: str) -> SessionView:
        try:
            return self.views[session_id]
        except KeyError:
            raise Refusal("unknown_session", f"there is no session {session_id}") from None

    def find_session(self, session_id: str) -> SessionView | None:
        return self.views.get(session_id)

    def transcript(self, session_id: str, *, after: int = 0, limit: int = 2_000) -> Sequence[TranscriptLine]:
        return [line for line in self.lines[session_id] if line.number > after][:limit]

    def continued_session(self, session_id: str) -> str:
        return ""

    def dependent_tasks(self, task_id: str) -> Sequence[Task]:
        return ()

    def change_set(self, session_id: str) -> ChangeSet | None:
        files = self.files.get(session_id)
        if files is None:
            return None
        changes = tuple(FileChange(path, "modified", 1, 1) for path in files)
        return ChangeSet("change_1", session_id, "pred_1", "/home/me/shop", ChangeState.LANDED, changes, "x", NOW)

    def remember(self, items: Sequence[NewMemory]) -> object:
        for item in items:
            self.remembered[item.ref] = item
        return None

    def secrets(self) -> Sequence[str]:
        return self.secret_values

    def running_sessions(self) -> Sequence[SessionView]:
        return [session for session in self.views.values() if not session.state.is_over]


def record_end(database: Database, session_view: SessionView):
    """Record in the ledger that a session ended."""
    event = SessionEnded(
        subject=session_view.id,
        workspace=session_view.workspace,
        prediction_id=session_view.prediction_id,
        state=session_view.state.value,
        result=session_view.result or "",
        summary=session_view.summary,
        cost=session_view.cost,
    )
    database.write(lambda tx: tx.record(event))
