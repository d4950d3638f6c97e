"""Findings that agents send up to their leaders: seven gates let them into a queue (SPEC 1.7), and a flush turns them
into patterns (SPEC 1.8).

A flush is one transaction, in which findings leave the queue and become patterns. If an agent has moved to another
leader since, the gates are asked again for the new leader.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlmodel import Field

from engine.events.learning import BubbleApproved, BubbleQueued, BubbleRefused, MemoryBubbleFlushed
from engine.frozen import group_pairs
from engine.hierarchy import CascadeConfig, Lineage, is_leader
from engine.hierarchy.agents import Agents
from engine.hierarchy.profile_text import clean_item
from engine.hierarchy.profiles import Profiles
from engine.lessons import make_lesson_id
from engine.model import (
    AcceptedFinding,
    Bubble,
    BubbleState,
    FlushReport,
    GateResult,
    LeaderProfile,
    OfferedFinding,
    PatternSource,
    ProfileEdit,
    ProfileItem,
    Refusal,
    Score,
    Trust,
    Waiting,
)
from engine.randomness import Randomness
from engine.storage import Row, load_all, load_first, read_all, shallow_dict, value_of
from engine.storage.database import Database, Transaction
from engine.text import jaccard, sanitise, split_prompt_words
from engine.wording import count, span

MAX_WAITING = 500
"""Maximum number of queued findings that are read for the operator's list."""


class BubbleRow(Row, table=True):
    """One finding of a worker, with the results of the gates."""

    __tablename__ = "bubbles"

    id: str = Field(primary_key=True)
    learning_id: str
    agent: str = ""
    leader: str = ""
    state: BubbleState
    text: str = ""
    category: str = ""
    session: str = ""
    workspace: str = ""
    confidence: Score
    importance: Score
    evidence: tuple[str, ...]
    gates: tuple[GateResult, ...]
    at: datetime
    flushed_at: datetime | None = None
    pattern: str = ""
    trust: Trust
    approved_at: datetime | None = None

    @property
    def bubble(self) -> Bubble:
        """The finding of this row."""
        return value_of(self, Bubble, learning=value_of(self, OfferedFinding, id=self.learning_id))


_WHERE_QUEUED = f"WHERE state = '{BubbleState.QUEUED}' ORDER BY json_extract(importance, '$.value') DESC, at, id"
"""The findings that wait, the most important first."""

_WHERE_ACCEPTED = f"WHERE state = '{BubbleState.FLUSHED}' AND workspace = :workspace ORDER BY flushed_at DESC, id"
"""The findings of a workspace that became patterns, newest first."""


class Bubbles:
    """The queue of one home. `exchange()` synchronises profiles with the shared database. It returns the error, "" for
    none, and never raises."""

    def __init__(
        self,
        database: Database,
        agents: Agents,
        profiles: Profiles,
        *,
        randomness: Randomness,
        exchange: Callable[[], str],
    ) -> None:
        self._database = database
        self._agents = agents
        self._profiles = profiles
        self._randomness = randomness
        self._exchange = exchange

    def offer(self, finding: OfferedFinding) -> Bubble:
        """Ask the gates about a finding, and store it with their results. One that was offered before is asked about
        again only if it was refused and is more certain or important now.

        Raises `Refusal`: `unknown_agent`, `bad_learning` for an empty text.
        """
        finding = replace(
            finding,
            text=clean_item(finding.text),
            category=clean_item(finding.category),
            evidence=tuple(map(clean_item, finding.evidence)),
        )
        if not finding.text:
            raise Refusal("bad_learning", f"{finding.id} is empty", "write a text for it")

        def judge(tx: Transaction) -> Bubble:
            row = load_first(tx.session, BubbleRow, "WHERE learning_id = :id", {"id": finding.id})
            if row is None:
                created = {"id": self._randomness.new_id("bub"), "learning_id": finding.id, "at": tx.now}
                row = BubbleRow(**shallow_dict(finding) | created)
            elif row.state is not BubbleState.REFUSED or (
                finding.confidence.value <= row.confidence.value and finding.importance.value <= row.importance.value
            ):
                return row.bubble
            row.sqlmodel_update(shallow_dict(finding) | {"id": row.id})
            self._judge(tx, row, self._agents.find_lineage(row.agent))
            return row.bubble

        return self._database.write(judge)

    def approve(self, bubble_id: str) -> Bubble:
        """Approve a quote (SPEC 6.8), so that the next flush takes it. Raises `Refusal`: `unknown_bubble`,
        `not_waiting`."""

        def store_approval(tx: Transaction) -> Bubble:
            row = tx.session.get(BubbleRow, bubble_id)
            if row is None:
                raise Refusal("unknown_bubble", f"there is no bubble {sanitise(bubble_id)[:60]}", "clawpy bubbles list")
            if row.state is not BubbleState.QUEUED or row.bubble.may_guide:
                raise Refusal("not_waiting", f"{row.id} does not need your approval", "clawpy bubbles list")
            row.approved_at = tx.now
            tx.record(value_of(row, BubbleApproved, subject=row.id))
            return row.bubble

        return self._database.write(store_approval)

    def refuse_retracted(self, lesson: str) -> None:
        """Refuse the queued findings with a lesson that was retracted."""

        def refuse(tx: Transaction) -> None:
            for row in load_all(tx.session, BubbleRow, _WHERE_QUEUED):
                if make_lesson_id(row.text) == lesson:
                    gate = GateResult(len(GATE_NAMES), GATE_NAMES[-1], False, "you retracted it")
                    row.state, row.gates = BubbleState.REFUSED, (*row.gates[:-1], gate)
                    _record_refused(tx, row)

        self._database.write(refuse)

    def list_bubbles(self, *, state: BubbleState | None = None, agent: str = "", limit: int = 100) -> Sequence[Bubble]:
        """The findings, newest first; of one state, or sent or received by one agent, if given."""
        conditions = ["TRUE"]
        if state is not None:
            conditions.append("state = :state")
        if agent:
            conditions.append(":agent IN (agent, leader)")
        clauses = f"WHERE {' AND '.join(conditions)} ORDER BY at DESC, id LIMIT :limit"
        values = {"state": state, "agent": agent, "limit": limit}
        with self._database.read() as session:
            return [row.bubble for row in read_all(session, BubbleRow, clauses, values)]

    def list_accepted(self, workspace: str) -> Sequence[AcceptedFinding]:
        """The findings of a workspace that became patterns, newest first, in their present wording."""
        with self._database.read() as session:
            rows = read_all(session, BubbleRow, _WHERE_ACCEPTED, {"workspace": workspace})
        profiles = self._profiles.read_all(sorted({row.leader for row in rows}))
        accepted: dict[tuple[str, str], AcceptedFinding] = {}
        for row in rows:
            if text := profiles[row.leader].find_text("patterns", row.pattern):
                finding = value_of(row, AcceptedFinding, text=text, at=row.flushed_at)
                accepted.setdefault((row.leader, row.pattern), finding)
        return list(accepted.values())

    def waiting(self) -> Sequence[Waiting]:
        """The entries in the operator's queue (SPEC 9.3): one for each quote, and one for each leader with findings,
        which says what blocks the findings or when they go up."""
        queued = self.list_bubbles(state=BubbleState.QUEUED, limit=MAX_WAITING)[::-1]
        config = self._agents.config.current
        interval = span(timedelta(seconds=config.m2_interval_seconds))
        entries = []
        for bubble in queued:
            if not bubble.may_guide:
                text = bubble.learning.text
                question = f"use “{text}” as guidance from {bubble.leader}? It is a quote"
                title = f"{question}: clawpy bubbles approve {bubble.id}"
                entries.append(Waiting("bubble", bubble.id, title, bubble.at, text=text))
        for leader, bubbles in group_pairs((item.leader, item) for item in queued if item.may_guide).items():
            findings, goes, text = count(len(bubbles), "finding"), "go", ""
            pace = f" within {interval}"
            if len(bubbles) > config.bubble_max_per_cycle:
                pace = f", {config.bubble_max_per_cycle} every {interval}"
            if len(bubbles) == 1:
                goes, text = "goes", f": “{bubbles[0].learning.text}”"
            title = f"{findings} {goes} to {leader}{pace}{text} (now: clawpy bubbles flush)"
            if obstacle := self._find_obstacle(leader):
                title = f"{findings} for {leader}: {obstacle}"
            entries.append(Waiting("bubble", bubbles[0].id, title, bubbles[0].at))
        return entries

    def flush(self) -> FlushReport:
        """Turn the most important queued findings into patterns, at most `bubble_max_per_cycle` for each leader. An
        error of the exchange with the shared database is in `failed` of the report; the exchange is repeated later."""
        failed = self._exchange()
        report = self._database.write(self._flush)
        if report.flushed:
            failed = self._exchange()
        return replace(report, failed=failed)

    def _flush(self, tx: Transaction) -> FlushReport:
        """Flush the queue in one transaction."""
        for row in load_all(tx.session, BubbleRow, _WHERE_QUEUED):
            self._judge_again_if_moved(tx, row)
        queued = load_all(tx.session, BubbleRow, _WHERE_QUEUED)
        max_per_leader = self._agents.config.current.bubble_max_per_cycle
        flushed: dict[str, tuple[str, ...]] = {}
        by_leader = group_pairs((row.leader, row) for row in queued if row.bubble.may_guide)
        for leader in sorted(by_leader):
            if self._find_obstacle(leader):
                continue
            rows = by_leader[leader][:max_per_leader]
            for row in rows:
                self._merge_into_pattern(tx, row)
            flushed[leader] = tuple(row.id for row in rows)
            tx.record(
                MemoryBubbleFlushed(
                    subject=leader,
                    bubbles=flushed[leader],
                    patterns=tuple(row.pattern for row in rows),
                    agents=tuple(row.agent for row in rows),
                    confidences=tuple(row.confidence.value for row in rows),
                    importances=tuple(row.importance.value for row in rows),
                )
            )
        return FlushReport(flushed, len(queued) - sum(map(len, flushed.values())))

    def _judge_again_if_moved(self, tx: Transaction, row: BubbleRow) -> None:
        """Ask the gates of the new leader about a finding whose agent has another leader now. If the agent has none,
        the finding still goes to the former leader."""
        try:
            lineage = self._agents.find_lineage(row.agent)
        except Refusal:  # the agent's folder is gone
            return
        if lineage.leaders and lineage.leaders[0].id != row.leader:
            self._judge(tx, row, lineage)

    def _find_obstacle(self, leader: str) -> str:
        """Why a leader receives no findings, and how to fix it; "" if it does. It reads only folders, because `_flush`
        calls it within a transaction."""
        if not self._agents.config.current.bubble_max_per_cycle:
            return "bubble_max_per_cycle is 0 in wisdom_cascade_config.json"
        try:
            agent = self._agents.find_lineage(leader).agent
        except Refusal:
            return f"{leader} does not exist; give its agents another leader"
        if agent.broken:
            return f"its folder is broken: {agent.broken}"
        return "" if is_leader(agent.tier) else f"tier {agent.tier} leads nobody; give it another tier"

    def _judge(self, tx: Transaction, row: BubbleRow, lineage: Lineage) -> None:
        """Ask the gates about a finding and the direct leader of its agent, and store the results."""
        leader = lineage.leaders[0] if lineage.leaders else None
        profile = self._profiles.read_within(tx.session, [leader.id])[leader.id] if leader else LeaderProfile("")
        row.gates = gates = ask_gates(row.bubble.learning, lineage, profile, self._agents.config.current)
        row.leader, row.approved_at = leader.id if leader else "", None
        row.state = BubbleState.QUEUED if gates[-1].passed else BubbleState.REFUSED
        tx.session.add(row)
        if gates[-1].passed:
            tx.record(value_of(row, BubbleQueued, subject=row.id))
        else:
            _record_refused(tx, row)

    def _merge_into_pattern(self, tx: Transaction, row: BubbleRow) -> None:
        """Add a finding to the pattern that says the same, whose text stays; if there is none, make a new pattern."""
        pattern = find_pattern(row.text, self._profiles.read_within(tx.session, [row.leader])[row.leader].patterns)
        pattern = pattern or ProfileItem(make_lesson_id(row.text), row.text, trust=row.trust)
        source = PatternSource(row.learning_id, row.agent, row.session)
        if source not in pattern.sources:
            change = ProfileEdit("patterns", (pattern.text,), pattern.key)
            self._profiles.add_version(tx, row.leader, change, trust=pattern.trust, sources=(source,))
        row.state, row.pattern, row.flushed_at = BubbleState.FLUSHED, pattern.key, tx.now


GATE_NAMES = ("enabled", "confidence", "importance", "tier", "leader", "domain", "novelty")
"""The names of the gates in the order in which they are asked."""


def ask_gates(
    finding: OfferedFinding, lineage: Lineage, profile: LeaderProfile, config: CascadeConfig
) -> tuple[GateResult, ...]:
    """Ask the gates in order until one refuses. If all pass, there are seven results. `lineage` is that of the worker,
    and `profile` that of its direct leader."""

    def answer_gates() -> Iterator[tuple[bool, str]]:
        """(whether the finding passes, reason) of each gate in turn."""
        is_enabled = config.enable_upward_bubbling
        yield is_enabled, "sending up is on" if is_enabled else "enable_upward_bubbling is off"
        minima = config.bubble_min_confidence, config.bubble_min_importance
        for score, minimum in zip((finding.confidence, finding.importance), minima, strict=True):
            yield score.value >= minimum, f"{score.value:.2f} of {minimum:.2f}: {'; '.join(score.reasons)}"
        worker = lineage.agent
        is_worker = not is_leader(worker.tier)
        yield is_worker, f"tier {worker.tier} {'is' if is_worker else 'leads and is not'} a worker"
        if not lineage.leaders:
            yield False, f"{finding.agent} has no leader: its chain {lineage.end}"
            return
        leader = lineage.leaders[0]
        is_synced = is_leader(leader.tier)
        yield is_synced, f"{leader.id}, tier {leader.tier}, {'is' if is_synced else 'is not'} synced"
        yield is_relevant(finding.category, profile.domain or leader.domain)
        pattern = find_pattern(finding.text, profile.patterns)
        yield pattern is None, f"{leader.id} already has it as {pattern.key}" if pattern else f"new to {leader.id}"

    results: list[GateResult] = []
    answers = zip(GATE_NAMES, answer_gates(), strict=False)
    for number, (name, (passed, reason)) in enumerate(answers, 1):
        results.append(GateResult(number, name, passed, clean_item(reason)))
        if not passed:
            break
    return tuple(results)


MIN_SIMILARITY = 0.6
"""Minimum similarity of two texts that are the same."""


def find_pattern(text: str, patterns: Sequence[ProfileItem]) -> ProfileItem | None:
    """The most similar pattern, None if none is similar enough. The similarity is the share of common words, and 1 for
    the same lesson."""
    lesson, words = make_lesson_id(text), split_prompt_words(text)

    def rank(pattern: ProfileItem) -> tuple[float, str]:
        similarity = 1.0 if pattern.key == lesson else jaccard(words, split_prompt_words(pattern.text))
        return similarity, pattern.key

    best = max(patterns, key=rank, default=None)
    return best if best and rank(best)[0] >= MIN_SIMILARITY else None


GENERIC_DOMAINS = frozenset({"executive", "general", "operations"})
"""Domains to which every category belongs."""

_WORD = re.compile(r"[^\W_]+")


def is_relevant(category: str, domain: str) -> tuple[bool, str]:
    """(whether a finding of this category is relevant to a leader of this domain, reason) (SPEC 1.7)."""
    leader_domain = domain.strip().lower()
    if leader_domain in GENERIC_DOMAINS:
        return True, f"{leader_domain} accepts everything"
    category_words, domain_words = set(_WORD.findall(category.lower())), set(_WORD.findall(leader_domain))
    shared = sorted(category_words & domain_words)
    if not category_words:
        return False, "it has no category, so only generic leaders receive it"
    if not domain_words:
        return True, "the leader has no domain"
    return bool(shared), f"shares {', '.join(shared)}" if shared else f"{category!r} shares no word with {domain!r}"


_TOPIC_WORDS = {
    "tests": r"tests?|pytest|coverage|fixtures?|assert\w*",
    "documentation": r"docs?|docstrings?|readme|documentation|manual|change ?log",
    "writing": r"sentences?|words?|spelling|tone|titles?|summar(?:y|ies)|prose",
    "frontend interface": r"buttons?|screens?|layout|colou?rs?|css|dialogs?|pages?",
    "backend": r"database|schema|migrations?|api|endpoints?|servers?|sql|quer(?:y|ies)",
    "code": r"functions?|class(?:es)?|modules?|types?|lint\w*|imports?|refactor\w*|variables?|exceptions?|comments?",
    "finance": r"costs?|prices?|budgets?|money|cents?",
    "research analysis": r"sources?|figures?|measure\w*|evidence|benchmarks?",
}
"""The words of each topic. A leader gets the findings on the topics of its domain."""


def find_topics(text: str, work: str = "") -> str:
    """The category of a finding: the topics of its text and of the `work` in which it was made, in words."""
    named = [topic for topic, words in _TOPIC_WORDS.items() if re.search(rf"\b(?:{words})\b", text, re.IGNORECASE)]
    return " ".join(dict.fromkeys(re.findall(r"[a-z0-9]+", " ".join([*named, work]).lower())))


def _record_refused(tx: Transaction, row: BubbleRow) -> None:
    """Record which gate refused a finding, and why."""
    gate = row.gates[-1]
    name = f"gate {gate.number}, {gate.name}"
    tx.record(value_of(row, BubbleRefused, subject=row.id, gate=name, reason=gate.reason))
