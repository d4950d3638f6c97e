"""Layer E, the context engine (SPEC 4.5): after each session a summary of at most 120 words, found again by every agent
of the workspace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.memory.capture import Remember, SessionBook
from engine.storage.facts_read import Fact
from engine.values import Capture, ChangeSet, Layer, NewMemory, Refusal, Result, SessionView, sanitise
from engine.values.text import count

MOST_WORDS = 120
"""Words of a summary (SPEC 4.5)."""

LONGEST_WORD = 200
"""Characters of one word; what has no spaces is no word."""

_TASK, _DECISIONS, _FILES = 30, 35, 20
"""Words that parts of the record may take; the outcome has what is left."""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """What is known of a session that is over. `files` are paths that it changed."""

    view: SessionView
    decisions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class Summariser(Protocol):
    """A model that sums a session up."""

    def summarise(self, record: SessionRecord, most_words: int, /) -> str:
        """The summary; "" where none is named, or it gave none: who was asked has told of it."""


class NoSummariser:
    """Where there is no model."""

    def summarise(self, record: SessionRecord, most_words: int, /) -> str:
        return ""


class CaptureBook(Protocol):
    def of_session(self, session_id: str, /) -> Sequence[Capture]: ...


class ChangeBook(Protocol):
    def for_session(self, session_id: str, /) -> ChangeSet | None: ...


class ContextEngine:
    """Sums sessions up when they end."""

    def __init__(
        self,
        sessions: SessionBook,
        captures: CaptureBook,
        changes: ChangeBook,
        remember: Remember,
        *,
        known: Callable[[str], bool],
        summariser: Summariser | None = None,
    ) -> None:
        """`known(ref)`: whether something is remembered under that id of ours already."""
        self._sessions = sessions
        self._captures = captures
        self._changes = changes
        self._remember = remember
        self._known = known
        self._summariser = summariser or NoSummariser()

    def handle(self, fact: Fact) -> None:
        """A session ended: remember its summary in layer E, once."""
        if self._known(reference(fact.subject)):
            return
        try:
            view = self._sessions.get(fact.subject)
        except Refusal:
            return
        if view.result is Result.CANNOT_RUN or view.started_at is None:
            return
        record = self.record(view)
        self._remember([as_memory(record, self.summary(record))])

    def record(self, view: SessionView) -> SessionRecord:
        """What is known of a session."""
        change = self._changes.for_session(view.id)
        said = [one.text for one in self._captures.of_session(view.id) if one.kind in ("decision", "correction")]
        return SessionRecord(view, tuple(said), tuple(file.path for file in change.files) if change else ())

    def summary(self, record: SessionRecord) -> str:
        """At most 120 words: the model's, or, where it gives none, made of the record."""
        return clipped(self._summariser.summarise(record, MOST_WORDS), MOST_WORDS) or from_record(record)


def reference(session_id: str) -> str:
    """Our id of a session's summary."""
    return f"summary:{session_id}"


def as_memory(record: SessionRecord, summary: str) -> NewMemory:
    """The summary as it is remembered."""
    view = record.view
    return NewMemory(
        summary,
        layer=Layer.CONTEXT,
        kind="summary",
        speaker=view.agent,
        at=view.ended_at,
        session=view.id,
        agent=view.agent,
        workspace=view.workspace,
        source=view.id,
        tags=("summary", view.state.value),
        ref=reference(view.id),
    )


def from_record(record: SessionRecord) -> str:
    """Task, outcome, decisions and files of a session, at most 120 words. Pure."""
    view = record.view
    task = f"Task: {clipped(view.prompt, _TASK)}."
    decided = f"Decided: {clipped('; '.join(record.decisions), _DECISIONS)}" if record.decisions else ""
    files = f"Files: {_some(record.files, _FILES)}." if record.files else ""
    left = MOST_WORDS - sum(len(part.split()) for part in (task, decided, files)) - 1
    told = view.error or view.summary
    if view.check is not None:
        told = f"{count(view.check.passed, 'test')} passed, {view.check.failed + view.check.errors} failed. {told}"
    outcome = f"Outcome: {clipped(f'{view.state.value}. {told}', left)}"
    return clipped(" ".join(part for part in (task, outcome, decided, files) if part), MOST_WORDS)


def clipped(text: str, most: int) -> str:
    """`text` in one line with at most `most` words, an ellipsis where it was cut."""
    words = [word if len(word) <= LONGEST_WORD else word[: LONGEST_WORD - 1] + "…" for word in sanitise(text).split()]
    if len(words) <= most:
        return " ".join(words)
    return " ".join(words[:most]).rstrip(".,;:") + "…"


def _some(files: Sequence[str], most: int) -> str:
    names = ["".join(name.split()) for name in files]
    if len(names) <= most - 2:
        return ", ".join(names)
    return ", ".join(names[: most - 3]) + f" and {len(names) - most + 3} more"
