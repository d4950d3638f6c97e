"""Findings that agents send up to their leaders (SPEC 1.8): the queue after the gates, and the flush into patterns.

A flush is one transaction: a finding becomes a pattern and leaves the queue, or neither. If its agent has another
direct leader by then, the gates are asked again for that one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from sqlmodel import Field, col, select

from engine.events import BubbleApproved, BubbleQueued, BubbleRefused, MemoryBubbleFlushed
from engine.frozen import frozen
from engine.hierarchy.agents import Agents
from engine.hierarchy.cascade_config import CascadeConfig
from engine.hierarchy.organisation import Lineage, is_leader
from engine.hierarchy.profile_rows import APPROVED, TRUST
from engine.hierarchy.profile_text import item_text
from engine.hierarchy.profiles import Profiles
from engine.model import (
    AcceptedFinding,
    Bubble,
    BubbleState,
    FlushReport,
    GateResult,
    Learning,
    PatternSource,
    Randomness,
    Refusal,
    Score,
    Trust,
    Waiting,
    sanitise,
)
from engine.model.base import may_guide
from engine.model.learnings import lesson_id
from engine.model.text import jaccard
from engine.storage.database import Database, Transaction
from engine.storage.rows import Row, json_field, utc_field, value_of

# The seven gates that a finding must pass on its way up to a leader (SPEC 1.7). Pure.


MIN_SIMILARITY = 0.6
"""Minimum similarity of two texts that are the same."""

GENERIC_DOMAINS = frozenset({"executive", "general", "operations"})
"""Domains that include everything."""

GATES = ("enabled", "confidence", "importance", "tier", "leader", "domain", "novelty")

_TOKEN = re.compile(r"[a-z0-9_]{3,}")
_WORD = re.compile(r"[^\W_]+")


@frozen
class DirectLeader:
    """A worker's direct leader. `patterns` are (key, text)."""

    id: str
    tier: int
    domain: str
    patterns: tuple[tuple[str, str], ...] = ()


def similarity(text: str, other: str) -> float:
    """Jaccard over lower-case tokens `[a-z0-9_]{3,}`, 0 to 1; two texts without tokens are not similar: 0."""
    return jaccard(_TOKEN.findall(text.lower()), _TOKEN.findall(other.lower()))


def find_pattern(text: str, patterns: tuple[tuple[str, str], ...]) -> str:
    """The key of the most similar pattern, "" if none is similar enough."""
    lesson = lesson_id(text)
    scored = ((1.0 if key == lesson else similarity(text, pattern_text), key) for key, pattern_text in patterns)
    best = max(scored, default=(0.0, ""))
    return best[1] if best[0] >= MIN_SIMILARITY else ""


def is_relevant(category: str, domain: str) -> tuple[bool, str]:
    """(whether a learning of this category is relevant to a leader of this domain, reason) (SPEC 1.7)."""
    leader_domain = domain.strip().lower()
    if leader_domain in GENERIC_DOMAINS:
        return True, f"{leader_domain} accepts everything"
    words, domain_words = set(_WORD.findall(category.lower())), set(_WORD.findall(leader_domain))
    if not words:
        return False, "it has no category, so only generic leaders receive it"
    if not domain_words:
        return True, "the leader has no domain"
    shared = sorted(words & domain_words)
    if shared:
        return True, f"shares {', '.join(shared)}"
    return False, f"{category!r} shares no word with {domain!r}"


def ask_gates(
    learning: Learning, *, tier: int, leader: DirectLeader | None, missing: str, config: CascadeConfig
) -> tuple[GateResult, ...]:
    """Ask the gates in order until one refuses; there are seven results if all pass. `tier` is the worker's; `missing`
    says why it has no direct leader, if it has none."""
    results: list[GateResult] = []
    for answer in _gate_results(learning, tier, leader, missing, config):
        results.append(GateResult(len(results) + 1, GATES[len(results)], *answer))
        if not answer[0]:
            break
    return tuple(results)


def _gate_results(
    learning: Learning, tier: int, leader: DirectLeader | None, missing: str, config: CascadeConfig
) -> Iterator[tuple[bool, str]]:
    """(whether it passes, reason) of each gate, in order."""
    bubbling = config.enable_upward_bubbling
    yield bubbling, "sending up is on" if bubbling else "enable_upward_bubbling is off"
    scores = (learning.confidence, config.bubble_min_confidence), (learning.importance, config.bubble_min_importance)
    for score, minimum in scores:
        yield score.value >= minimum, f"{score.value:.2f} of {minimum:.2f}: {'; '.join(score.reasons)}"
    works = not is_leader(tier)
    yield works, f"tier {tier} {'is' if works else 'leads and is not'} a worker"
    if leader is None:
        yield False, missing
        return
    synced = is_leader(leader.tier)
    yield synced, f"{leader.id}, tier {leader.tier}, {'is' if synced else 'is not'} synced"
    yield is_relevant(learning.category, leader.domain)
    duplicate = find_pattern(learning.text, leader.patterns)
    yield not duplicate, f"{leader.id} already has it as {duplicate}" if duplicate else f"new to {leader.id}"


class BubbleRow(Row, table=True):
    """One finding of a worker, with the results of the gates."""

    __tablename__ = "bubbles"

    id: str = Field(primary_key=True)
    learning_id: str
    agent: str = ""
    leader: str = ""
    state: str = ""
    text: str = ""
    category: str = ""
    session: str = ""
    workspace: str = ""
    confidence: float = 0.0
    importance: float = 0.0
    reasons: dict[str, list[str]] = json_field(default_factory=dict)
    gates: list[dict[str, Any]] = json_field(default_factory=list)
    at: datetime = utc_field()
    flushed_at: datetime | None = utc_field(nullable=True)
    pattern: str = ""
    trust: str = Trust.QUOTED.value
    approved_at: datetime | None = utc_field(nullable=True)


_QUEUED = (
    select(BubbleRow)
    .where(col(BubbleRow.state) == BubbleState.QUEUED.value)
    .order_by(col(BubbleRow.leader), col(BubbleRow.importance).desc(), col(BubbleRow.at), col(BubbleRow.id))
)

MAX_WAITING = 500
"""Maximum number of queued bubbles that are read for the operator's list."""


class Bubbles:
    """The queue of one home. `exchange()` synchronises with the shared leadership and returns its error, "" for none;
    it never raises."""

    def __init__(
        self,
        database: Database,
        agents: Agents,
        profiles: Profiles,
        *,
        randomness: Randomness,
        exchange: Callable[[], str] = lambda: "",
    ) -> None:
        self._database = database
        self._agents = agents
        self._profiles = profiles
        self._randomness = randomness
        self._exchange = exchange

    def offer(self, learning: Learning) -> Bubble:
        """Ask the gates about a learning, and store it with their results. One that was offered before is asked about
        again only if it was refused and is more certain or important now.

        Raises `Refusal`: `unknown_agent`, `bad_learning` for an empty text.
        """
        text = item_text(learning.text)
        if not text:
            raise Refusal("bad_learning", f"{learning.id} is empty", "write a text for it")
        config = self._agents.config.current
        lineage = self._agents.lineage(learning.agent)

        def work(tx: Transaction) -> Bubble:
            row = tx.session.exec(select(BubbleRow).where(col(BubbleRow.learning_id) == learning.id)).first()
            if row is None:
                row = BubbleRow(id=self._randomness.new_id("bub"), learning_id=learning.id, at=tx.now)
            elif not _is_stronger(learning, row):
                return _to_bubble(row)
            self._judge(tx, row, learning, lineage, config)
            return _to_bubble(row)

        return self._database.write(work)

    def approve(self, bubble_id: str) -> Bubble:
        """Approve a quote (SPEC 6.8), so that the next flush takes it. Raises `Refusal`: `unknown_bubble`,
        `not_waiting`."""

        def work(tx: Transaction) -> Bubble:
            row = tx.session.get(BubbleRow, bubble_id)
            if row is None:
                raise Refusal("unknown_bubble", f"there is no bubble {sanitise(bubble_id)[:60]}", "clawpy bubbles list")
            if row.state != BubbleState.QUEUED.value or _to_bubble(row).may_guide:
                raise Refusal("not_waiting", f"{row.id} does not need your approval", "clawpy bubbles list")
            row.approved_at = tx.now
            tx.session.add(row)
            tx.record(BubbleApproved(subject=row.id, workspace=row.workspace, agent=row.agent, leader=row.leader))
            return _to_bubble(row)

        return self._database.write(work)

    def drop(self, lesson: str) -> None:
        """Refuse the queued findings with a lesson that was retracted."""

        def work(tx: Transaction) -> None:
            for row in tx.session.exec(_QUEUED).all():
                if lesson_id(row.text) == lesson:
                    gate = GateResult(len(GATES), GATES[-1], False, "you retracted it")
                    row.state = BubbleState.REFUSED.value
                    row.gates = [*row.gates[:-1], asdict(gate)]
                    tx.session.add(row)
                    tx.record(_refused_event(row, gate))

        self._database.write(work)

    def list(self, *, state: BubbleState | None = None, agent: str = "", limit: int = 100) -> Sequence[Bubble]:
        """The findings, newest first; of one state, or sent or received by one agent, if given."""
        query = select(BubbleRow).order_by(col(BubbleRow.at).desc(), col(BubbleRow.id)).limit(limit)
        if state is not None:
            query = query.where(col(BubbleRow.state) == state.value)
        if agent:
            query = query.where((col(BubbleRow.agent) == agent) | (col(BubbleRow.leader) == agent))
        with self._database.read() as session:
            return [_to_bubble(row) for row in session.exec(query)]

    def list_accepted(self, workspace: str) -> Sequence[AcceptedFinding]:
        """The findings of a workspace that are patterns, newest first, in their present wording."""
        query = (
            select(BubbleRow)
            .where(col(BubbleRow.state) == BubbleState.FLUSHED.value, col(BubbleRow.workspace) == workspace)
            .order_by(col(BubbleRow.flushed_at).desc(), col(BubbleRow.id))
        )
        with self._database.read() as session:
            rows = session.exec(query).all()
        profiles = self._profiles.load(sorted({row.leader for row in rows}))
        texts = {
            (leader, pattern.key): pattern.text for leader, profile in profiles.items() for pattern in profile.patterns
        }
        accepted: dict[tuple[str, str], AcceptedFinding] = {}
        for row in rows:
            key = row.leader, row.pattern
            if key in texts and key not in accepted:
                assert row.flushed_at is not None, "flushed findings have a time"
                accepted[key] = AcceptedFinding(
                    texts[key], row.leader, row.pattern, row.agent, row.session, row.flushed_at
                )
        return list(accepted.values())

    def waiting(self) -> Sequence[Waiting]:
        """The entries of the operator's queue (SPEC 9.3): one for each quote, and one for each leader with findings,
        which says what blocks them or when they go up."""
        queued = list(reversed(self.list(state=BubbleState.QUEUED, limit=MAX_WAITING)))
        of_leader: dict[str, list[Bubble]] = {}
        entries = [
            Waiting("bubble", bubble.id, _question(bubble), bubble.at, text=bubble.learning.text)
            for bubble in queued
            if not bubble.may_guide
        ]
        for bubble in queued:
            if bubble.may_guide:
                of_leader.setdefault(bubble.leader, []).append(bubble)
        for leader, bubbles in of_leader.items():
            first = bubbles[0]
            subject = f"“{first.learning.text}”" if len(bubbles) == 1 else f"{len(bubbles)} findings"
            title = f"{subject} for {leader} go up with the next rounds; send them now with clawpy bubbles flush"
            if obstacle := self._block_reason(leader):
                title = f"{subject} for {leader}: {obstacle}"
            elif len(bubbles) == 1:
                title = f"{subject} for {leader}: goes up with the next round; send it now with clawpy bubbles flush"
            entries.append(Waiting("bubble", first.id, title, first.at))
        return entries

    def _block_reason(self, leader: str) -> str:
        """Why a leader receives no findings, and how to fix it; "" if it does."""
        if not self._agents.config.current.bubble_max_per_cycle:
            return "bubble_max_per_cycle is 0 in wisdom_cascade_config.json"
        try:
            view = self._agents.get(leader)
        except Refusal:
            return f"{leader} does not exist; give its agents another leader"
        if view.broken:
            return f"its folder is broken: {view.broken}"
        return "" if is_leader(view.tier) else f"tier {view.tier} leads nobody; give it another tier"

    def flush(self) -> FlushReport:
        """Turn the most important queued findings into patterns, at most `bubble_max_per_cycle` for each leader. An
        error of the shared leadership goes into `failed`; the exchange is repeated later."""
        failed = self._exchange()
        config, lineages = self._agents.config.current, self._lineages()
        leaders = {row[1] for row in self._queue()} | {
            lineage.leaders[0].id for lineage in lineages.values() if lineage.leaders
        }
        open_leaders = {leader for leader in leaders if not self._block_reason(leader)}
        report = self._database.write(lambda tx: self._flush(tx, config, lineages, open_leaders))
        if report.flushed:
            failed = self._exchange()
        return FlushReport(report.flushed, report.waiting, failed)

    def _queue(self) -> Sequence[tuple[str, str]]:
        """(agent, leader) of the queued findings."""
        queued = col(BubbleRow.state) == BubbleState.QUEUED.value
        with self._database.read() as session:
            return session.exec(select(BubbleRow.agent, BubbleRow.leader).where(queued).distinct()).all()

    def _lineages(self) -> Mapping[str, Lineage]:
        """The present lineages of the agents in the queue, by id; without those whose folder is gone."""
        lineages = {}
        for agent in {row[0] for row in self._queue()}:
            try:
                lineages[agent] = self._agents.lineage(agent)
            except Refusal:
                continue
        return lineages

    def _flush(
        self, tx: Transaction, config: CascadeConfig, lineages: Mapping[str, Lineage], open_leaders: set[str]
    ) -> FlushReport:
        for row in tx.session.exec(_QUEUED).all():
            lineage = lineages.get(row.agent)
            if lineage is not None and lineage.leaders and lineage.leaders[0].id != row.leader:
                self._judge(tx, row, _to_bubble(row).learning, lineage, config)
        tx.session.flush()
        queued = tx.session.exec(_QUEUED).all()
        chosen: dict[str, list[BubbleRow]] = {}
        for row in queued:
            of_leader = chosen.setdefault(row.leader, [])
            may = may_guide(Trust(row.trust), approved=row.approved_at is not None)
            if may and row.leader in open_leaders and len(of_leader) < config.bubble_max_per_cycle:
                of_leader.append(row)
        flushed = {}
        for leader, rows in chosen.items():
            if not rows:
                continue
            for row in rows:
                self._merge_into_pattern(tx, row)
            flushed[leader] = tuple(row.id for row in rows)
            tx.record(
                MemoryBubbleFlushed(
                    subject=leader,
                    bubbles=flushed[leader],
                    patterns=tuple(row.pattern for row in rows),
                    agents=tuple(row.agent for row in rows),
                    confidences=tuple(row.confidence for row in rows),
                    importances=tuple(row.importance for row in rows),
                )
            )
        return FlushReport(flushed, len(queued) - sum(map(len, flushed.values())))

    def _judge(
        self, tx: Transaction, row: BubbleRow, learning: Learning, lineage: Lineage, config: CascadeConfig
    ) -> None:
        """Ask the gates about a learning and its agent's direct leader, and store the results in `row`."""
        above = lineage.leaders[0] if lineage.leaders else None
        leader = None
        if above is not None:
            profile = self._profiles.load_in(tx, above.id)
            patterns = tuple((pattern.key, pattern.text) for pattern in profile.patterns)
            leader = DirectLeader(above.id, above.tier, profile.domain or above.domain, patterns)
        missing = f"{learning.agent} has no leader: its chain {lineage.chain.words}"
        gates = ask_gates(learning, tier=lineage.agent.tier, leader=leader, missing=missing, config=config)
        _store_result(row, learning, item_text(learning.text), above.id if above else "", gates)
        tx.session.add(row)
        last = gates[-1]
        if last.passed:
            tx.record(BubbleQueued(subject=row.id, workspace=row.workspace, agent=row.agent, leader=row.leader))
            return
        tx.record(_refused_event(row, last))

    def _merge_into_pattern(self, tx: Transaction, row: BubbleRow) -> None:
        """Add a finding to the pattern with the same text, else make a new pattern."""
        patterns = self._profiles.load_in(tx, row.leader).patterns
        source = PatternSource(row.learning_id, row.agent, row.session)
        key = find_pattern(row.text, tuple((pattern.key, pattern.text) for pattern in patterns))
        existing = next((pattern for pattern in patterns if pattern.key == key), None)
        if existing is None:
            key = lesson_id(row.text)
            body = {"text": row.text, TRUST: row.trust, APPROVED: row.approved_at is not None}
            self._profiles.write(tx, row.leader, "patterns", key, body, (source,))
        elif source not in existing.sources:
            body = {"text": existing.text, TRUST: existing.trust.value, APPROVED: existing.trust is Trust.QUOTED}
            self._profiles.write(tx, row.leader, "patterns", key, body, (*existing.sources, source))
        row.state, row.pattern, row.flushed_at = BubbleState.FLUSHED.value, key, tx.now
        tx.session.add(row)


def _refused_event(row: BubbleRow, gate: GateResult) -> BubbleRefused:
    gate_name = f"gate {gate.number}, {gate.name}"
    return BubbleRefused(subject=row.id, workspace=row.workspace, agent=row.agent, gate=gate_name, reason=gate.reason)


def _question(bubble: Bubble) -> str:
    question = f"use “{bubble.learning.text}” as guidance from {bubble.leader}?"
    return f"{question} It is a quote: clawpy bubbles approve {bubble.id}"


def _is_stronger(learning: Learning, row: BubbleRow) -> bool:
    return row.state == BubbleState.REFUSED.value and (
        learning.confidence.value > row.confidence or learning.importance.value > row.importance
    )


def _store_result(row: BubbleRow, learning: Learning, text: str, leader: str, gates: Sequence[GateResult]) -> None:
    row.agent, row.leader = learning.agent, leader
    row.state = (BubbleState.QUEUED if gates[-1].passed else BubbleState.REFUSED).value
    row.text = text
    row.category, row.session, row.workspace = item_text(learning.category), learning.session, learning.workspace
    row.trust, row.approved_at = learning.trust.value, None
    row.confidence, row.importance = learning.confidence.value, learning.importance.value
    row.reasons = {
        "confidence": list(learning.confidence.reasons),
        "importance": list(learning.importance.reasons),
        "evidence": [item_text(text) for text in learning.evidence],
    }
    row.gates = [asdict(replace(gate, reason=item_text(gate.reason))) for gate in gates]


def _to_bubble(row: BubbleRow) -> Bubble:
    reasons, trust = row.reasons, Trust(row.trust)
    learning = value_of(
        row,
        Learning,
        id=row.learning_id,
        confidence=Score(row.confidence, tuple(reasons["confidence"])),
        importance=Score(row.importance, tuple(reasons["importance"])),
        evidence=tuple(reasons["evidence"]),
        trust=trust,
    )
    gates = tuple(GateResult(**gate) for gate in row.gates)
    return value_of(row, Bubble, learning=learning, state=BubbleState(row.state), gates=gates)
