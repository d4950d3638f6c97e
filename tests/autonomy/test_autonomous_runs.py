"""SPEC 7.2 with a whole engine on a real repository: only cards whose kind has earned enough trust run by
themselves. What is missing until then is told in words."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.autonomy.autonomous_runs import (
    ApprovalRecord,
    AutonomousRuns,
    AutonomyRequirements,
    find_reason_not_to_start,
    find_reason_to_wait,
    find_requirements,
)
from engine.autonomy.autonomy import ACT_JOB
from engine.clock import FakeClock
from engine.config import WorkspaceAutonomy
from engine.execution.live_session import LiveSession
from engine.execution.runners.flow_runner import FlowRunner
from engine.execution.runners.runner import RunnerResult
from engine.inference import wilson_lower_bound
from engine.model import (
    AutonomyState,
    ChangeState,
    DecidedBy,
    RailVerdict,
    Refusal,
    SessionState,
    SessionView,
    Status,
    Verdict,
)
from engine.safety.kill_switch import PAUSE
from tests.autonomy.autonomy_world import CHANNEL, FLOW, AutonomyWorld
from tests.support.card_rows import make_card_row


@pytest.fixture
def closed_world(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> AutonomyWorld:
    """A world whose engine is not open yet."""
    return AutonomyWorld(tmp_path, clock, monkeypatch)


@pytest.fixture
def world(closed_world: AutonomyWorld) -> Iterator[AutonomyWorld]:
    """A world with an open engine, in which change logs have earned it to run by themselves."""
    with closed_world.opened():
        closed_world.earn()
        yield closed_world


def forbid_disturbing(world: AutonomyWorld):
    world.engine.autonomy.set_dnd(timedelta(hours=1))


def pause(world: AutonomyWorld):
    world.engine.database.write(lambda tx: world.engine.safety.kill_switch.place(tx, PAUSE, "test"))


def switch_off(world: AutonomyWorld):
    world.engine.settings.set("autonomousModeEnabled", False)


def allow_cards_only(world: AutonomyWorld):
    world.configure("cards")


@pytest.mark.slow
@pytest.mark.parametrize("approvals, acts", [(10, False), (11, True)])
def test_a_kind_runs_by_itself_after_eleven_approvals_until_the_operator_returns(
    closed_world: AutonomyWorld, approvals: int, acts: bool
):
    world = closed_world
    with world.opened() as engine:
        world.earn(approvals, others=30)
        world.go_away()
        cycle = world.run_cycle()
        assert bool(cycle.acted) is acts
        earned = engine.autonomy.describe_requirements([world.workspace]).earned
        assert ("“Change log” on chronicle-hub" in earned) is acts
        assert engine.autonomy.describe_requirements(["/srv/other"]).earned == ()
        if acts:
            world.wait_for_session(cycle.acted)
            assert engine.safety.log(1)[0].from_channel == "owner"
        else:
            assert "lower bound of your approval rate" in " ".join(cycle.kept)
        engine.autonomy.note_activity()
        assert engine.autonomy.update_state().state is AutonomyState.WATCHING
        assert not engine.autonomy.schedule.run(ACT_JOB)


@pytest.mark.slow
@pytest.mark.long
def test_a_card_that_runs_by_itself_lands_nothing(world: AutonomyWorld):
    before = (world.repository.path / "part0.py").read_bytes(), world.repository.git("status", "--porcelain")
    world.go_away()
    card = world.engine.cards.get(world.run_cycle().acted)
    view = world.wait_for_session(card.id)
    assert (view.state, view.prediction_id) == (SessionState.SUCCEEDED, card.id)
    assert card.assignment.flow == "draft_changelog"
    assert world.read_causes()[-2:] == ["you are inactive", "a card can run"]
    [change] = world.engine.changes.list()
    assert change.state is ChangeState.WAITING
    assert ((world.repository.path / "part0.py").read_bytes(), world.repository.git("status", "--porcelain")) == before
    entry = world.engine.safety.log(1)[0]
    assert (entry.trigger_type, entry.decided_by, entry.blocked) == ("autonomous", "autonomy", False)
    assert [verdict.verdict for verdict in entry.verdicts] == ["allow"] * 6


@pytest.fixture
def may_ask() -> threading.Event:
    """Set when the sessions of `cards_of_which_one_cannot_begin` may ask for what they cost."""
    may_ask = threading.Event()
    may_ask.set()
    return may_ask


@pytest.fixture
def cards_of_which_one_cannot_begin(world: AutonomyWorld, monkeypatch: pytest.MonkeyPatch, may_ask: threading.Event):
    """Two cards, `pred_first` and `pred_second`. The session of the first one asks for more than it may cost."""
    run, now = FlowRunner.run, world.clock.now()

    def run_or_ask_for_too_much(runner: FlowRunner, live: LiveSession, view: SessionView) -> RunnerResult:
        if view.prediction_id == "pred_first":
            may_ask.wait(20)
            live.reserve_cost(1_000_001)  # a session may cost a dollar
        return run(runner, live, view)

    monkeypatch.setattr(FlowRunner, "run", run_or_ask_for_too_much)
    monkeypatch.setattr(AutonomousRuns, "run_check", lambda runs: ())  # it would withdraw the two cards
    rows = [
        make_card_row(
            card_id, now, kind=FLOW, flow="summarise_day", parameters={"since": now.isoformat()}, tier=tier,
            target_agent="backend_builder", target_channel=CHANNEL, workspace=world.workspace, confidence=0.95,
            expires_at=now + timedelta(hours=24),
        )
        for tier, card_id in [(1, "pred_first"), (2, "pred_second")]
    ]  # fmt: skip
    world.go_away()
    world.engine.database.write(lambda tx: tx.session.add_all(rows))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("cards_of_which_one_cannot_begin")
def test_a_card_that_cannot_begin_comes_after_the_others_and_waits_after_three_starts(world: AutonomyWorld):
    started, last = [], world.run_cycle()
    while last.acted and len(started) < 9:
        if last.acted in ("pred_first", "pred_second"):
            started.append(last.acted)
        world.wait_for_session(last.acted)
        world.clock.advance(timedelta(minutes=10))
        last = world.run_cycle()
    assert started == ["pred_first", "pred_second", "pred_first", "pred_first"]
    assert world.engine.cards.get("pred_first").status is Status.PENDING
    assert [line for line in last.kept if "started 3 times by itself and came back" in line]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("ago, starts", [(timedelta(minutes=9, seconds=59), False), (timedelta(minutes=10), True)])
def test_work_that_writes_does_not_start_within_ten_minutes_of_a_change_of_files(
    world: AutonomyWorld, ago: timedelta, starts: bool
):
    world.engine.settings.set("silenceThresholdMs", "60000")  # so that ten minutes of calm are not implied
    world.go_away()
    world.edit_file(ago=ago)
    world.engine.checks.run()
    cycle = world.run_cycle()
    assert bool(cycle.acted) is starts
    if not starts:
        assert any("somebody wrote to shop 9 min ago" in line for line in cycle.kept)
        card = world.find_card()
        with pytest.raises(Refusal, match="somebody wrote to"):
            world.engine.cards.approve(card.id, by=DecidedBy.AUTONOMY)
        assert world.engine.cards.get(card.id).status is Status.PENDING
        world.wait_for_session(world.engine.cards.approve(card.id).id)  # an operator's approval needs no calm


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, verdict, waits",
    [
        ("lint", RailVerdict("gate", Verdict.ALLOW, "nothing to ask"), False),
        ("lint", RailVerdict("gate", Verdict.ASK, "quiet hours", "quiet"), True),
        ("lint", RailVerdict("gate", Verdict.ASK, "below 0.80", "production,track-record"), True),
        ("lint", RailVerdict("gate", Verdict.ASK, "touches production", "production"), False),
        ("lint", RailVerdict("content", Verdict.ASK, "deletes a folder", "rm-folder"), True),
        ("lint", RailVerdict("content", Verdict.BLOCK, "deletes all", "rm-all"), False),
        ("secret", RailVerdict("gate", Verdict.ALLOW, "nothing to ask"), True),
    ],
)
def test_a_card_waits_for_the_operator_by_these_rules_and_is_tried_by_others(
    kind: str, verdict: RailVerdict, waits: bool
):
    assert bool(find_reason_to_wait(kind, [verdict])) is waits


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", ["open_task", "stale_task"])
def test_a_task_never_runs_by_itself_however_many_were_approved(closed_world: AutonomyWorld, tmp_path: Path, kind: str):
    """Anyone who can write into `tasksDir` can make tasks, so approvals of some say nothing about the next."""
    world = closed_world
    folder = tmp_path / "todo"
    folder.mkdir()
    world.configure(tasksDir=f"'{folder}'")
    with world.opened() as engine:
        world.earn(kind=kind, channel="koji-core", approvals=40)
        (folder / "shop.md").write_text("- [ ] which branches are stale\n")
        engine.checks.run()
        if kind == "stale_task":
            world.clock.advance(timedelta(days=7))
            engine.checks.run()
        [card] = [card for card in engine.cards.list_pending() if card.kind == kind]
        assert card.assignment.flow == "report_branches"
        world.go_away()
        cycle = world.run_cycle()
        assert cycle.acted != card.id
        assert "somebody else may have written" in dict(line.split(": ", 1) for line in cycle.kept)[card.id]
        with pytest.raises(Refusal, match="somebody else may have written") as refused:
            engine.cards.trigger(card.id, by="a program")
        assert refused.value.rail == "gate"
        assert "task”" not in engine.autonomy.describe_requirements([world.workspace]).words


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "hinder, word",
    [
        (forbid_disturbing, "do not disturb"),
        (pause, "pause"),
        (switch_off, "autonomousModeEnabled"),
        (allow_cards_only, "`act`"),
        (None, ""),
    ],
)
def test_a_queued_run_starts_after_a_restart_only_if_it_still_may(
    closed_world: AutonomyWorld, hinder: Callable[[AutonomyWorld], None] | None, word: str
):
    with closed_world.opened() as engine:
        closed_world.earn()
        closed_world.go_away()
        engine.sessions.hold_queue()
        engine.autonomy.schedule.run(ACT_JOB)
        [queued] = [session for session in engine.sessions.list() if session.state is SessionState.QUEUED]
        if hinder is not None:
            hinder(closed_world)
    with closed_world.opened() as engine:
        ended = engine.sessions.wait(queued.id, 20)
        assert ended.state is (SessionState.SUCCEEDED if hinder is None else SessionState.CANCELLED)
        assert word in ended.error


def make_requirements(
    *records: ApprovalRecord, autonomous: bool = True, phase: int = 1, autonomy: str = "act", decisions: int = 10
) -> AutonomyRequirements:
    return find_requirements(
        autonomous=autonomous,
        autonomies={"/home/me/my shop": WorkspaceAutonomy(autonomy)},
        quiet="",
        decisions=decisions,
        phase=phase,
        records=records,
        threshold=0.8,
    )


def test_no_requirement_is_missing_where_a_kind_has_earned_it():
    earned = make_requirements(
        ApprovalRecord("run_tests", "koji-core", 11, 11), ApprovalRecord("status", "koji-core", 1, 4)
    )
    assert (earned.missing, earned.earned) == ((), ("“Tests of what changed” on koji-core",))
    assert earned.words.endswith("on cards with a confidence of 0.80 or more: “Tests of what changed” on koji-core")


def test_missing_requirements_are_one_line():
    learning = make_requirements(
        ApprovalRecord("status", "docs", 1, 4), ApprovalRecord("run_tests", "koji-core", 8, 8), phase=0
    )
    assert learning.words == (
        "only `run` items of heartbeats may run by themselves yet: the Twin is still learning, "
        "no kind of card has earned it yet "
        "(best: “Tests of what changed” on koji-core, approved 8 of 8, needs 11 of 11)"
    )
    off = make_requirements(autonomous=False, autonomy="cards")
    assert off.missing == (
        "autonomous mode is off (clawpy config set autonomousModeEnabled true)",
        "no workspace is set to `act` (clawpy config set 'workspaces.\"/home/me/my shop\".autonomy' act)",
        "no kind of card has earned it yet",
    )  # fmt: skip
    assert off.words.startswith("does not act by itself yet: ")


def test_run_items_of_heartbeats_wait_for_the_first_decisions_too():
    first_days = make_requirements(phase=0, decisions=9)
    assert first_days.words.startswith("does not act by itself yet: first days: 9 of 10 decisions made, ")
    assert not first_days.orders_run
    assert make_requirements(phase=0).orders_run


@pytest.mark.parametrize(
    "facts, reason",
    [
        ({}, ""),
        ({"quiet": "do not disturb"}, "do not disturb: nothing runs by itself"),
        ({"quiet": "quiet hours", "autonomy": "cards"}, "the autonomy of this workspace is not set to `act`"),
        (
            {"autonomy": "cards", "autonomous": False},
            "autonomous mode is off: clawpy config set autonomousModeEnabled true",
        ),
        ({"autonomous": False, "stopped": "stopped by you"}, "stopped by you"),
    ],
)
def test_what_stops_all_workspaces_is_said_before_what_stops_one(facts: dict[str, str | bool], reason: str):
    values = {"stopped": "", "autonomous": True, "autonomy": "act", "quiet": ""} | facts
    values["autonomy"] = WorkspaceAutonomy(values["autonomy"])
    assert find_reason_not_to_start(**values) == reason


@given(st.integers(1, 60), st.data())
def test_the_stated_number_of_further_approvals_reaches_the_bound_and_one_less_does_not(
    decided: int, data: st.DataObject
):
    record = ApprovalRecord("kind", "channel", data.draw(st.integers(0, decided)), decided)
    further = int(record.progress.rpartition(" of ")[2]) - decided
    assert wilson_lower_bound(record.approved + further, decided + further) >= 0.8
    assert further == 0 or wilson_lower_bound(record.approved + further - 1, decided + further - 1) < 0.8
