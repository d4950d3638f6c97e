"""Sessions of the stand-in engine, with their permissions, calls of models and changes."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

from engine.model import (
    ChangeSet,
    ChangeState,
    DiffComment,
    FileDiff,
    LandPreview,
    ModelCall,
    PermissionAnswer,
    PermissionRequest,
    PromptPart,
    SessionView,
    TranscriptLine,
)
from tests.console.stand_in_data import HUNKS, StandInService, read_sessions, read_transcript, read_values


class StandInSessions(StandInService):
    """The service `sessions`."""

    def fill(self):
        self.all = read_sessions()
        self.sandbox = SimpleNamespace(
            confines=True, describe=lambda network: "bubblewrap: read-only system, no network"
        )
        self.transcripts = {session.id: read_transcript(session.id) for session in self.all}
        self.unfinished: dict[str, TranscriptLine] = {}

    def list_newest(self, *, agent: str | None = None, limit: int = 50) -> list[SessionView]:
        return [item for item in self.all if agent in (None, item.agent)][:limit]

    def read_transcript(self, id: str, *, after: int = 0, limit: int = 2000) -> list[TranscriptLine]:
        return self.transcripts.get(id, [])[after : after + limit]

    def read_unfinished_line(self, id: str) -> TranscriptLine | None:
        return self.unfinished.get(id)

    def stop(self, id: str, reason: str):
        self.record_call("stop_session", id)

    def reply(self, id: str, text: str):
        self.record_call("reply", id, text)


class StandInPermissions(StandInService):
    """The service `permissions`: requests of agents that wait."""

    def fill(self):
        self.all: list[PermissionRequest] = []

    def list_waiting(self) -> list[PermissionRequest]:
        return list(self.all)

    def answer(self, id: str, answer: PermissionAnswer):
        self.record_call("answer", id, str(answer))
        self.all = [item for item in self.all if item.id != id]


class StandInCalls(StandInService):
    """The service `calls`: calls of models with their prompts."""

    def fill(self):
        self.all: dict[str, list[ModelCall]] = {}

    def list_for_session(self, id: str) -> list[ModelCall]:
        return self.all.get(id, [])

    def read_prompt(self, id: str) -> tuple[PromptPart, ...]:
        parts = read_values(PromptPart, "prompt_parts")
        return tuple(parts[:3] if id.endswith("1") else parts)

    def find_calls_with_memory(self, id: str) -> list[ModelCall]:
        return read_values(ModelCall, "model_calls")[:1] if id.endswith(("1", "3")) else []

    def read_reply(self, id: str) -> str:
        return "I look at the cart first." if id.endswith("1") else ""


class StandInChanges(StandInService):
    """The service `changes`. Only the first change set changes."""

    def fill(self):
        self.all = read_values(ChangeSet, "change_sets")
        self.comments = StandInChangeComments(self)

    def list_newest(self, *, limit: int = 50) -> list[ChangeSet]:
        return self.all[:limit]

    def read_diff(self, id: str) -> list[Any]:
        return [FileDiff(file.path, file.status, "", binary=False, hunks=HUNKS) for file in self.all[0].files]

    def _set(self, id: str, state: ChangeState, **fields: Any) -> ChangeSet:
        """Give a change set this state and these fields, and note its id under the name of the state."""
        self.record_call(state.value, id)
        self.all = [dataclasses.replace(item, state=state, **fields) if item.id == id else item for item in self.all]
        return self.all[0]

    def preview_land(self, id: str, only: Any = ()) -> Any:
        return LandPreview(clean=True, files=len(only) or 3)

    def land(self, id: str, only: Any = ()) -> ChangeSet:
        if only:
            self.record_call("landed part", *((item.path, item.hunks) for item in only))
            return self._set(id, ChangeState.WAITING, landed=len(only), landings=1)
        return self._set(id, ChangeState.LANDED, landed=3, landings=1)

    def branch(self, id: str) -> ChangeSet:
        return self._set(id, ChangeState.BRANCHED, branch="clawpy/sess_000000000002")

    def discard(self, id: str) -> ChangeSet:
        return self._set(id, ChangeState.DISCARDED)

    def undo(self, id: str) -> ChangeSet:
        return self._set(id, ChangeState.UNDONE, landed=0, landings=0)


class StandInChangeComments:
    """The comments of the first change set, of which each new one replaces the others."""

    def __init__(self, changes: StandInChanges):
        self._changes = changes

    def add(self, id: str, path: str, line: int, text: str, *, old: bool = False) -> ChangeSet:
        comment = DiffComment(1, path, line, "quoted", text, "2026-01-05T09:30:00+00:00", old)
        return self._changes._set(id, ChangeState.WAITING, comments=(comment,))

    def remove(self, id: str, number: int) -> ChangeSet:
        return self._changes._set(id, ChangeState.WAITING, comments=())

    def make_unsent_message(self, id: str) -> tuple[str, tuple[int, ...]]:
        comments = self._changes.all[0].comments
        return "\n".join(comment.text for comment in comments), tuple(comment.number for comment in comments)

    def mark_sent(self, id: str, numbers: Any) -> ChangeSet:
        comments = (
            dataclasses.replace(comment, sent="2026-01-05T09:31:00+00:00") if comment.number in numbers else comment
            for comment in self._changes.all[0].comments
        )
        return self._changes._set(id, ChangeState.WAITING, comments=tuple(comments))
