"""SPEC 4.1: what a heartbeat makes due goes the ordinary way: task, card, rails; by itself only what has earned it."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from engine.autonomy.autonomy import STATE
from engine.autonomy.heartbeat import PULSE
from engine.clock import FakeClock
from engine.model import Card, Outcome, Refusal, TriggerType
from engine.prediction.kinds import is_heartbeat
from tests.autonomy.world import World

ITEM = "which branches are stale"


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, clock, monkeypatch)


def comes_due(world: World, item: str, agent: str = "backend_builder") -> None:
    """The agent's file has the item, and its time has come."""
    page = world.engine.home.agents / agent / "heartbeat.md"
    if not page.exists() or item not in page.read_text():
        page.write_text(f"- [ ] every 20m: {item}\n")
        os.utime(page, (world.clock.now().timestamp(),) * 2)
        world.engine.autonomy.schedule.run(PULSE)
    world.clock.advance(timedelta(minutes=20))
    world.engine.autonomy.schedule.run(PULSE)


def heartbeats(world: World) -> list[Card]:
    return [card for card in world.engine.cards.pending() if is_heartbeat(card.kind)]


@pytest.mark.long
def test_a_due_item_is_a_card_of_its_agents_channel_and_done_with_it(world: World) -> None:
    with world.opened() as engine:
        comes_due(world, ITEM, agent="chronicler")
        engine.predictions.run_cycle()
        engine.predictions.run_cycle()
        [card] = heartbeats(world)
        [task] = engine.tasks.list()
        assert (card.assignment.flow, card.assignment.channel) == ("report_branches", "chronicle-hub")
        assert (card.task_id, card.agent, task.source) == (task.id, "chronicler", "heartbeat")
        assert engine.sessions.list() == [], "nothing runs for being due"
        engine.cards.approve(card.id)
        world.ended(card.id)
        assert engine.cards.get(card.id).outcome is Outcome.SUCCEEDED
        assert engine.tasks.get(task.id).state == "done"
        engine.predictions.run_cycle()
        assert heartbeats(world) == []


@pytest.mark.long
def test_it_runs_by_itself_only_when_this_very_item_has_earned_it(world: World) -> None:
    with world.opened() as engine:
        world.earn(kind="report_branches", channel="koji-core")
        comes_due(world, ITEM)
        engine.predictions.run_cycle()
        [card] = heartbeats(world)
        assert card.assignment.channel == "koji-core"
        world.away()
        kept = dict(line.split(": ", 1) for line in world.cycle().kept)
        assert "approval rate" in kept[card.id], "other cards for the same flow were approved, not this item"
        world.earn(kind=card.kind, channel="koji-core", others=0)
        world.away(timedelta(minutes=10))
        assert world.cycle().acted == card.id
        world.ended(card.id)
        entry = engine.safety.log(1)[0]
        assert (entry.prediction_id, entry.decided_by) == (card.id, "autonomy")
        assert entry.trigger_type == TriggerType.HEARTBEAT
        assert [verdict.verdict for verdict in entry.verdicts] == ["allow"] * 6


@pytest.mark.long
@pytest.mark.parametrize("kind", ["open_task", "stale_task"])
def test_a_task_never_runs_by_itself_however_many_were_approved(world: World, tmp_path: Path, kind: str) -> None:
    """Whoever can write into `tasksDir` writes tasks: approving some of them says nothing of the next."""
    folder = tmp_path / "todo"
    folder.mkdir()
    world.configure(tasksDir=f"'{folder}'")
    with world.opened() as engine:
        world.earn(kind=kind, channel="koji-core", approvals=40)
        (folder / "shop.md").write_text(f"- [ ] {ITEM}\n")
        engine.predictions.run_cycle()
        if kind == "stale_task":
            world.clock.advance(timedelta(days=7))
            engine.predictions.run_cycle()
        [card] = [card for card in engine.cards.pending() if card.kind == kind]
        assert card.assignment.flow == "report_branches"
        world.away()
        cycle = world.cycle()
        assert cycle.acted != card.id
        assert "somebody else may have written" in dict(line.split(": ", 1) for line in cycle.kept)[card.id]
        with pytest.raises(Refusal, match="somebody else may have written"):
            engine.cards.trigger(card.id, by="a program")
        earning = engine.autonomy.requirements([world.workspace])
        assert earning is not None
        assert "task”" not in earning.words


@pytest.mark.long
@pytest.mark.parametrize("decisions", [9, 10])
def test_an_item_that_the_operator_wrote_to_run_runs_without_a_record(world: World, decisions: int) -> None:
    """It needs no decisions of like cards, but ten in all, and everything else that lets things run alone."""
    with world.opened() as engine:
        world.earn(kind="lint", approvals=decisions - 1, others=0)  # and approves one card more
        assert engine.predictions.phase().number == 0
        page = engine.home.agents / "backend_builder" / "heartbeat.md"
        page.write_text(f"- [ ] every 20m run: {ITEM}\n")
        os.utime(page, (world.clock.now().timestamp(),) * 2)
        engine.autonomy.schedule.run(PULSE)
        world.clock.advance(timedelta(minutes=20))
        engine.autonomy.schedule.run(PULSE)
        engine.predictions.run_cycle()
        [card] = heartbeats(world)
        assert "you marked it to run" in card.reasoning
        world.away()
        cycle = world.cycle()
        if decisions < 10:
            assert (cycle.acted, "9 of 10 decisions" in " ".join(cycle.blocked)) == ("", True)
            return
        assert cycle.acted == card.id
        world.ended(card.id)
        entry = engine.safety.log(1)[0]
        assert (entry.decided_by, entry.trigger_type) == ("autonomy", TriggerType.HEARTBEAT)


def test_a_task_that_is_added_is_a_card_with_the_next_housekeeping(world: World) -> None:
    with world.opened() as engine:
        engine.tasks.add("Paint the office", workspace=world.workspace)
        engine.autonomy.schedule.run(STATE)
        assert [card.assignment.prompt for card in engine.cards.pending() if card.kind == "open_task"] == [
            "Paint the office"
        ]
