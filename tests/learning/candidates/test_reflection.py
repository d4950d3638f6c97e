"""Every kind of record from the fact of its real producer, once, and once again harmlessly (SPEC 5.1)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from engine.events import (
    BudgetExceeded,
    ChangeSetBranched,
    ChangeSetLanded,
    ChangeSetNarrowed,
    CloudMemoryRecalled,
    CloudSyncFailed,
    Event,
    FactPromoted,
    GuidanceApplied,
    GuidanceFoundNoisy,
    GuidanceFoundStale,
    MemoryBubbleFlushed,
    OverlayFoundHarmful,
    PermissionAnswered,
    PredictionConfirmed,
    TeachingRefreshed,
    WorkOverlapped,
)
from engine.learning.candidates.entry_readers import OPPORTUNITY
from engine.learning.candidates.records import HealedTests
from engine.learning.candidates.reflection import ENTRY_CURSOR
from engine.storage import state
from tests.learning.candidates.world import (
    AGENT,
    SHOP,
    TOTAL,
    World,
    called,
    erred,
    failed,
    over_budget,
    para_fact,
    retried,
    rewritten,
)

HERE = {"workspace": SHOP}


def overlap(session: str = "sess_1", conflicting: tuple[str, ...] = ("a.py",)) -> Event:
    return WorkOverlapped(
        subject="chg_2", **HERE, session_id=session, agent=AGENT, other="chg_1", other_session_id="sess_0",
        files=("a.py", "b.py"), conflicting=conflicting,
    )  # fmt: skip


def guided(items: int = 3) -> Event:
    return GuidanceApplied(
        subject=AGENT, **HERE, session_id="sess_1", call="call_1", chain=("cto",), sources=("cto",),
        items=tuple(f"cto#patterns/{n}" for n in range(items)), wordings=("w",) * items, tokens=40,
    )  # fmt: skip


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
APPROVED = PredictionConfirmed(subject="pred_1", **HERE, decided_by="operator")
EDITED = PredictionConfirmed(subject="pred_edited", **HERE, decided_by="operator", edited=True)
UNSHARED = CloudSyncFailed(subject="leadership", message="no route", unsent=10)


def kept(fact: str, by: str = "operator") -> Event:
    return FactPromoted(subject=fact, **HERE, by=by)


def permitted(answer: str, by: str = "") -> Event:
    return PermissionAnswered(subject="perm_1", **HERE, session_id="sess_1", tool="exec", answer=answer, by=by)


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        (failed("sess_1"), [(f"failed_tdd/{TOTAL}", "workspace", SHOP, 80.0)]),
        (retried("sess_1"), [("repeated_retry", "agent", AGENT, 85.0)]),
        (overlap(), [("task_conflict", "agent", AGENT, 66.5)]),
        (overlap(conflicting=()), [("task_conflict", "agent", AGENT, 28.0)]),
        (over_budget(), [("budget_incident", "agent", AGENT, 80.0)]),
        (APPROVED, [("human_approval/card", "workspace", SHOP, 20.0)]),
        (PredictionConfirmed(subject="pred_1", **HERE, decided_by="autonomy"), []),
        (EDITED, [("human_approval/edited:koji-core:run-tests", "agent", AGENT, 82.9)]),
        (permitted("allow-once"), [("human_approval/permission:exec", "workspace", SHOP, 25.0)]),
        (permitted("allow-session"), [("human_approval/permission:exec", "workspace", SHOP, 30.0)]),
        (permitted("deny-once"), []),
        (permitted("allow-once", by="perm_0"), []),  # no new word of the operator's
        (LANDED, [("human_approval/change_set", "workspace", SHOP, 29.0)]),
        (kept("fact_1"), [("human_approval/fact:prices-are-whole-cents", "workspace", SHOP, 65.0)]),
        (kept("fact_1", by="nightly"), []),
        (kept("fact_gone"), []),
        (erred("sess_1"), [("agent_error/edit/no_match", "agent", AGENT, 60.0)]),
        (FLUSHED, [("successful_bubble", "agent", AGENT, 80.0), ("successful_bubble", "agent", "other", 67.5)]),
        (guided(), [("guidance_applied", "agent", AGENT, 31.0)]),
        (NOISY, [("guidance_noisy", "agent", AGENT, 68.0)]),
        (HARMFUL, [("guidance_noisy/overlay", "agent", AGENT, 69.6)]),
        (STALE, [("stale_guidance", "leader", "cto", 50.2)]),
        (TeachingRefreshed(taught=3, unchanged=1), [("teaching_refresh", "leader", "", 40.0)]),
        (UNSHARED, [("cloud_sync_failure/leadership", "leader", "", 60.0)]),
        (RECALLED, [(f"cloud_memory_recall_hit/mem_{number}", "agent", AGENT, 45.0) for number in (1, 2)]),
    ],
)  # fmt: skip
def test_a_fact_becomes_its_records(world: World, fact: Event, expected: list[tuple[str, str, str, float]]) -> None:
    world.told.rewritten["pred_edited"] = rewritten("Fix the total", "Fix the total and run the tests too")
    world.told.facts["fact_1"] = para_fact("Prices are whole cents.")
    world.happened(fact)
    assert world.adaptation.read_ledger() == len(expected)
    found = world.adaptation.records()[::-1]
    assert [(one.source_label, one.scope_type, one.scope_id, one.score) for one in found] == expected
    assert all(one.reason and one.id.startswith("rec_") and one.fact for one in found)
    # Read again, as after a crash before the cursor was stored.
    world.database.write(lambda tx: state.put(tx, ENTRY_CURSOR, 0))
    assert world.opened().read_ledger() == len(expected)
    assert world.adaptation.records()[::-1] == found


def test_a_landing_that_turned_tests_green_is_a_heal_of_each(world: World) -> None:
    cause = "TypeError: no discount in cart.py"
    world.told.turned_green["sess_1"] = HealedTests({TOTAL: cause, "t.py::other": ""}, "shop", AGENT, 20_000)
    world.happened(LANDED)
    world.adaptation.read_ledger()
    other, one, _ = world.adaptation.records()
    assert [one.source_label, other.source_label] == ["successful_heal/t.py::other", f"successful_heal/{TOTAL}"]
    assert (other.scope_type, other.scope_id, other.agent) == ("workspace", SHOP, AGENT)
    assert other.details["causes"] == [cause]
    assert (other.details["landed"], other.details["project"]) == ("chg_1", "shop")
    assert other.score >= OPPORTUNITY


@pytest.mark.parametrize("end", [
    LANDED,
    ChangeSetNarrowed(subject="chg_1", **HERE, session_id="sess_1", files=2),
    ChangeSetBranched(subject="chg_1", **HERE, session_id="sess_1", branch="clawpy/fix", landed=2),
])  # fmt: skip
def test_what_was_landed_in_parts_is_approved_and_healed_once(world: World, end: Event) -> None:
    world.told.turned_green["sess_1"] = HealedTests({TOTAL: ""}, "shop", AGENT, 20_000)
    world.happened(replace(LANDED, files=1, left=1))
    assert world.adaptation.read_ledger() == 0, "what becomes of the rest is not known yet"
    world.happened(end, replace(LANDED, files=1, left=1), LANDED)
    world.adaptation.read_ledger()
    heal, approval = world.adaptation.records()
    assert (approval.source_label, approval.details["files"]) == ("human_approval/change_set", 2)
    assert heal.source_label == f"successful_heal/{TOTAL}"


def test_a_budget_is_one_incident_a_day(world: World) -> None:
    world.happened(over_budget(spent=1_000_000), over_budget(), BudgetExceeded(subject="other", spent=2, budget=1))
    world.adaptation.read_ledger()
    world.clock.advance(timedelta(days=1))
    world.happened(over_budget())
    world.adaptation.read_ledger()
    told = [(record.scope_id, record.details["day"]) for record in world.adaptation.records("budget_incident")[::-1]]
    assert told == [(AGENT, "2026-01-05"), ("other", "2026-01-05"), (AGENT, "2026-01-06")]


def test_what_came_before_weighs_also_within_one_reading(world: World) -> None:
    message = "x" * 30
    world.happened(*(erred(f"sess_{n}", message, "edit") for n in range(3)))
    world.adaptation.read_ledger()
    world.happened(erred("sess_3", message, "edit"))
    world.adaptation.read_ledger()
    assert [record.score for record in world.adaptation.records()[::-1]] == [50.0, 55.0, 60.0, 65.0]


# -- sequences

STEPS = ("exec:git status", "exec:git diff", "exec:pytest")


def recurring(world: World, sessions: range) -> None:
    """Sessions that have the same three steps among others of their own."""
    for number in sessions:
        other = [f"exec:tool{number}", "read", "edit", "read"]
        world.happened(called(f"sess_{number}", *other[: number % 4], *STEPS, *other[number % 4 :]))


def test_steps_that_recur_are_records_of_each_session_that_has_them(world: World) -> None:
    recurring(world, range(6))
    world.adaptation.run_round()
    found = world.adaptation.records("tool_sequence")
    assert {one.source_label for one in found} == {"tool_sequence/exec:git status > exec:git diff > exec:pytest"}
    assert {one.session_id for one in found} == {f"sess_{number}" for number in range(6)}
    assert all(one.score >= 60 for one in found)
    recurring(world, range(6, 7))
    world.adaptation.read_ledger()
    world.adaptation.run_round()
    assert len(world.adaptation.records("tool_sequence")) == 7


# -- signatures


@pytest.mark.parametrize(
    ("tool", "message", "signature"),
    [
        ("edit", "no_match: the old text is not in src/a.py", "no_match"),
        ("grep", "there is no tool 'grep'; there are read, write", "there-tool-there-are-read-write"),
        ("exec", "exec:pytest: exit code 127", "exec-pytest-exit-code"),
        ("model", "HTTP 529: overloaded", "http-overloaded"),
    ],
)
def test_an_error_is_known_again_by_what_does_not_vary(world: World, tool: str, message: str, signature: str) -> None:
    world.happened(erred("sess_1", message, tool))
    world.adaptation.read_ledger()
    (found,) = world.adaptation.records()
    assert found.source_label == f"agent_error/{tool}/{signature}"
