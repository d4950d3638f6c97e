"""Ledger entries become records once, each kind with its label, scope and score (SPEC 5.1)."""

import pytest

from engine.config import MODEL
from engine.events import Event
from engine.events.engine import BudgetExceeded, CloudSyncFailed
from engine.events.learning import (
    CloudMemoryRecalled,
    FactPromoted,
    GuidanceApplied,
    GuidanceFoundNoisy,
    GuidanceFoundStale,
    MemoryBubbleFlushed,
    OverlayFoundHarmful,
    TeachingRefreshed,
)
from engine.events.work import ChangeSetLanded, PermissionAnswered, PredictionConfirmed, WorkOverlapped
from engine.learning.candidates.reflection import ENTRY_CURSOR
from engine.storage import state
from tests.learning.candidates.adaptation_world import (
    AGENT,
    SHOP,
    TOTAL,
    AdaptationWorld,
    make_agent_erred,
    make_retry_repeated,
    make_validation_failed,
)

HERE = {"workspace": SHOP}

# Events as their producers record them

FLUSHED = MemoryBubbleFlushed(
    subject="cto", bubbles=("bub_1", "bub_2"), patterns=("p1", "p2"), agents=(AGENT, "other"), confidences=(0.9, 0.75),
    importances=(0.7, 0.6),
)  # fmt: skip
NOISY = GuidanceFoundNoisy(
    subject="cto#patterns/x", leader="cto", agent=AGENT, wording="w", told=12, told_bad=9, untold=12, untold_bad=2,
    harm=0.1,
)  # fmt: skip
STALE = GuidanceFoundStale(subject="cto#patterns/x", leader="cto", wording="w", days=200, most=180, told=4)
HARMFUL = OverlayFoundHarmful(
    subject="over_1", **HERE, candidate_id="cand_1", type="prompt_fragment", agent=AGENT, with_runs=12, with_good=3,
    without_runs=12, without_good=10, difference=-0.58, low=-0.85, high=-0.12,
)  # fmt: skip
RECALLED = CloudMemoryRecalled(
    subject=AGENT, **HERE, session_id="sess_1", call="call_1", memories=("mem_1", "mem_2"), origins=("h1", "h1")
)
LANDED = ChangeSetLanded(subject="chg_1", **HERE, session_id="sess_1", files=2)
OVERLAPPED = WorkOverlapped(
    subject="chg_2", **HERE, session_id="sess_1", agent=AGENT, other="chg_1", other_session_id="sess_0",
    files=("a.py", "b.py"), conflicting=("a.py",),
)  # fmt: skip
GUIDED = GuidanceApplied(
    subject=AGENT, **HERE, session_id="sess_1", call="call_1", chain=("cto",), sources=("cto",),
    items=("cto#patterns/1", "cto#patterns/2", "cto#patterns/3"), wordings=("w", "w", "w"), tokens=40,
)  # fmt: skip
APPROVED = PredictionConfirmed(subject="pred_1", **HERE, decided_by="operator")
EDITED = PredictionConfirmed(subject="pred_edited", **HERE, decided_by="operator", edited=True)
KEPT = FactPromoted(subject="fact_1", **HERE, by="operator")
UNSHARED = CloudSyncFailed(subject="leadership", message="no route", unsent=10)


def make_permission_answered(answer: str) -> Event:
    return PermissionAnswered(subject="perm_1", **HERE, session_id="sess_1", tool="exec", answer=answer, by="")


@pytest.mark.parametrize(
    "event, expected",
    [
        (make_validation_failed("sess_1"), [f"failed_tdd/{TOTAL} workspace {SHOP} 80.0"]),
        (make_retry_repeated("sess_1"), [f"repeated_retry agent {AGENT} 85.0"]),
        (OVERLAPPED, [f"task_conflict agent {AGENT} 66.5"]),
        (BudgetExceeded(subject=AGENT, spent=1_500_000, budget=1_000_000), [f"budget_incident agent {AGENT} 80.0"]),
        (APPROVED, [f"human_approval/card workspace {SHOP} 20.0"]),
        (PredictionConfirmed(subject="pred_1", **HERE, decided_by="autonomy"), []),
        (EDITED, [f"human_approval/edited:koji-core:run-tests agent {AGENT} 82.9"]),
        (make_permission_answered("allow-once"), [f"human_approval/permission:exec workspace {SHOP} 25.0"]),
        (make_permission_answered("deny-once"), []),
        (LANDED, [f"human_approval/change_set workspace {SHOP} 29.0"]),
        (KEPT, [f"human_approval/fact:prices-are-whole-cents workspace {SHOP} 65.0"]),
        (make_agent_erred("sess_1"), [f"agent_error/edit/no_match agent {AGENT} 60.0"]),
        (make_agent_erred("sess_1", MODEL), [f"agent_error/{MODEL}/no_match agent {AGENT} 40.0"]),
        (FLUSHED, [f"successful_bubble agent {AGENT} 80.0", "successful_bubble agent other 67.5"]),
        (GUIDED, [f"guidance_applied agent {AGENT} 31.0"]),
        (NOISY, [f"guidance_noisy agent {AGENT} 68.0"]),
        (HARMFUL, [f"guidance_noisy/overlay agent {AGENT} 69.6"]),
        (STALE, ["stale_guidance leader cto 50.2"]),
        (TeachingRefreshed(taught=3, unchanged=1), ["teaching_refresh leader  40.0"]),
        (UNSHARED, ["cloud_sync_failure/leadership leader  60.0"]),
        (RECALLED, [f"cloud_memory_recall_hit/mem_{number} agent {AGENT} 45.0" for number in (1, 2)]),
    ],
)  # fmt: skip
def test_each_event_becomes_its_records_once(world: AdaptationWorld, event: Event, expected: list[str]):
    world.record(event)
    assert world.adaptation.catch_up() == len(expected)
    records = world.adaptation.list_records()[::-1]
    assert [f"{item.source_label} {item.scope_type} {item.scope_id} {item.score}" for item in records] == expected
    assert all(record.reason and record.id.startswith("rec_") and record.ledger_id for record in records)
    # The entries are read again, as after a crash before the cursor was stored.
    world.database.write(lambda tx: state.put(tx, ENTRY_CURSOR, 0))
    assert world.reopen().catch_up() == len(expected)
    assert world.adaptation.list_records()[::-1] == records
