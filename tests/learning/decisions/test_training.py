"""Training runs, from examples to a model in use: when one is due, crashes and errors at each step, stops and caps, and
which model stays in use (SPEC 8.4)."""

from datetime import timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest

from engine.clock import FakeClock
from engine.learning.decisions.decisions import PairTexts, import_pairs
from engine.learning.decisions.exporting import check_preferences
from engine.learning.decisions.training_provider import TrainingError
from engine.learning.decisions.training_runs import (
    MIN_MEASURED_PAIRS,
    MIN_PAIRS,
    PAIRS_UNTIL_NEXT_RUN,
    TIME_UNTIL_NEXT_RUN,
    Agreement,
    RunState,
    may_replace,
)
from engine.model import Refusal
from engine.services.autonomy import AutomaticTraining
from engine.storage.database import Database
from tests.learning.decisions.training_world import TrainingWorld


@pytest.fixture
def world(database: Database, tmp_path: Path) -> TrainingWorld:
    return TrainingWorld(database, tmp_path)


# The examples of a run, and when one is due


def test_training_on_pairs_begins_at_fifty(world: TrainingWorld):
    world.add_pairs(MIN_PAIRS - 1)
    with pytest.raises(Refusal, match="49 pairs"):
        world.training.begin()
    world.add_pairs(1, "the fiftieth")
    run = world.training.begin()
    assert (run.state, run.method, run.pairs_to) == (RunState.PREPARED, "dpo", 50)
    assert check_preferences(world.read_examples(run.id)) == []
    assert run.records == len(world.read_examples(run.id)) < 50
    with pytest.raises(Refusal, match="in progress"):
        world.training.begin()


def test_no_secret_goes_to_a_provider(world: TrainingWorld):
    world.secrets = ["hunter2-hunter2"]
    chosen, rejected = "use sk-abcdefghijklmnopqrstuvwxyz → koji-core", "rest → garden"
    sides = [PairTexts(f"log in with hunter2-hunter2 {number}", chosen, rejected) for number in range(60)]
    world.database.write(lambda tx: import_pairs(tx, sides))
    text = "\n".join(world.read_examples(world.training.begin().id))
    assert "log in with [secret cut]" in text
    assert "hunter2" not in text
    assert "sk-abc" not in text


def test_an_offer_describes_the_next_run_and_stores_nothing(world: TrainingWorld):
    world.add_pairs(60)
    offer = world.training.offer()
    assert (offer.method, offer.provider, offer.base_model, offer.cost_cap) == ("dpo", "together", "base", 2_000_000)
    assert offer.records + offer.held_back == 60
    assert world.training.list_runs() == []
    assert world.provider.files == {}
    run = world.training.launch()
    assert (run.state, run.records) == (RunState.STARTED, offer.records)
    assert offer.size == (world.folder / f"{run.id}.jsonl").stat().st_size
    with pytest.raises(Refusal, match="in progress"):
        world.training.offer()


def test_the_next_training_is_due_after_50_pairs_then_100_or_a_week(world: TrainingWorld, clock: FakeClock):
    now = clock.now()
    world.add_pairs(MIN_PAIRS - 1)
    assert world.training.describe_missing(now) == "1 more pair until the first training"
    world.add_pairs(1, "more")
    assert not world.training.describe_missing(now)
    world.training.begin()
    assert world.training.describe_missing(now) == "a training is in progress"
    world.finish("me/twin-1")
    world.step_until(RunState.ADOPTED)
    assert world.training.describe_missing(now + TIME_UNTIL_NEXT_RUN), "there is no new pair"
    world.add_pairs(PAIRS_UNTIL_NEXT_RUN - 1, "later")
    assert world.training.describe_missing(now).startswith("1 more pair, or any by")
    assert world.training.describe_missing(now + TIME_UNTIL_NEXT_RUN - timedelta(seconds=1))
    assert not world.training.describe_missing(now + TIME_UNTIL_NEXT_RUN)
    world.add_pairs(1, "the hundredth")
    assert not world.training.describe_missing(now)


def test_after_a_failed_run_the_next_begins_by_itself_a_day_later(world: TrainingWorld, clock: FakeClock):
    world.add_pairs(60)
    assert world.training.may_start(clock.now())
    world.provider.error = TrainingError("no such model", transient=False)
    world.training.launch()
    assert world.training.list_runs()[0].state == RunState.FAILED
    assert not world.training.may_start(clock.now() + timedelta(hours=23, minutes=59))
    assert world.training.may_start(clock.now() + timedelta(days=1))


def test_a_training_that_begins_by_itself_reports_a_refusal_once(world: TrainingWorld, clock: FakeClock):
    services = Mock(training=world.training, clock=clock)
    services.safety.kill_switch.find_autonomous_obstacle = lambda: world.stop_reason
    automatic = AutomaticTraining(services)
    assert not automatic.is_due()
    world.add_pairs(60)
    assert automatic.is_due()
    world.stop_reason = "stopped"
    assert not automatic.is_due()
    world.base_model = ""
    automatic.step()
    automatic.step()
    services.report.assert_called_once_with(
        "training", "no model to train is set; clawpy config set training.baseModel MODEL"
    )
    world.base_model = "base"
    automatic.step()
    assert world.training.list_runs()[0].state == RunState.UPLOADED
    assert automatic.is_due(), "one in progress goes on"


# Steps, also after crashes and errors


def test_a_run_from_examples_to_the_adopted_model(world: TrainingWorld):
    world.begin_run()
    assert [world.step().state for _ in range(3)] == [RunState.UPLOADED, RunState.STARTED, RunState.STARTED]
    assert world.budget.entries == {0: "training 2000000"}
    world.finish("me/twin-1")
    world.step_until(RunState.TRAINED)
    assert world.budget.entries == {0: "settled 420000"}
    assert world.current_model == ""
    run = world.step()
    assert (run.state, run.agreement, run.former_agreement) == (RunState.ADOPTED, 1.0, 0.5)
    assert world.current_model == "together:me/twin-1"
    assert "100% of" in run.note
    assert world.training.step() is None
    assert world.provider.opened == 0


@pytest.mark.parametrize("crash_at", [RunState.PREPARED, RunState.UPLOADED])
def test_a_step_is_not_done_twice_after_a_crash(world: TrainingWorld, crash_at: str):
    world.begin_run(crash_at)
    world.crash()
    world.finish("me/twin-1")
    world.step_until(RunState.ADOPTED)
    assert len(world.provider.files) == len(world.provider.file_of_job) == 1
    assert world.budget.entries == {0: "settled 420000"}


def test_a_transient_error_is_retried_and_a_lasting_one_ends_the_run(world: TrainingWorld):
    world.begin_run()
    world.provider.error = TrainingError("no network", transient=True)
    run = world.step()
    assert (run.state, run.note) == (RunState.PREPARED, "no network; it will be tried again")
    world.provider.error = None
    world.step_until(RunState.STARTED)
    world.provider.error = TrainingError("job: 404 no such job", transient=False)
    run = world.step()
    assert (run.state, world.budget.entries) == (RunState.FAILED, {0: "released"})


# Caps, stops and cancelled runs


def test_a_cap_keeps_a_job_from_starting_with_a_note(world: TrainingWorld):
    world.begin_run()
    world.budget.is_exhausted = True
    run_id = world.step_until(RunState.UPLOADED)
    assert world.step().note == "training: the hour's cap; wait, or raise the cap in the settings"
    assert world.provider.file_of_job == {}
    world.budget.is_exhausted = False
    assert world.step_until(RunState.STARTED) == run_id


def test_while_work_is_stopped_nothing_begins_that_costs(world: TrainingWorld):
    world.add_pairs(60)
    world.hold_reason = "stopped by the operator"
    with pytest.raises(Refusal, match="stopped by the operator"):
        world.training.begin()
    world.hold_reason = ""
    world.training.begin()
    for state in (RunState.PREPARED, RunState.UPLOADED):
        world.step_until(state)
        world.hold_reason = "stopped by the operator"
        run = world.step()
        assert (run.state, run.note) == (state, "stopped by the operator")
        world.hold_reason = ""
    assert (world.provider.file_of_job, world.budget.entries) == ({}, {})


def test_the_kill_switch_ends_the_job_at_the_provider(world: TrainingWorld):
    """A running job goes on costing money (SPEC 3.7). After a cap is reached, the job that is paid for still runs."""
    world.begin_run(RunState.STARTED)
    world.hold_reason = "month: the month's cap is reached"
    run = world.step()
    assert (run.state, world.provider.present.state) == (RunState.STARTED, "running")
    world.hold_reason = world.stop_reason = "stopped by the operator"
    world.provider.error = TrainingError("it cannot be reached", transient=True)
    run = world.step()
    assert run.state == RunState.STARTED
    assert "tried again" in run.note
    world.provider.error = None
    run = world.step()
    assert (run.state, run.note) == (RunState.CANCELLED, "stopped by the operator")
    assert (world.provider.present.state, world.budget.entries) == ("cancelled", {0: "released"})


def test_a_job_whose_start_a_crash_hid_is_cancelled_and_paid_for(world: TrainingWorld):
    world.begin_run(RunState.UPLOADED)
    world.crash()
    assert world.training.find_reserved_entries() == {0}
    world.provider.price_of_cancelled = 0.07
    assert world.training.cancel().cost_microusd == 70_000
    assert (world.provider.present.state, world.budget.entries) == ("cancelled", {0: "settled 70000"})
    assert world.training.find_reserved_entries() == set()


def test_a_job_that_was_done_before_it_was_cancelled_is_paid_for(world: TrainingWorld):
    world.begin_run(RunState.STARTED)
    world.finish("ft:new", dollars=None)
    run = world.training.cancel()
    assert (run.state, run.cost_microusd, world.budget.entries) == (
        RunState.CANCELLED,
        2_000_000,
        {0: "settled 2000000"},
    )


# Which model is used


def test_a_new_model_must_answer_enough_and_agree_as_often():
    old = Agreement(0.6, 50)
    assert may_replace(Agreement(0.6, MIN_MEASURED_PAIRS), old)
    assert not may_replace(Agreement(0.59, 50), old)
    assert not may_replace(Agreement(1.0, MIN_MEASURED_PAIRS - 1), old)
    assert not may_replace(Agreement(0.0, 50, 46), Agreement(0.0, 50, 50))


def test_the_former_model_can_be_restored_and_the_new_one_adopted_again(world: TrainingWorld):
    with pytest.raises(Refusal, match="no trained model"):
        world.training.restore_former()
    world.current_model = "openai:first"
    world.answers["openai:first"] = lambda situation: None
    world.begin_run()
    world.finish("me/twin-1")
    world.step_until(RunState.ADOPTED)
    assert world.current_model == "together:me/twin-1"
    assert world.training.restore_former().state == RunState.KEPT_OLD
    assert world.current_model == "openai:first"
    view = world.training.view(world.training.list_runs()[0].updated_at)
    assert view.swappable_run.model == "me/twin-1"
    assert (view.needed, view.pairs) == (PAIRS_UNTIL_NEXT_RUN, 0)
    assert world.training.adopt().state == RunState.ADOPTED
    assert world.current_model == "together:me/twin-1"
