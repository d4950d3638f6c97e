"""ModelCalls of models and turns of agents, with the exact prompt of each, for the X-ray (SPEC 9.6, 1.10).

A conversation is a chain of calls. Each stores only what it sent that the one before it had not: the whole prompt of
a call is its own messages after those of all calls that it follows. Secrets are cut out before anything is stored.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from sqlalchemy import JSON, CheckConstraint, Column, Index, LargeBinary, String, bindparam, cast, literal_column
from sqlmodel import Field, Session, col, func, select

from engine import tokenizer
from engine.events import ModelCallBegan, ModelCallEnded
from engine.execution.prompt_text import without_secrets
from engine.model import (
    ModelCall,
    Prompt,
    PromptPart,
    Randomness,
    Refusal,
    SessionView,
    sanitise,
)
from engine.model.secrets import redact
from engine.storage.database import Database, Transaction
from engine.storage.rows import Row, load_all, select_all, value_of
from engine.storage.types import utc_column

STATES = ("running", "done", "failed", "cancelled", "interrupted")

MAX_CHAIN = 10_000
"""ModelCalls of one conversation that are followed back; a chain that is longer is damaged."""

MAX_RECALLED = 2_000
"""Maximum number of calls that are looked through for those that a memory was in."""

CARRIED = "carried_from"
"""In the provenance of a call that goes on: the call whose prompt it still carries."""

MAX_REPLY = 100_000
"""Characters of an answer that are kept beside its call; the next call's messages have it whole."""


class ModelCallRow(Row, table=True):
    """One call as stored. `messages` is zlib-compressed JSON, see `pack`."""

    __tablename__ = "model_calls"
    __table_args__ = (
        CheckConstraint(
            "state IN ({})".format(", ".join(f"'{state}'" for state in STATES)), name="ck_model_calls_state"
        ),
        CheckConstraint(
            "input_tokens >= 0 AND output_tokens >= 0 AND cost_microusd >= 0", name="ck_model_calls_counts"
        ),
        Index("ix_model_calls_session", "session_id", "started_at"),
        Index("ix_model_calls_state", "state"),
    )

    id: str = Field(primary_key=True)
    session_id: str
    agent: str
    provider: str
    model: str
    run_kind: str
    state: str
    started_at: datetime = Field(sa_column=utc_column())
    ended_at: datetime | None = Field(default=None, sa_column=utc_column(nullable=True))
    input_tokens: int = 0
    output_tokens: int = 0
    cost_microusd: int = 0
    price_known: bool = True
    error: str = ""
    follows: str = ""
    notes: list[str] = Field(sa_column=Column(JSON, nullable=False))
    provenance: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    messages: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    reply: bytes = Field(default=b"", sa_column=Column(LargeBinary, nullable=False))

    @property
    def view(self) -> ModelCall:
        """The row as others see it."""
        return value_of(
            self,
            ModelCall,
            seconds=None if self.ended_at is None else (self.ended_at - self.started_at).total_seconds(),
            cost=self.cost_microusd,
            notes=tuple(self.notes),
            provenance=dict(self.provenance),
        )


class Caller(NamedTuple):
    """Who makes a call where no session does."""

    id: str
    agent: str
    workspace: str


Carried = Callable[[Transaction, SessionView | Caller, str, Mapping[str, Any]], None]
"""Told in the transaction in which a call begins that its prompt has this provenance: who keeps count of what prompts
carried. Quick, and not raising."""


class ModelCalls:
    """Keeps calls; also an observer of sessions. Methods may be called from any thread."""

    def __init__(
        self,
        database: Database,
        randomness: Randomness,
        *,
        secrets: Callable[[], Iterable[str]] = tuple,
        told: Carried = lambda tx, session, call_id, told: None,
    ) -> None:
        """`secrets`: values that are never stored (SPEC 11.1), besides what looks like one."""
        self._told = told
        self._database = database
        self._randomness = randomness
        self._secrets = secrets

    # Writing

    def begin(
        self,
        session: SessionView | Caller,
        *,
        provider: str,
        model: str,
        run_kind: str,
        prompt: Prompt | None = None,
        messages: Sequence[PromptPart] = (),
        follows: str = "",
    ) -> str:
        """Store that a call begins, before it is made; its id.

        `prompt` is what `PromptAssembly` made (its parts come first, its notes and provenance are kept), None on a call
        that only goes on with a conversation. `messages`: what this call sends that the call `follows` had not sent,
        the model's own last answer and tools' results included (roles "assistant" and "tool"). Everything of it is
        stored as it is sent; parts without a token count get one.
        """
        call_id = self._randomness.new_id("call")
        secrets = tuple(self._secrets())
        parts = [_redacted(part, secrets) for part in (*(prompt.parts if prompt else ()), *messages)]
        packed = pack(parts)

        def work(tx: Transaction) -> None:
            carried: Mapping[str, Any] = {}  # what goes on carries what its conversation began with (SPEC 1.10)
            if prompt is not None:
                carried = prompt.provenance
            elif (previous := tx.session.get(ModelCallRow, follows)) is not None and previous.provenance:
                carried = {CARRIED: follows, **previous.provenance}
            tx.session.add(
                ModelCallRow(
                    id=call_id,
                    session_id=session.id,
                    agent=session.agent,
                    provider=provider,
                    model=model,
                    run_kind=run_kind,
                    state="running",
                    started_at=tx.now,
                    follows=follows,
                    notes=[redact(note, secrets) for note in prompt.notes] if prompt else [],
                    provenance=dict(carried),
                    messages=packed,
                )
            )
            if prompt is not None:
                self._told(tx, session, call_id, carried)
            tx.record(ModelCallBegan(subject=call_id, workspace=session.workspace, session_id=session.id))

        self._database.write(work)
        return call_id

    def finish(
        self,
        call_id: str,
        *,
        state: str,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost: int = 0,
        price_known: bool = True,
        error: str = "",
        reply: str = "",
    ) -> None:
        """Store how a call ended: `state` "done", "failed" or "cancelled", `cost` in micro-dollars. Figures of a call
        that its session's end closed already are still taken; of any other that is over, nothing changes.

        Raises `Refusal` `unknown_call`.
        """
        if state not in STATES or state == "running":
            raise ValueError(f"a call cannot end as {state!r}")
        secrets = tuple(self._secrets())
        packed_reply = (
            zlib.compress(redact(sanitise(reply), secrets)[:MAX_REPLY].encode(errors="replace")) if reply else b""
        )

        def work(tx: Transaction) -> None:
            row = _row(tx.session, call_id)
            if row.state not in ("running", "cancelled") or (row.state == "cancelled" and row.input_tokens):
                return
            if row.state == "running":
                row.state, row.ended_at = state, tx.now
                row.error = redact(sanitise(error), secrets)
            row.input_tokens, row.output_tokens = input_tokens, output_tokens
            row.cost_microusd, row.price_known, row.reply = cost, price_known, packed_reply
            tx.session.add(row)
            tx.record(ModelCallEnded(subject=call_id, session_id=row.session_id, state=row.state))

        self._database.write(work)

    def recover(self) -> int:
        """At start-up: what a crash left running is interrupted. Says how many."""

        def work(tx: Transaction) -> int:
            interrupted = _running(tx.session)
            for row in interrupted:
                row.state, row.ended_at = "interrupted", tx.now
                row.error = "the engine stopped while it ran"
                tx.session.add(row)
            return len(interrupted)

        return self._database.write(work)

    def session_started(self, tx: Transaction, view: SessionView, /) -> None:
        """Nothing to do."""

    def session_ended(self, tx: Transaction, view: SessionView, result: object, /) -> None:
        """No call outlives its session."""
        for row in _running(tx.session, view.id):
            row.state, row.ended_at = "cancelled", tx.now
            row.error = row.error or f"its session ended: {view.state}"
            tx.session.add(row)

    # Reading

    def for_session(self, session_id: str) -> list[ModelCall]:
        """The calls of a session, oldest first; [] for one that made none."""
        with self._database.read() as session:
            query = select(ModelCallRow).where(col(ModelCallRow.session_id) == session_id)
            rows = session.exec(query.order_by(col(ModelCallRow.started_at), literal_column("rowid")))
            return [row.view for row in rows]

    def models_of(self, agent: str, since: datetime) -> list[str]:
        """The models, `PROVIDER:MODEL`, that calls of an agent went to since then, the most used first."""
        number = func.count().label("number")
        query = (
            select(ModelCallRow.provider, ModelCallRow.model, number)
            .where(col(ModelCallRow.agent) == agent, col(ModelCallRow.started_at) >= since)
            .where(col(ModelCallRow.state) == "done")
            .group_by(col(ModelCallRow.provider), col(ModelCallRow.model))
            .order_by(number.desc(), col(ModelCallRow.provider), col(ModelCallRow.model))
        )
        with self._database.read() as session:
            return [f"{provider}:{model}" for provider, model, _ in session.exec(query)]

    def that_recalled(self, memory_id: str, limit: int = 20) -> list[ModelCall]:
        """The calls whose prompt brought this memory in, newest first; of the newest `MAX_RECALLED` calls."""
        with self._database.read() as session:
            rowid: Any = literal_column("rowid")
            provenance = cast(col(ModelCallRow.provenance), String)
            newest: Any = select(rowid).select_from(ModelCallRow).order_by(rowid.desc()).limit(MAX_RECALLED)
            query = (
                select(ModelCallRow)
                .where(rowid.in_(newest))
                .where(provenance.contains(json.dumps(memory_id), autoescape=True))
                .where(~provenance.contains(f'"{CARRIED}"', autoescape=True))
                .order_by(rowid.desc())
                .limit(limit)
            )
            return [row.view for row in session.exec(query)]

    def get(self, call_id: str) -> ModelCall:
        """One call. Raises `Refusal` `unknown_call`."""
        with self._database.read() as session:
            return _row(session, call_id).view

    def prompt(self, call_id: str) -> tuple[PromptPart, ...]:
        """Everything that the model was sent for a call, in order, the conversation before it included.

        Raises `Refusal` `unknown_call`.
        """
        segments: list[tuple[PromptPart, ...]] = []
        with self._database.read() as session:
            row = _row(session, call_id)
            for _ in range(MAX_CHAIN):
                segments.append(unpack(row.messages))
                previous = session.get(ModelCallRow, row.follows) if row.follows else None
                if previous is None:
                    break
                row = previous
        return tuple(part for stretch in reversed(segments) for part in stretch)

    def reply(self, call_id: str) -> str:
        """What the model answered, "" when it did not. Raises `Refusal` `unknown_call`."""
        with self._database.read() as session:
            stored = _row(session, call_id).reply
        return zlib.decompress(stored).decode() if stored else ""


@cache
def _parts() -> TypeAdapter[tuple[PromptPart, ...]]:
    return TypeAdapter(tuple[PromptPart, ...])


def pack(parts: Sequence[PromptPart]) -> bytes:
    """Parts as compressed JSON."""
    document = _parts().dump_python(tuple(parts), mode="json")
    return zlib.compress(json.dumps(document, ensure_ascii=False).encode(errors="replace"))


def unpack(data: bytes) -> tuple[PromptPart, ...]:
    """The inverse of `pack`."""
    return _parts().validate_json(zlib.decompress(data)) if data else ()


def _redacted(part: PromptPart, secrets: tuple[str, ...]) -> PromptPart:
    """The part without secrets and with a token count."""
    clean = without_secrets(part, secrets)
    return clean if clean.tokens else replace(clean, tokens=tokenizer.count(clean.text))


_RUNNING = select_all(ModelCallRow).where(col(ModelCallRow.state) == "running")
_RUNNING_IN = _RUNNING.where(col(ModelCallRow.session_id) == bindparam("session"))


def _running(session: Session, session_id: str | None = None) -> list[ModelCallRow]:
    if session_id is None:
        return load_all(session, ModelCallRow, _RUNNING)
    return load_all(session, ModelCallRow, _RUNNING_IN, {"session": session_id})


def _row(session: Session, call_id: str) -> ModelCallRow:
    row = session.get(ModelCallRow, call_id)
    if row is None:
        raise Refusal("unknown_call", f"there is no call {call_id}", "`clawpy xray SESSION` lists those of a session")
    return row
