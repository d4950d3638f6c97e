"""SPEC 7.2 with a whole engine on a real repository: only cards whose kind has earned enough trust run by
themselves."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from engine.autonomy.autonomous_runs import AutonomousRuns, find_reason_to_wait
from engine.autonomy.autonomy import ACT_JOB
from engine.clock import FakeClock
from engine.execution.live_session import LiveSession
from engine.execution.runners.flow_runner import FlowRunner
from engine.execution.runners.runner import RunnerResult
from engine.model import (
    AutonomyState,
    ChangeState,
    DecidedBy,
    HoldKind,
    RailVerdict,
    Refusal,
    SessionState,
    SessionView,
    Status,
    Verdict,
)
from tests.autonomy.autonomy_world import CHANNEL, FLOW, AutonomyWorld
from tests.support.card_rows import make_card_row
from tests.support.checks import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def closed_world(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> AutonomyWorld:
    """A world whose engine is not open yet."""
    return AutonomyWorld(tmp_path, clock, monkeypatch)


@pytest.fixture
def world(closed_world: AutonomyWorld) -> Iterator[AutonomyWorld]:
    """A world with an open engine, in which change logs have earned it to run by themselves."""
    with closed_world.opened():
        closed_world.earn_trust()
        yield closed_world


def forbid_disturbing(world: AutonomyWorld):
    world.engine.autonomy.set_dnd(timedelta(hours=1))


def pause(world: AutonomyWorld):
    world.engine.database.write(lambda tx: world.engine.safety.kill_switch.place(tx, HoldKind.PAUSE, "test"))


@pytest.mark.parametrize("approvals, acts", [(10, False), (11, True)])
def test_a_kind_runs_by_itself_after_eleven_approvals_until_the_operator_returns(
    closed_world: AutonomyWorld, approvals: int, acts: bool
):
    world = closed_world
    with world.opened() as engine:
        world.earn_trust(approvals, others=30)
        world.be_inactive()
        cycle = world.run_cycle()
        assert bool(cycle.acted) is acts
        earned = engine.autonomy.describe_requirements([world.workspace]).earned
        assert ("“Change log” on chronicle-hub" in earned) is acts
        if acts:
            world.wait_for_session(cycle.acted)
            assert engine.safety.read_log(1)[0].from_channel == "owner"
        else:
            assert "lower bound of your approval rate" in " ".join(cycle.kept)
        engine.autonomy.note_activity()
        assert engine.autonomy.update_state().state is AutonomyState.WATCHING
        assert not engine.autonomy.schedule.run(ACT_JOB)


@pytest.mark.long
def test_a_card_that_runs_by_itself_lands_nothing(world: AutonomyWorld):
    before = (world.repository.path / "part0.py").read_bytes(), world.repository.git("status", "--porcelain")
    world.be_inactive()
    card = world.engine.cards.get(world.run_cycle().acted)
    view = world.wait_for_session(card.id)
    assert (view.state, view.prediction_id) == (SessionState.SUCCEEDED, card.id)
    assert card.assignment.flow == "draft_changelog"
    assert world.read_causes()[-2:] == ["you are inactive", "a card can run"]
    [change] = world.engine.changes.list_newest()
    assert change.state is ChangeState.WAITING
    assert ((world.repository.path / "part0.py").read_bytes(), world.repository.git("status", "--porcelain")) == before
    entry = world.engine.safety.read_log(1)[0]
    assert (entry.trigger_type, entry.decided_by, entry.blocked) == ("autonomous", "autonomy", False)
    assert [verdict.verdict for verdict in entry.verdicts] == ["allow"] * 6


@pytest.mark.long
def test_a_card_that_cannot_begin_comes_after_the_others_and_waits_after_three_starts(
    world: AutonomyWorld, monkeypatch: pytest.MonkeyPatch
):
    run, now = FlowRunner.run, world.clock.now()

    def run_or_ask_for_too_much(runner: FlowRunner, live: LiveSession, view: SessionView) -> RunnerResult:
        if view.prediction_id == "pred_first":
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
    world.be_inactive()
    world.engine.database.write(lambda tx: tx.session.add_all(rows))
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


@pytest.mark.long
@pytest.mark.parametrize("ago, starts", [(timedelta(minutes=9, seconds=59), False), (timedelta(minutes=10), True)])
def test_work_that_writes_does_not_start_within_ten_minutes_of_a_change_of_files(
    world: AutonomyWorld, ago: timedelta, starts: bool
):
    world.engine.settings.set("silenceThresholdMs", "60000")  # so that ten minutes of calm are not implied
    world.be_inactive()
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


@pytest.mark.parametrize(
    "kind, verdict, waits",
    [
        ("lint", RailVerdict("gate", Verdict.ALLOW, "nothing to ask"), False),
        ("lint", RailVerdict("gate", Verdict.ASK, "below 0.80", "production,track-record"), True),
        ("lint", RailVerdict("gate", Verdict.ASK, "touches production", "production"), False),
        ("lint", RailVerdict("content", Verdict.ASK, "deletes a folder", "rm-folder"), True),
        ("secret", RailVerdict("gate", Verdict.ALLOW, "nothing to ask"), True),
    ],
)
def test_a_card_waits_for_the_operator_by_these_rules_and_is_tried_by_others(
    kind: str, verdict: RailVerdict, waits: bool
):
    assert bool(find_reason_to_wait(kind, [verdict])) is waits


@pytest.mark.long
def test_a_task_never_runs_by_itself_however_many_were_approved(closed_world: AutonomyWorld, tmp_path: Path):
    """Anyone who can write into `tasksDir` can make tasks, so approvals of some say nothing about the next."""
    world = closed_world
    folder = tmp_path / "todo"
    folder.mkdir()
    world.configure(tasksDir=f"'{folder}'")
    with world.opened() as engine:
        world.earn_trust(kind="open_task", channel="koji-core", approvals=40)
        (folder / "shop.md").write_text("- [ ] which branches are stale\n")
        engine.checks.run()
        [card] = [card for card in engine.cards.list_pending() if card.kind == "open_task"]
        assert card.assignment.flow == "report_branches"
        world.be_inactive()
        cycle = world.run_cycle()
        assert cycle.acted != card.id
        assert "somebody else may have written" in dict(line.split(": ", 1) for line in cycle.kept)[card.id]
        with pytest.raises(Refusal, match="somebody else may have written") as refused:
            engine.cards.trigger(card.id, by="a program")
        assert refused.value.rail == "gate"


@pytest.mark.long
@pytest.mark.parametrize("hinder, word", [(forbid_disturbing, "do not disturb"), (pause, "pause"), (None, "")])
def test_a_queued_run_starts_after_a_restart_only_if_it_still_may(
    closed_world: AutonomyWorld, hinder: Callable[[AutonomyWorld], None] | None, word: str
):
    with closed_world.opened() as engine:
        closed_world.earn_trust()
        closed_world.be_inactive()
        engine.sessions.hold_queue()
        engine.autonomy.schedule.run(ACT_JOB)
        [queued] = [session for session in engine.sessions.list_newest() if session.state is SessionState.QUEUED]
        if hinder is not None:
            hinder(closed_world)
    with closed_world.opened() as engine:
        ended = engine.sessions.wait(queued.id, 20)
        assert ended.state is (SessionState.SUCCEEDED if hinder is None else SessionState.CANCELLED)
        assert word in ended.error


def test_work_that_the_operator_undid_while_it_ran_waits_for_the_operator(
    closed_world: AutonomyWorld, monkeypatch: pytest.MonkeyPatch
):
    world = closed_world
    run, began = FlowRunner.run, threading.Event()

    def wait_for_stop(self: FlowRunner, live: LiveSession, view: SessionView) -> RunnerResult:
        began.set()
        wait_until(lambda: live.stop_requested is not None)
        return run(self, live, view)

    with world.opened() as engine:
        world.earn_trust(40, others=30)
        engine.checks.run()
        card = world.find_card()
        with monkeypatch.context() as held:
            held.setattr(FlowRunner, "run", wait_for_stop)
            engine.cards.approve(card.id)
            assert began.wait(20)
            engine.cards.undo(card.id)
            world.wait_for_session(card.id)
        again = world.find_card()
        world.be_inactive()
        cycle = world.run_cycle()
        assert (cycle.acted, cycle.kept) == ("", (f"{again.id}: you undid such work lately, so it waits for you",))
