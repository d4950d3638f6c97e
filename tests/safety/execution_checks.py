"""Checks what the whole engine let run, in the tests of `engine_machine`, and counts what was tried.

`oracle` computes a second time what must hold: from raw rows, and from what the machine itself did (`MachineState`).
"""

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row

from engine.model import Source
from engine.safety.pipeline import RAIL_ORDER
from tests.safety import oracle
from tests.safety.oracle import CAPS, Query

coverage_counts: Counter[str] = Counter()
"""What all machines of this process have done: steps, executions by kind, blocks by rail."""

MUST_BLOCK = tuple(f"{rail} blocked first" for rail in RAIL_ORDER)
LOOPS = tuple(f"loop blocked: {rule}" for rule in ("reverse", "pair", "depth"))
CAPPED = tuple(f"cost blocked: {window}" for window in CAPS)
EXECUTED = (
    "approved session", "autonomous session", "follow-up session", "session after a restart", "interrupted session",
    "price above its estimate", "price below its estimate",
)  # fmt: skip

NEW_SESSIONS = """\
SELECT s.id, s.mode, s.permit_id, p.kind, p.target_channel, p.confidence, t.digest, t.consumed_at, p.source,
  (SELECT count(*) FROM crosspoll_log l WHERE l.permit_id = s.permit_id AND NOT l.blocked
    AND l.digest = t.digest AND l.prediction_id = s.prediction_id) AS log_rows,
  (SELECT count(*) FROM sessions o WHERE o.permit_id = s.permit_id) AS permit_uses,
  (SELECT count(*) FROM sessions o WHERE o.prediction_id = s.prediction_id AND o.mode = 'autonomous'
    AND json_extract(o.facts, '$.not_begun') IS NULL) AS autonomous_runs
FROM sessions s LEFT JOIN predictions p ON p.id = s.prediction_id LEFT JOIN permits t ON t.id = s.permit_id
WHERE s.rowid > :seen ORDER BY s.rowid
"""


@dataclass
class MachineState:
    """What the machine did to the engine, as it knows itself."""

    heard_at: datetime
    """When the operator was last there."""
    dnd_until: datetime | None = None
    autonomous: bool = True
    """Whether autonomous mode is on."""
    enabled: bool = True
    enabled_this_run: bool = True
    autonomy: str = "act"
    """What the workspace allows."""
    trigger_interval_ms: int = 600_000
    """Milliseconds between triggers that the engine makes by itself."""


@dataclass(frozen=True)
class Facts:
    """The conditions before something is tried, as the machine knows them."""

    holds: set[str]
    """The words of the holds that last still."""
    quiet: bool
    """Whether these are quiet hours, or do not disturb is set."""
    decisions: int
    outcomes: dict[tuple[str, str], tuple[int, int]]
    """How many cards of a kind on a channel were approved, and how many were decided."""
    spent: dict[str, int]
    """Micro-dollars in each window."""
    inactive_for: timedelta

    def count_approvals(self, kind: str, channel: str) -> tuple[int, int]:
        """How many such cards were approved, and how many were decided."""
        return self.outcomes.get((kind, channel), (0, 0))


class ExecutionChecks:
    """Checks the sessions and triggers that are new since the last check. `query` reads the engine's database."""

    def __init__(self, query: Query, state: MachineState):
        self._query = query
        self._state = state
        self.seen_sessions = 0
        self._seen_passed = 0

    def read_facts(self, now: datetime) -> Facts:
        """The conditions at this moment."""
        dnd_until = self._state.dnd_until
        holds = {word for word, until in self._query("SELECT word, until FROM holds")
                 if until is None or datetime.fromisoformat(until) > now}  # fmt: skip
        outcomes = {
            (kind, channel): (approved, decided)
            for kind, channel, approved, decided in self._query(
                "SELECT kind, channel, sum(signal = 'approved' AND NOT edited), count(*) FROM decisions"
                " WHERE taken_back_at IS NULL AND decided_by != 'autonomy'"
                " AND signal IN ('approved', 'dismissed', 'undone', 'discarded') GROUP BY kind, channel"
            )
        }
        return Facts(
            holds=holds,
            quiet=now.hour >= 23 or now.hour < 8 or (dnd_until is not None and now < dnd_until),
            decisions=sum(decided for _, decided in outcomes.values()),
            outcomes=outcomes,
            spent=oracle.read_spent(self._query, now),
            inactive_for=now - self._state.heard_at,
        )

    def check_executions(self, facts: Facts, *, by_cycle: bool = False, restarted: bool = False):
        """Check every trigger that was let through since the last check, and every session that is new."""
        self.check_triggers(facts)
        sessions = self._query(NEW_SESSIONS, seen=self.seen_sessions)
        self.seen_sessions += len(sessions)
        autonomous = [session for session in sessions if session.mode == "autonomous"]
        for session in sessions:
            coverage_counts[f"{session.mode} session"] += 1
            self._check_session(session, facts)
        for session in autonomous:
            self._check_autonomous_session(session, facts)
            if by_cycle:
                # After a restart the last key press is known to half a minute.
                assert facts.inactive_for >= timedelta(minutes=29, seconds=30), f"{session.id}: somebody was there"
        assert restarted or len(autonomous) <= 1, "two at once"

    def _check_session(self, session: Row[Any], facts: Facts):
        """What every session needs: its own used permit that the rails gave, and no stop."""
        assert session.permit_id is not None, f"{session.id} has no permit"
        assert session.digest is not None, f"{session.id} has no permit"
        assert session.consumed_at is not None, f"the permit of {session.id} is not used up"
        assert session.log_rows == 1, f"{session.id} has {session.log_rows} passing rows in the log"
        assert session.permit_uses == 1, f"the permit of {session.id} started {session.permit_uses} sessions"
        assert self._state.enabled, f"{session.id} ran while disabled"
        assert self._state.enabled_this_run, f"{session.id} ran while switched off for this run"
        assert "stop" not in facts.holds, f"{session.id} ran while stopped"
        assert "month" not in facts.holds, f"{session.id} ran in a month stop"

    def _check_autonomous_session(self, session: Row[Any], facts: Facts):
        """What a session that ran by itself needs besides."""
        if session.source == Source.FOLLOW_UP:
            coverage_counts["follow-up session"] += 1
        ran = f"{session.id} ran by itself"
        # If a session could not begin, its card is pending again and may run later (SPEC 3.8).
        assert session.autonomous_runs <= 1, f"{session.id}: its card ran {session.autonomous_runs} times by itself"
        assert self._state.autonomous, f"{ran} though autonomous mode is off"
        assert self._state.autonomy == "act", f"{ran} in a workspace that is {self._state.autonomy}"
        assert "pause" not in facts.holds, f"{ran} while paused"
        assert not facts.quiet, f"{ran} in quiet hours"
        assert facts.decisions >= 30, f"{ran} in phase 0"
        assert session.confidence >= 0.8, f"{ran} with confidence {session.confidence}"
        approved, decided = facts.count_approvals(session.kind, session.target_channel)
        assert oracle.compute_bound(approved, decided) >= 0.8, f"{ran} after {approved} of {decided}"

    def check_triggers(self, facts: Facts):
        """Check every trigger that was let through since the last check: cost, loops and rate."""
        passed = oracle.read_passed(self._query)
        for place in range(self._seen_passed, len(passed)):
            trigger, earlier = passed[place], passed[:place]
            assert oracle.is_within_caps(facts.spent, trigger.estimate), f"{trigger} does not fit {facts.spent}"
            assert oracle.find_loop(earlier, trigger) == "", f"{trigger} closed a loop"
            unattended = [previous.at for previous in earlier if previous.unattended]
            if trigger.unattended and unattended:
                interval = timedelta(milliseconds=self._state.trigger_interval_ms)
                assert trigger.at - unattended[-1] >= interval, f"{trigger} came too soon"
        self._seen_passed = len(passed)

    def count_coverage(self):
        """Count the blocks and prices of this machine, at its end."""
        for reason, verdicts in self._query("SELECT block_reason, verdicts FROM crosspoll_log WHERE blocked"):
            first = reason.partition(":")[0]
            coverage_counts[f"{first} blocked first"] += 1
            for verdict in json.loads(verdicts):
                if verdict["verdict"] == "allow":
                    continue
                coverage_counts[f"{verdict['rail']} blocked"] += 1
                if verdict["rail"] == first and first in ("loop", "cost"):
                    coverage_counts[f"{first} blocked: {verdict['rule']}"] += 1
        for price, estimate in self._query(
            "SELECT c.amount_microusd, c.estimate_microusd FROM cost_entries c"
            " JOIN sessions s ON s.id = c.session_id WHERE c.state = 'settled' AND s.state != 'interrupted'"
        ):
            if price != estimate:
                coverage_counts[f"price {'above' if price > estimate else 'below'} its estimate"] += 1
