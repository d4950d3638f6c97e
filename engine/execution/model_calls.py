"""Stores model calls and turns of agents with their exact prompts, for the X-ray (SPEC 9.6, 1.10).

A conversation is a chain of calls, each of which stores only its new messages. So the whole prompt of a call is the
messages of all calls before it and its own. Secrets are removed before anything is stored.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from sqlmodel import Field, Session

from engine.events.work import ModelCallBegan, ModelCallEnded
from engine.execution.prompts import add_token_count, remove_secrets
from engine.frozen import frozen
from engine.model import ModelCall, Prompt, PromptPart, Refusal, SessionView
from engine.randomness import Randomness
from engine.redaction import redact
from engine.storage import Row, ask, load_all, read_all, value_of
from engine.storage.database import Database, Transaction
from engine.text import sanitise

MAX_SEARCHED_CALLS = 2_000
"""Maximum number of calls that are searched for a memory."""

MAX_CALLS_WITH_MEMORY = 20
"""Maximum number of calls that are returned for a memory."""

FOLLOWED_CALL_KEY = "carried_from"
"""The key, in the provenance of a call, of the earlier call that it follows."""

MAX_REPLY_CHARS = 100_000
"""Maximum number of characters of a stored answer. The messages of the next call have all of it."""


@frozen
class CallUsage:
    """The tokens and the money that a call used."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: int = 0
    """Micro-dollars."""
    is_reported: bool = True
    """False when the provider did not say what was used, or said something impossible."""


NOTHING_USED = CallUsage()


class CallState(StrEnum):
    """The state of a call."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    """The engine stopped while it ran."""


class ModelCallRow(Row, table=True):
    """One call. `messages` is zlib-compressed JSON, see `pack_parts`."""

    __tablename__ = "model_calls"

    id: str = Field(primary_key=True)
    session_id: str
    agent: str
    provider: str
    model: str
    run_kind: str
    state: CallState
    started_at: datetime
    ended_at: datetime | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost_microusd: int = 0
    price_known: bool = True
    error: str = ""
    follows: str = ""
    notes: list[str]
    provenance: dict[str, Any]
    messages: bytes
    reply: bytes = b""

    @property
    def view(self) -> ModelCall:
        """The call for other services and screens."""
        return value_of(
            self,
            ModelCall,
            seconds=None if self.ended_at is None else (self.ended_at - self.started_at).total_seconds(),
            cost=self.cost_microusd,
            notes=tuple(self.notes),
            provenance=dict(self.provenance),
        )


_RUNNING = f"WHERE state = '{CallState.RUNNING}'"
_RUNNING_IN = f"{_RUNNING} AND session_id = :session"
"""The running calls of all sessions, and of one."""
_OF_SESSION = "WHERE session_id = :session ORDER BY started_at, rowid"
"""The calls of a session, the oldest first."""
_SELECT_MODELS = f"""
    SELECT provider || ':' || model FROM model_calls
    WHERE agent = :agent AND started_at >= :since AND state = '{CallState.DONE}'
    GROUP BY provider, model ORDER BY count(*) DESC, provider, model
"""
"""The models of the calls of an agent that were answered, the most used first."""
_WITH_MEMORY = f"""
    WHERE rowid IN (SELECT rowid FROM model_calls ORDER BY rowid DESC LIMIT {MAX_SEARCHED_CALLS})
    AND instr(provenance, :memory) AND NOT instr(provenance, '"{FOLLOWED_CALL_KEY}"')
    ORDER BY rowid DESC LIMIT {MAX_CALLS_WITH_MEMORY}
"""
"""The newest calls with a memory in their own provenance, not in one that they follow."""


class CallerWithoutSession(NamedTuple):
    """The caller of a model outside of sessions. `id` stands in place of the id of a session."""

    id: str
    agent: str
    workspace: str


OnPrompt = Callable[[Transaction, SessionView | CallerWithoutSession, str, Mapping[str, Any]], None]
"""Receives the provenance of a new prompt, in the transaction in which its call begins. Must be quick and not raise."""


@frozen
class ModelCalls:
    """Stores and reads calls. It observes sessions, because calls end with them. Thread-safe.

    `secrets` returns values that are never stored (SPEC 11.1), besides those that look secret.
    """

    database: Database
    randomness: Randomness
    secrets: Callable[[], Iterable[str]]
    on_prompt: OnPrompt

    # -- writing

    def begin(
        self,
        caller: SessionView | CallerWithoutSession,
        *,
        provider: str,
        model: str,
        run_kind: str,
        prompt: Prompt | None = None,
        messages: Sequence[PromptPart] = (),
        follows: str = "",
    ) -> str:
        """Store a call before it is made, as it is sent. Returns its id.

        Args:
            prompt: from `PromptAssembly`; None for a call that continues a conversation. Its parts come first, and its
                notes and provenance are stored too.
            messages: those that are new since the call `follows`, with the model's last answer (role "assistant") and
                tool results (role "tool"). Parts without a token count get one.
            follows: the earlier call of the conversation, "" for none.
        """
        call_id = self.randomness.new_id("call")
        secrets = tuple(self.secrets())
        prompt_parts = prompt.parts if prompt else ()
        packed = pack_parts([add_token_count(remove_secrets(part, secrets)) for part in (*prompt_parts, *messages)])

        def store_call(tx: Transaction) -> None:
            provenance = prompt.provenance if prompt is not None else _read_followed_provenance(tx.session, follows)
            tx.session.add(
                ModelCallRow(
                    id=call_id,
                    session_id=caller.id,
                    agent=caller.agent,
                    provider=provider,
                    model=model,
                    run_kind=run_kind,
                    state=CallState.RUNNING,
                    started_at=tx.now,
                    follows=follows,
                    notes=[redact(note, secrets) for note in prompt.notes] if prompt else [],
                    provenance=dict(provenance),
                    messages=packed,
                )
            )
            if prompt is not None:
                self.on_prompt(tx, caller, call_id, provenance)
            tx.record(ModelCallBegan(subject=call_id, workspace=caller.workspace, session_id=caller.id))

        self.database.write(store_call)
        return call_id

    def finish(
        self,
        call_id: str,
        *,
        state: CallState,
        usage: CallUsage = NOTHING_USED,
        price_known: bool = True,
        error: str = "",
        reply: str = "",
    ) -> None:
        """Store the end of a call. Its cost is an estimate, unless the price is known and the usage was reported, or
        cost nothing.

        If the call ended with its session already, its figures and its reply are stored all the same, and its end is
        recorded a second time. Any other call that is over does not change. Raises `Refusal` `unknown_call`.
        """
        secrets = tuple(self.secrets())
        packed_reply = _pack_reply(redact(sanitise(reply), secrets))

        def store_end(tx: Transaction) -> None:
            row = _load_row(tx.session, call_id)
            is_running = row.state == CallState.RUNNING
            ended_with_its_session = row.state == CallState.CANCELLED and not row.input_tokens
            if not (is_running or ended_with_its_session):
                return
            if is_running:
                row.state = state
                row.ended_at = tx.now
                row.error = redact(sanitise(error), secrets)
            row.input_tokens = usage.input_tokens
            row.output_tokens = usage.output_tokens
            row.cost_microusd = usage.cost
            row.price_known = price_known and (usage.is_reported or not usage.cost)
            row.reply = packed_reply
            _record_end(tx, row)

        self.database.write(store_end)

    def recover(self) -> int:
        """At start-up: mark the calls that were running as interrupted. Returns their number."""
        state, reason = CallState.INTERRUPTED, "the engine stopped while it ran"
        return self.database.write(
            lambda tx: _end_calls(tx, load_all(tx.session, ModelCallRow, _RUNNING), state, reason)
        )

    def session_ended(self, tx: Transaction, view: SessionView) -> None:
        """Cancel the running calls of a session that is over."""
        running = load_all(tx.session, ModelCallRow, _RUNNING_IN, {"session": view.id})
        _end_calls(tx, running, CallState.CANCELLED, f"its session ended: {view.state}")

    # -- reading

    def list_for_session(self, session_id: str) -> list[ModelCall]:
        """The calls of a session, oldest first."""
        with self.database.read() as session:
            rows = read_all(session, ModelCallRow, _OF_SESSION, {"session": session_id})
        return [row.view for row in rows]

    def find_models_of(self, agent: str, since: datetime) -> list[str]:
        """The models (`PROVIDER:MODEL`) of an agent's calls since a time, the most used first."""
        with self.database.read() as session:
            return [model for (model,) in ask(session, _SELECT_MODELS, {"agent": agent, "since": since})]

    def find_calls_with_memory(self, memory_id: str) -> list[ModelCall]:
        """The calls whose prompts recalled this memory, newest first. Only the newest `MAX_SEARCHED_CALLS` calls are
        searched."""
        with self.database.read() as session:
            rows = read_all(session, ModelCallRow, _WITH_MEMORY, {"memory": json.dumps(memory_id)})
        return [row.view for row in rows]

    def get(self, call_id: str) -> ModelCall:
        """One call. Raises `Refusal` `unknown_call`."""
        with self.database.read() as session:
            return _load_row(session, call_id).view

    def read_prompt(self, call_id: str) -> tuple[PromptPart, ...]:
        """The whole prompt of a call, with the conversation before it. In damaged rows a call may follow itself, or a
        later one: each call is then read once. Raises `Refusal` `unknown_call`."""
        parts_of: dict[str, tuple[PromptPart, ...]] = {}
        with self.database.read() as session:
            row: ModelCallRow | None = _load_row(session, call_id)
            while row is not None and row.id not in parts_of:
                parts_of[row.id] = unpack_parts(row.messages)
                row = session.get(ModelCallRow, row.follows) if row.follows else None
        return tuple(part for parts in reversed(parts_of.values()) for part in parts)

    def read_reply(self, call_id: str) -> str:
        """The model's answer to a call, "" for none. Raises `Refusal` `unknown_call`."""
        with self.database.read() as session:
            stored = _load_row(session, call_id).reply
        return zlib.decompress(stored).decode() if stored else ""


@cache
def _make_parts_adapter() -> TypeAdapter[tuple[PromptPart, ...]]:
    return TypeAdapter(tuple[PromptPart, ...])


def pack_parts(parts: Sequence[PromptPart]) -> bytes:
    """Parts as compressed JSON."""
    document = _make_parts_adapter().dump_python(tuple(parts), mode="json")
    return zlib.compress(json.dumps(document, ensure_ascii=False).encode(errors="replace"))


def unpack_parts(data: bytes) -> tuple[PromptPart, ...]:
    """The inverse of `pack_parts`."""
    return _make_parts_adapter().validate_json(zlib.decompress(data)) if data else ()


def _pack_reply(reply: str) -> bytes:
    """The beginning of a reply, compressed; b"" for none."""
    return zlib.compress(reply[:MAX_REPLY_CHARS].encode(errors="replace")) if reply else b""


def _end_calls(tx: Transaction, rows: Sequence[ModelCallRow], state: CallState, reason: str) -> int:
    """End calls that will not be finished. Returns their number."""
    for row in rows:
        row.state = state
        row.ended_at = tx.now
        row.error = reason
        _record_end(tx, row)
    return len(rows)


def _record_end(tx: Transaction, row: ModelCallRow) -> None:
    """Store the row of a call that is over, and record its end."""
    tx.session.add(row)
    tx.record(ModelCallEnded(subject=row.id, session_id=row.session_id, state=row.state))


def _read_followed_provenance(session: Session, follows: str) -> Mapping[str, Any]:
    """The provenance of a call that follows another one, which is that of the first call (SPEC 1.10)."""
    followed = session.get(ModelCallRow, follows)
    if followed is None or not followed.provenance:
        return {}
    return {FOLLOWED_CALL_KEY: follows, **followed.provenance}


def _load_row(session: Session, call_id: str) -> ModelCallRow:
    row = session.get(ModelCallRow, call_id)
    if row is None:
        raise Refusal("unknown_call", f"there is no call {call_id}", "`clawpy xray SESSION` lists those of a session")
    return row
