"""The overlay store: effects in force, and those that were (SPEC 5.4, 5.5).

An overlay is a row; what is in force is kept in memory, for it is asked on every prompt, every choice of a model and
every red test. A candidate changes its status and its overlay in one transaction, so that a crash leaves the former
behaviour or the new one. What was withdrawn is nowhere but in its row any more: nothing else was ever changed.
"""

from __future__ import annotations

import logging
import re
import shlex
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, CheckConstraint, Column, Index, text
from sqlmodel import Field, SQLModel, col, select

from engine.adaptation.preview import Present, free_name, preview
from engine.config_agents import model_fault
from engine.storage.database import Database, Transaction
from engine.storage.types import utc
from engine.values import Randomness, Refusal, Trust, sanitise
from engine.values.adaptation import (
    Candidate,
    CandidateType,
    Effect,
    EffectPreview,
    FixTemplate,
    FlowOffload,
    Overlay,
    PolicyTweak,
    PromptFragment,
    RoutingHint,
    effect_from_json,
)

log = logging.getLogger(__name__)

MOST_LINES = 20
"""Lines of guidance, repairs or commands that one effect may have."""

LINE_MOST = 500
"""Characters of each."""

_FLOW_NAME = re.compile(r"[a-z][a-z0-9_]{1,39}")
_TYPES = ", ".join(f"'{one.value}'" for one in CandidateType)


class OverlayRow(SQLModel, table=True):
    """An effect that is (`until` is null) or was in force. `told_at`: when it was told of that it does harm."""

    __tablename__ = "overlays"
    __table_args__ = (
        CheckConstraint(f"type IN ({_TYPES})", name="ck_overlays_type"),
        CheckConstraint("until IS NULL OR until >= since", name="ck_overlays_until"),
        Index("ix_overlays_candidate", "candidate_id", "since"),
        # Of each candidate at most one is in force.
        Index("ix_overlays_in_force", "candidate_id", unique=True, sqlite_where=text("until IS NULL")),
    )

    id: str = Field(primary_key=True)
    candidate_id: str
    type: str
    agent_id: str = ""
    run_kind: str = ""
    workspace: str = ""
    effect: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    since: datetime = Field(sa_column=utc())
    until: datetime | None = Field(default=None, sa_column=utc(nullable=True))
    told_at: datetime | None = Field(default=None, sa_column=utc(nullable=True))
    trust: str = Field(default=Trust.QUOTED.value, sa_column_kwargs={"server_default": Trust.QUOTED.value})


class Overlays:
    """Answers what is in force, by agent, kind of run and workspace. From any thread; no disk once it was asked."""

    def __init__(
        self,
        database: Database,
        randomness: Randomness,
        *,
        present: Present,
        flows: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`present` tells how things are done now. `flows`: names that new flows may not have, because the program has
        flows of these names."""
        self._database = database
        self._randomness = randomness
        self._flows = flows
        self._present = present
        self._lock = threading.Lock()
        self._known: Mapping[CandidateType, tuple[Overlay, ...]] | None = None
        self._changes = 0

    def get_prompt_fragments(self, *, agent_id: str, run_kind: str, workspace: str = "") -> Sequence[Overlay]:
        """Fragments for prompts of an agent's runs of a kind, the oldest first. `workspace` "" is none: what is bound
        to one does not apply then."""
        return self._for(CandidateType.PROMPT_FRAGMENT, agent_id, run_kind, workspace)

    def fix_templates(self, *, agent_id: str, workspace: str = "") -> Sequence[Overlay]:
        """Repairs that an agent is told of when tests of its work are red, the oldest first."""
        return self._for(CandidateType.FIX_TEMPLATE, agent_id, None, workspace)

    def routing_hints(self, *, agent_id: str, run_kind: str, workspace: str = "") -> Sequence[Overlay]:
        """Models for an agent's runs of a kind, the newest first: what was learnt last comes first."""
        return self._for(CandidateType.ROUTING_HINT, agent_id, run_kind, workspace)[::-1]

    def policy_tweaks(self, *, agent_id: str, workspace: str = "") -> Sequence[Overlay]:
        """Bounds of the validation loop for an agent, the oldest first; all of them hold."""
        return self._for(CandidateType.POLICY_TWEAK, agent_id, None, workspace)

    def flows(self) -> Sequence[Overlay]:
        """Every flow in force, the oldest first."""
        return self._in_force().get(CandidateType.FLOW_OFFLOAD, ())

    def of(self, candidate_id: str) -> Sequence[Overlay]:
        """Every overlay of a candidate that can be read, the newest first."""
        order = (col(OverlayRow.since).desc(), col(OverlayRow.id))
        with self._database.read() as session:
            rows = session.exec(
                select(OverlayRow).where(col(OverlayRow.candidate_id) == candidate_id).order_by(*order)
            ).all()
            return [one for row in rows if (one := _readable(row)) is not None]

    def put(self, tx: Transaction, candidate: Candidate, now: datetime) -> Overlay:
        """Put a candidate's effect in force, from the commit of `tx` on. A flow whose name is taken gets a number.

        Raises `Refusal`: `already_in_force`, also for a flow that does what another does, and `bad_effect` for one
        that cannot work."""
        effect = checked(candidate.effect)
        if _row_in_force(tx, candidate.id) is not None:
            raise Refusal(
                "already_in_force",
                f"the effect of candidate {candidate.id} is in force already",
                f"roll it back first: clawpy candidates rollback {candidate.id}",
            )
        if isinstance(effect, FlowOffload):
            effect = self._named(tx, effect, candidate.workspace)
        row = OverlayRow(
            id=self._randomness.new_id("over"),
            candidate_id=candidate.id,
            type=effect.kind.value,
            agent_id=candidate.agent_id,
            run_kind=candidate.run_kind,
            workspace=candidate.workspace,
            effect=effect.to_json(),
            since=now,
            trust=candidate.trust.value,
        )
        tx.session.add(row)
        tx.session.flush()
        tx.after_commit(self.changed)
        return _overlay(row)

    def withdraw(self, tx: Transaction, candidate_id: str, now: datetime) -> None:
        """Take a candidate's effect back, from the commit of `tx` on. Raises `Refusal` `not_in_force`."""
        row = _row_in_force(tx, candidate_id)
        if row is None:
            raise Refusal("not_in_force", f"no effect of candidate {candidate_id} is in force")
        row.until = max(now, row.since)
        tx.session.add(row)
        tx.session.flush()
        tx.after_commit(self.changed)

    def preview(self, candidate: Candidate) -> EffectPreview:
        """How things are done without a candidate's effect, and with it: a question to what is in force now."""
        return preview(candidate, [one for one in self.every() if one.candidate_id != candidate.id], self._present)

    def every(self) -> Sequence[Overlay]:
        """Everything in force, the oldest first."""
        found = [one for several in self._in_force().values() for one in several]
        return sorted(found, key=lambda one: (one.since, one.id))

    def changed(self) -> None:
        """The table was changed: what was read of it holds no longer."""
        with self._lock:
            self._known = None
            self._changes += 1

    def _for(self, type: CandidateType, agent_id: str, run_kind: str | None, workspace: str) -> Sequence[Overlay]:
        return [one for one in self._in_force().get(type, ()) if one.applies(agent_id, run_kind, workspace)]

    def _in_force(self) -> Mapping[CandidateType, tuple[Overlay, ...]]:
        with self._lock:
            known, changes = self._known, self._changes
        if known is not None:
            return known
        loaded = self._load()
        with self._lock:
            if self._changes == changes:  # else what was read may be from before the change
                self._known = loaded
        return loaded

    def _load(self) -> Mapping[CandidateType, tuple[Overlay, ...]]:
        order = (col(OverlayRow.since), col(OverlayRow.id))
        with self._database.read() as session:
            rows = session.exec(select(OverlayRow).where(col(OverlayRow.until).is_(None)).order_by(*order)).all()
        found: dict[CandidateType, list[Overlay]] = {}
        for row in rows:
            if (one := _readable(row, works=True)) is not None:
                found.setdefault(one.type, []).append(one)
        return {type: tuple(several) for type, several in found.items()}

    def _named(self, tx: Transaction, flow: FlowOffload, workspace: str) -> FlowOffload:
        """The flow under a name that never meant other commands: a permit for it stays one for just these."""
        rows = tx.session.exec(select(OverlayRow).where(col(OverlayRow.type) == CandidateType.FLOW_OFFLOAD.value)).all()
        taken = set(self._flows())
        for row in rows:
            name, same = str(row.effect.get("name", "")), row.effect.get("commands") == list(flow.commands)
            if row.until is None and same and row.workspace in ("", workspace):
                raise Refusal(
                    "already_in_force",
                    f"the flow {name} runs these commands already",
                    f"reject this candidate; the other is {row.candidate_id}",
                )
            if row.until is None or not same:
                taken.add(name)
        return replace(flow, name=free_name(flow.name, taken))


def checked(effect: Effect) -> Effect:
    """The effect, when it can work: texts of one line and bounded, names as they must be. Raises `Refusal`
    `bad_effect`, which says what is wrong."""
    match effect:
        case PromptFragment():
            return PromptFragment(_lines("guidance", effect.guidance))
        case FixTemplate():
            if not effect.failing:
                raise _bad("it names no failing test")
            return replace(effect, repairs=_lines("repairs", effect.repairs))
        case RoutingHint():
            if fault := model_fault(effect.model):
                raise _bad(fault)
            if effect.longest_prompt is not None and effect.longest_prompt < 0:
                raise _bad("longestPrompt is below 0")
            return effect
        case PolicyTweak():
            if effect.tries is None and effect.cost is None:
                raise _bad("it tightens nothing")
            if min(effect.tries or 0, effect.cost or 0) < 0:
                raise _bad("a bound is below 0")
            return effect
        case FlowOffload():
            if not _FLOW_NAME.fullmatch(effect.name):
                raise _bad(f"{sanitise(effect.name)[:80]!r} is no name of a flow: small letters, digits and _")
            commands = _lines("commands", effect.commands)
            for command in commands:
                words(command)
            return FlowOffload(effect.name, _line(effect.title) or effect.name, commands)


def words(command: str) -> list[str]:
    """A command of a flow as a program and its arguments: no shell reads it. Raises `Refusal` `bad_effect`."""
    try:
        tokens = list(shlex.shlex(command, posix=True, punctuation_chars=True))
        found = shlex.split(command)
    except ValueError as error:
        raise _bad(f"{command[:80]!r} is no command: {error}") from error
    if not found or found[0].startswith("-"):
        raise _bad(f"{command[:80]!r} is no command")
    if any(token and set(token) <= set("();<>|&") for token in tokens):
        raise _bad(f"{command[:80]!r} needs a shell")
    return found


def _lines(name: str, texts: Sequence[str]) -> tuple[str, ...]:
    found = tuple(line for one in texts if (line := _line(one)))
    if not found:
        raise _bad(f"{name} says nothing")
    if len(found) > MOST_LINES:
        raise _bad(f"{name} has {len(found)} lines, at most {MOST_LINES}")
    return found


def _line(one: str) -> str:
    line = " ".join(sanitise(one).split())
    if len(line) > LINE_MOST:
        raise _bad(f"a line has {len(line)} characters, at most {LINE_MOST}: {line[:60]}…")
    return line


def _bad(fault: str) -> Refusal:
    return Refusal("bad_effect", f"this effect cannot be put in force: {fault}", "reject its candidate")


def _row_in_force(tx: Transaction, candidate_id: str) -> OverlayRow | None:
    return tx.session.exec(
        select(OverlayRow).where(col(OverlayRow.candidate_id) == candidate_id, col(OverlayRow.until).is_(None))
    ).first()


def _readable(row: OverlayRow, *, works: bool = False) -> Overlay | None:
    """The overlay, None when it is damaged, or when it is to work and cannot since what it said was forgotten: it takes
    no other with it, and no prompt."""
    try:
        one = _overlay(row)
        return replace(one, effect=checked(one.effect)) if works else one
    except Refusal as refusal:
        log.warning("overlay %s is left out: %s", row.id, refusal)
        return None


def _overlay(row: OverlayRow) -> Overlay:
    return Overlay(
        id=row.id,
        candidate_id=row.candidate_id,
        type=CandidateType(row.type),
        agent_id=row.agent_id,
        run_kind=row.run_kind,
        workspace=row.workspace,
        effect=effect_from_json(row.effect),
        since=row.since,
        until=row.until,
        trust=Trust(row.trust),
    )
