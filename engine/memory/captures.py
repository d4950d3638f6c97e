"""Layer D, captures (SPEC 4.4): when a session ends, its decisions, facts and corrections are kept with their source.

A row says who said the sentence, in which line of which transcript, and in how many sessions. The sentence also goes
into layer C, where recall finds it. Text of tools and agents enters the memory here. So each row says whether the
operator said it, or whether it is a quote (SPEC 6.8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import ClassVar, NamedTuple

from sqlmodel import Field, Session

from engine.frozen import frozen
from engine.memory import ReadTranscript, WorkReader
from engine.memory.capture_rules import (
    CapturedSentence,
    CaptureKind,
    Speaker,
    capture_sentences,
    digest_sentence,
    find_corrected_id,
    has_label,
)
from engine.model import Capture, Layer, LayerState, NewMemory, SessionView, TranscriptLine, Trust
from engine.storage import Row, ask, load_first, read_all, value_of
from engine.storage.database import Database, Transaction
from engine.storage.ledger import LedgerEntry
from engine.text import hex_hash

ENDING_EVENTS = frozenset({"SessionEnded", "ChangeSetDiscarded"})
"""The events after which the outcome of a session is known: it ended, or its changes were discarded."""

LINES_PER_PAGE = 2_000
"""Lines of a transcript that are read at once."""

MAX_PER_SESSION = 200
"""Maximum number of captures of one session."""

MAX_PER_DAY = 1_000
"""Maximum number of captures of one day that the night reads."""

MAX_CORRECTED = 200
"""Number of the newest captures among which the one is searched that a correction corrects."""

SPEAKERS = {
    "say": Speaker.AGENT,
    "reply": Speaker.OPERATOR,
    "output": Speaker.PROGRAM,
    "note": Speaker.PROGRAM,
}
"""Who speaks in each kind of line of a transcript. Lines of other kinds are not searched."""

Remember = Callable[[Sequence[NewMemory]], object]
"""Remembers in layers C and E. To remember the same again adds nothing."""


class CaptureRow(Row, table=True):
    """One capture. `digest` identifies its words, so that a workspace has them once. `session_id` and `line` say where
    they were said first."""

    __tablename__ = "captures"

    id: str = Field(primary_key=True)
    kind: str
    text: str
    tags: list[str]
    digest: str
    session_id: str
    line: int
    agent: str
    workspace: str
    at: datetime
    seen: int = 1
    last_session: str
    corrects: str = ""
    forgotten: bool = False
    trust: Trust
    approved_at: datetime | None = None

    @property
    def view(self) -> Capture:
        """The row as others see it."""
        return value_of(self, Capture, session=self.session_id, tags=tuple(self.tags))

    TEXT_COLUMNS: ClassVar = ("text", "tags")
    """The columns that forgetting searches."""

    def forget(self, at: datetime) -> None:
        """Leave an empty stub."""
        self.text, self.tags, self.forgotten = "", [], True


class SaidSentence(NamedTuple):
    """A sentence of a transcript that is worth keeping, and the last line of its message."""

    sentence: CapturedSentence
    line: TranscriptLine

    @property
    def speaker(self) -> Speaker:
        """Who said it."""
        return SPEAKERS[self.line.kind]

    @property
    def trust(self) -> Trust:
        """Whether the operator said it, or it is a quote."""
        return Trust.OPERATOR if self.speaker is Speaker.OPERATOR else Trust.QUOTED


@frozen
class Captures:
    """Takes captures out of sessions, and reads them. All methods may be called from any thread."""

    database: Database
    work: WorkReader
    remember: Remember

    def handle(self, entry: LedgerEntry) -> None:
        """A session ended, or its changes were discarded: capture what was said in it, with its outcome. A second call
        changes nothing."""
        self.capture_session(entry.session_id)

    def capture_session(self, session_id: str) -> list[Capture]:
        """Store and remember the captures of a session, and return them; none for an unknown session."""
        view = self.work.find_session(session_id)
        extracted = self.extract(session_id) if view else []
        if view is None or not extracted:
            return []
        captures = self.database.write(lambda tx: [_store_capture(tx, view, said) for said in extracted])
        remembered = [capture for capture in captures if not capture.forgotten]
        if remembered:
            self.remember([_to_memory(capture) for capture in remembered])
        return remembered

    def extract(self, session_id: str) -> list[SaidSentence]:
        """The sentences of a session's transcript that are worth keeping, each once, without those that have anything
        that looks like a secret. If both an agent and the operator said a sentence, it is the operator's."""
        by_digest: dict[str, SaidSentence] = {}
        secrets = tuple(self.work.secrets())
        for lines in _group_into_messages(read_all_lines(self.work.transcript, session_id)):
            speaker = SPEAKERS[lines[-1].kind]
            for sentence in capture_sentences([(line.number, line.text) for line in lines], speaker, secrets):
                previous = by_digest.get(sentence.digest)
                if previous is None and len(by_digest) >= MAX_PER_SESSION and speaker is not Speaker.OPERATOR:
                    continue
                if previous is None or previous.speaker is not Speaker.OPERATOR:
                    by_digest[sentence.digest] = SaidSentence(sentence, lines[-1])
        return list(by_digest.values())

    def read_entries(self, *, words: str = "", before: str | None = None, limit: int = 200) -> list[Capture]:
        """Captures with all `words`, newest first; page on with `before` = the last id."""
        last = self.find_entry(before) if before else None
        clauses = f"""
            WHERE NOT EXISTS (SELECT 1 FROM json_each(:words) WHERE NOT instr(casefold(text), value))
            {"AND (at, id) < (:at, :id)" if last else ""} ORDER BY at DESC, id DESC LIMIT :limit
        """
        folded = words.casefold().split()
        return self._read(clauses, words=folded, at=last and last.at, id=last and last.id, limit=limit)

    def find_entry(self, capture_id: str) -> Capture | None:
        """One capture, None if there is none with this id."""
        with self.database.read() as session:
            row = session.get(CaptureRow, capture_id)
            return None if row is None else row.view

    def read_of_session(self, session_id: str) -> list[Capture]:
        """The captures that were first said in a session, in the order of its lines."""
        return self._read("WHERE session_id = :session AND NOT forgotten ORDER BY line", session=session_id)

    def read_between(self, start: datetime, end: datetime) -> list[Capture]:
        """The captures that were said from `start` until before `end`, oldest first."""
        clauses = "WHERE at >= :start AND at < :end AND NOT forgotten ORDER BY at LIMIT :limit"
        return self._read(clauses, start=start, end=end, limit=MAX_PER_DAY)

    def approve(self, tx: Transaction, workspace: str, text: str) -> None:
        """Mark these words of others as approved by the operator: from now on they may guide (SPEC 6.8)."""
        row = _find_row(tx.session, workspace, digest_sentence(text))
        if row is not None and row.text == text:
            row.approved_at = tx.now

    def describe_layer(self) -> LayerState:
        """The state of layer D (SPEC 9.5)."""
        with self.database.read() as session:
            [(number, newest)] = ask(session, "SELECT count(*), max(at) FROM captures")
        return LayerState(Layer.CAPTURE, number, newest and datetime.fromisoformat(newest), "ready")

    def _read(self, clauses: str, **values: object) -> list[Capture]:
        with self.database.read() as session:
            return [row.view for row in read_all(session, CaptureRow, clauses, values)]


def read_all_lines(transcript: ReadTranscript, session_id: str) -> Iterator[TranscriptLine]:
    """All lines of a session's transcript, which is read page by page."""
    after = 0
    while page := transcript(session_id, after=after, limit=LINES_PER_PAGE):
        yield from page
        after = page[-1].number


def _group_into_messages(lines: Iterable[TranscriptLine]) -> Iterator[list[TranscriptLine]]:
    """Messages: neighbouring lines of one kind. Each line of a program is a message of its own. One without a label is
    left out, because a program may print a hundred thousand lines."""
    block: list[TranscriptLine] = []
    for line in lines:
        speaker = SPEAKERS.get(line.kind)
        if speaker is Speaker.PROGRAM:
            if has_label(line.text):
                yield [line]
            continue
        if block and line.kind != block[-1].kind:
            yield block
            block = []
        if speaker is not None:
            block.append(line)
    if block:
        yield block


def _store_capture(tx: Transaction, view: SessionView, said: SaidSentence) -> Capture:
    """Store a sentence of a session, or count it again if its workspace has it. Returns its capture."""
    captured, line, trust = said.sentence, said.line, said.trust
    tags = [*captured.tags, view.outcome]
    row = _find_row(tx.session, view.workspace, captured.digest)
    if row is None:
        row = CaptureRow(
            id="cap_" + hex_hash(f"{view.workspace}\n{captured.digest}", 12),
            kind=captured.kind.value,
            text=captured.text,
            tags=tags,
            digest=captured.digest,
            session_id=view.id,
            line=captured.line,
            agent=view.agent,
            workspace=view.workspace,
            at=line.at,
            last_session=view.id,
            corrects=_find_corrected_id(tx.session, view.workspace, captured),
            trust=trust,
        )
    elif row.session_id == view.id:
        row.tags = tags  # the outcome of the session may have changed
    if row.last_session != view.id:
        row.seen, row.last_session = row.seen + 1, view.id
        if trust is Trust.OPERATOR and row.trust is Trust.QUOTED and not row.forgotten:
            # The operator's own words take the place of a quote that says the same.
            row.text, row.tags, row.trust, row.approved_at = captured.text, tags, trust, None
            row.session_id, row.line, row.agent, row.at = view.id, captured.line, view.agent, line.at
    tx.session.add(row)
    tx.session.flush()
    return row.view


def _find_row(session: Session, workspace: str, sentence_digest: str) -> CaptureRow | None:
    """The capture of a workspace with the same words."""
    clauses = "WHERE workspace = :workspace AND digest = :digest"
    return load_first(session, CaptureRow, clauses, {"workspace": workspace, "digest": sentence_digest})


def _find_corrected_id(session: Session, workspace: str, captured: CapturedSentence) -> str:
    """The id of the capture that a correction most likely corrects; "" for none, and if it is no correction."""
    if captured.kind is not CaptureKind.CORRECTION:
        return ""
    query = """
        SELECT id, text FROM captures
        WHERE workspace = :workspace AND NOT forgotten ORDER BY at DESC, id DESC LIMIT :limit
    """
    return find_corrected_id(captured.text, ask(session, query, {"workspace": workspace, "limit": MAX_CORRECTED}))


def _to_memory(capture: Capture) -> NewMemory:
    """A capture as it is remembered in layer C."""
    return NewMemory(
        capture.text,
        kind=capture.kind,
        speaker="operator" if capture.trust is Trust.OPERATOR else capture.agent,
        at=capture.at,
        session=capture.session,
        agent=capture.agent,
        workspace=capture.workspace,
        source=capture.source,
        tags=("captured", *capture.tags),
        ref=capture.id,
        trust=capture.trust,
    )
