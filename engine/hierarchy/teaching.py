"""Soul enrichment (M2; SPEC 1.6): writes leaders' guidance into one marked section of each worker's `soul.md`.

The rest of the file stays byte for byte, a second round changes nothing, and the file is replaced atomically. Recent
decisions are not written: they are short-lived, and only M1 has them.
"""

from __future__ import annotations

import difflib
import itertools
import logging
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

from engine.clock import Clock
from engine.events.learning import SoulRewritten, TeachingRefreshed
from engine.files import GUIDANCE_MARKS, read_plain, write_atomic, write_section
from engine.frozen import frozen, group_pairs
from engine.hierarchy import MAX_FILE_BYTES, is_leader
from engine.hierarchy.agents import Agents
from engine.hierarchy.bubbles import Bubbles
from engine.hierarchy.guidance import Cascade, format_item
from engine.hierarchy.guided_sessions import GuidedSessions
from engine.hierarchy.profiles import Profiles
from engine.model import FlushReport, Guidance, Refusal, TeachingOutcome, TeachingResult, TeachingState
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.text import sanitise

log = logging.getLogger(__name__)

LAST_ROUND_KEY = "hierarchy.taught"
"""Key in the state table: the time of the last round."""

HEADINGS = {"principles": "Principles", "patterns": "Patterns", "guardrails": "Guardrails"}
"""The sections that are written into a soul, and their headings."""


def format_inherited_section(guidance: Guidance) -> str:
    """The text of the inherited section of one agent, "" if its leaders have no guidance for it. Pure."""
    lines: list[str] = []
    for hop in guidance.hops:
        items = group_pairs((item.section, f"- {format_item(item.text, item.trust)}") for item in hop.kept)
        sections = [("", f"{title}:", "", *items[section]) for section, title in HEADINGS.items() if section in items]
        if sections:
            lines += ["", f"### From {hop.leader}", *itertools.chain(*sections)]
    head = ["## Inherited Wisdom", "", "Written by Clawpy from what your leaders know; edits here are overwritten."]
    return "\n".join(head + lines) if lines else ""


@frozen
class _SoulChange:
    """A soul as it is, and as it would be with the guidance of these leaders."""

    before: bytes
    after: bytes
    leaders: tuple[str, ...]


class Teaching:
    """Writes the guidance of leaders into the souls of their workers. If rounds overlap, a soul that another round
    just wrote is reported, and the next round tries again."""

    def __init__(self, database: Database, agents: Agents, cascade: Cascade, *, clock: Clock) -> None:
        self._database = database
        self._agents = agents
        self._cascade = cascade
        self._clock = clock

    @property
    def is_enabled(self) -> bool:
        """Whether `enable_m2` asks for rounds by schedule."""
        return self._agents.config.current.enable_m2

    def teach_workers(self) -> list[TeachingResult]:
        """Teach every worker. A soul that cannot be read or written is reported, and the others are taught."""
        results = []
        for agent_id in self._agents.list_ids():
            try:
                if not is_leader(self._agents.find_lineage(agent_id).agent.tier):
                    results.append(self._teach(agent_id))
            except (OSError, ValueError, Refusal) as error:
                results.append(TeachingResult(agent_id, TeachingOutcome.SKIPPED, sanitise(str(error))))
                log.warning("%s was not taught: %s", agent_id, error)
        now = self._clock.now().isoformat()
        outcomes = Counter(result.outcome for result in results)

        def store_round(tx: Transaction) -> None:
            state.put(tx, LAST_ROUND_KEY, now)
            if outcomes and not outcomes[TeachingOutcome.SKIPPED]:
                taught, unchanged = outcomes[TeachingOutcome.TAUGHT], outcomes[TeachingOutcome.UNCHANGED]
                tx.record(TeachingRefreshed(taught=taught, unchanged=unchanged))

        self._database.write(store_round)
        return results

    def describe_state(self, agent_id: str) -> TeachingState:
        """The time of an agent's last and next round, and the changes that a round would make. Raises `Refusal`
        `unknown_agent`."""
        config, last_round, now = self._agents.config.current, self.read_last_round(), self._clock.now()
        tier = self._agents.find_lineage(agent_id).agent.tier
        if is_leader(tier):
            return TeachingState(
                agent_id, config.enable_m2, None, None, reason=f"tier {tier} leads, so it is not taught"
            )
        next_round = now if last_round is None else max(now, last_round + timedelta(seconds=config.m2_interval_seconds))
        diff = reason = ""
        try:
            change = self._plan_change(self._agents.locate_soul(agent_id), agent_id)
        except (OSError, ValueError) as error:
            reason = sanitise(str(error))
        else:
            before, after = (
                sanitise(soul.decode(errors="replace")).splitlines() for soul in (change.before, change.after)
            )
            diff = "\n".join(difflib.unified_diff(before, after, "soul.md", "soul.md", lineterm=""))
        next_at = next_round if config.enable_m2 else None
        return TeachingState(agent_id, config.enable_m2, last_round, next_at, diff, reason)

    def read_last_round(self) -> datetime | None:
        """The time of the last round, None before the first."""
        with self._database.read() as session:
            stored = state.get(session, LAST_ROUND_KEY)
        return datetime.fromisoformat(stored) if stored else None

    def _teach(self, agent_id: str) -> TeachingResult:
        """Write the guidance of an agent's leaders into its soul."""
        file = self._agents.locate_soul(agent_id)
        change = self._plan_change(file, agent_id)
        if change.after == change.before:
            return TeachingResult(agent_id, TeachingOutcome.UNCHANGED)
        if read_plain(file, MAX_FILE_BYTES) != change.before:
            raise ValueError("its soul.md is being edited; the next round tries again")
        write_atomic(file, change.after)
        self._database.record(SoulRewritten(subject=agent_id, leaders=change.leaders))
        return TeachingResult(agent_id, TeachingOutcome.TAUGHT)

    def _plan_change(self, file: Path, agent_id: str) -> _SoulChange:
        """What the guidance of now would change in a soul; nothing is written."""
        try:
            before = read_plain(file, MAX_FILE_BYTES)
        except ValueError as error:
            raise ValueError(f"{file} {error}") from error
        guidance = self._cascade.guidance(agent_id, in_prompts=False)
        after = write_section(before, format_inherited_section(guidance), GUIDANCE_MARKS)
        return _SoulChange(before, after, tuple(hop.leader for hop in guidance.hops if hop.kept))


def run_round(bubbles: Bubbles, guided_sessions: GuidedSessions, teaching: Teaching) -> FlushReport:
    """Flush the queue, report outdated guidance, and with `enable_m2` teach every worker (SPEC 1.6, 1.8, 5.1)."""
    report = bubbles.flush()
    guided_sessions.review()
    if teaching.is_enabled:
        teaching.teach_workers()
    return report


def remove_lesson(lesson: str, bubbles: Bubbles, profiles: Profiles, teaching: Teaching) -> None:
    """Remove a retracted lesson from the queue, from profiles, and from souls."""
    bubbles.refuse_retracted(lesson)
    if profiles.remove_lesson(lesson) and teaching.read_last_round() is not None:
        teaching.teach_workers()
