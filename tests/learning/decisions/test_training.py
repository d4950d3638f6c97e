"""A run's way from examples to a model in use; cut off at any step, nothing is done twice (SPEC 8.4)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.learning.decisions.exporting import Exporter
from engine.learning.decisions.preferences import Preference, check_preferences, import_pairs
from engine.learning.decisions.training import AGAIN_AFTER, AGAIN_FROM, Training
from engine.learning.decisions.training_provider import COMMAND, Account, Job, Provider, TrainingError
from engine.learning.decisions.training_runs import (
    MIN_CONVERSATIONS,
    MIN_MEASURED,
    MIN_PAIRS,
    Agreement,
    RunState,
    TrainingPlan,
    TwinModel,
    agreement,
    may_replace,
    split,
)
from engine.model import Randomness, Refusal
from engine.storage.database import Database, Transaction
from tests.support.training_server import TrainingServer

# What is held back, and how a model is measured on it (SPEC 8.4).


NOW = datetime(2026, 1, 5, tzinfo=UTC)


def pair(n: int, context: str = "", chosen: str = "run the tests → koji-core") -> Preference:
    return Preference(n, context or f"situation {n}", chosen, "sum up → garden", NOW)


def test_about_a_fifth_is_held_back_whatever_comes_later() -> None:
    first = [pair(n) for n in range(500)]
    _, apart = split(first)
    assert 70 <= len(apart) <= 130
    _, later = split([*first, *(pair(n) for n in range(500, 900))])
    assert set(apart) <= set(later)


def test_agreement_counts_nearer_answers_ties_half_and_silence_none() -> None:
    answers = ["run all tests → koji-core", "sum up the day → garden", "dream → research", None]
    found = agreement([pair(n) for n in range(4)], answers)
    assert found == Agreement((1 + 0 + 0.5 + 0) / 4, 4, 1)


def test_a_new_model_must_be_measured_and_no_worse() -> None:
    old = Agreement(0.6, 50)
    assert may_replace(Agreement(0.6, MIN_MEASURED), old)
    assert not may_replace(Agreement(0.59, 50), old)
    assert not may_replace(Agreement(1.0, MIN_MEASURED - 1), old)
    assert not may_replace(Agreement(0.0, 50, 46), Agreement(0.0, 50, 50))


# Both providers' own libraries, each call in a child process, against a server that speaks their protocols.


KEY = "sk-" + "k" * 30


@pytest.fixture
def server() -> Iterator[TrainingServer]:
    with TrainingServer() as server:
        yield server


@pytest.fixture
def opened() -> Iterator[Callable[..., Provider]]:
    """Opens providers, and closes them."""
    found: list[Provider] = []

    def opens(api: str, url: str, *command: str) -> Provider:
        found.append(Provider(Account(api, url, KEY), command or COMMAND))
        return found[-1]

    yield opens
    for one in found:
        one.close()


Opens = Callable[..., Provider]


@pytest.mark.long
@pytest.mark.parametrize("api", ["together", "openai"])
def test_from_a_file_to_a_model(server: TrainingServer, tmp_path: Path, opened: Opens, api: str) -> None:
    provider = opened(api, f"{server.url}/v1")
    file = tmp_path / "train_1.jsonl"
    file.write_text('{"a": 1}\n{"a": 2}\n')
    assert provider.find_file(file.name) == ""
    file_id = provider.upload(file)
    assert server.file(file_id).lines == [{"a": 1}, {"a": 2}]
    assert provider.find_file(file.name) == file_id
    assert provider.find_job(file_id) is None
    job = provider.start(file_id, model="base", checkpoint="", method="dpo", suffix="train_1")
    assert (job.state, job.model) == ("running", "")
    assert provider.find_job(file_id) == job
    assert "dpo" in str(server.jobs[0].asked)
    server.jobs[0].finish("me/twin-1")
    done = provider.job(job.id)
    assert (done.state, done.model) == ("done", "me/twin-1")
    assert done.dollars == (0.42 if api == "together" else None)
    assert server.keys == {KEY}


@pytest.mark.long
def test_a_job_continues_another_one_and_faults_pass_or_stay(server: TrainingServer, opened: Opens) -> None:
    provider = opened("together", server.url)
    provider.start("file-1", model="base", checkpoint="ft-old", method="sft", suffix="x")
    assert server.jobs[0].asked["from_checkpoint"] == "ft-old"
    assert server.jobs[0].asked.get("model") is None
    provider.cancel("ft-1")
    assert provider.job("ft-1").state == "cancelled"
    server.faults["GET /v1/files"] = [503, 401]
    with pytest.raises(TrainingError) as transient:
        provider.find_file("x")
    assert transient.value.transient
    with pytest.raises(TrainingError, match="not now") as lasting:
        provider.find_file("x")
    assert not lasting.value.transient


def test_a_process_that_does_not_answer(opened: Opens) -> None:
    with pytest.raises(TrainingError, match="without an answer") as fault:
        opened("openai", "http://127.0.0.1:9/v1", "/bin/true").job("x")
    assert fault.value.transient
    reply = '{"error": "together is not installed", "status": 0, "missing": true}'
    with pytest.raises(Refusal, match="`train`, which is not installed") as refused:
        opened("together", "http://127.0.0.1:9", "/bin/sh", "-c", f"read asked; echo '{reply}'").job("x")
    assert refused.value.fix.endswith("'clawpy-console[train]'")
    assert KEY not in repr(Account("openai", "x", KEY))


class Provided:
    """A provider in this process: what it was sent, and what it is to say. `cut` raises after the call got through."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.jobs: dict[str, dict[str, str]] = {}
        self.says = Job("", "running", "training", "", None)
        self.fault: TrainingError | None = None
        self.cut: BaseException | None = None
        self.opened = 0

    def _done(self) -> None:
        if self.fault:
            raise self.fault
        if self.cut:
            cut, self.cut = self.cut, None
            raise cut

    def upload(self, path: Path) -> str:
        self.files[f"file-{len(self.files)}"] = path.name
        self._done()
        return next(reversed(self.files))

    def find_file(self, name: str) -> str:
        return next((file for file, known in self.files.items() if known == name), "")

    def start(self, file: str, *, model: str, checkpoint: str, method: str, suffix: str) -> Job:
        job = f"ft-{len(self.jobs)}"
        self.jobs[job] = {"file": file, "model": model, "checkpoint": checkpoint, "method": method, "suffix": suffix}
        self._done()
        return Job(job, "running", "queued", "", None)

    def find_job(self, file: str) -> Job | None:
        found = next((job for job, asked in self.jobs.items() if asked["file"] == file), None)
        return Job(found, "running", "queued", "", None) if found else None

    def job(self, job: str) -> Job:
        self._done()
        return Job(job, self.says.state, self.says.status, self.says.model, self.says.dollars)

    def cancel(self, job: str) -> None:
        self._done()
        self.says = Job(job, "cancelled", "cancelled", "", None)

    def close(self) -> None:
        self.opened -= 1


class Purse:
    """Money set aside, by number; `full` refuses."""

    def __init__(self) -> None:
        self.entries: dict[int, str] = {}
        self.full = False

    def reserve_call(self, transaction: Transaction, purpose: str, estimate: int) -> int:
        if self.full:
            raise Refusal("cost_cap", "training: the hour's cap", "wait, or raise the cap in the settings")
        self.entries[len(self.entries)] = f"{purpose} {estimate}"
        return len(self.entries) - 1

    def settle(self, transaction: Transaction, entry_id: int, amount: int) -> None:
        self.entries[entry_id] = f"settled {amount}"

    def release(self, transaction: Transaction, entry_id: int) -> None:
        self.entries[entry_id] = "released"


class World:
    """A home with pairs, a provider and a Twin model in the settings."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.provided, self.purse = Provided(), Purse()
        self.exporter = Exporter(database, folder)
        self.said: list[tuple[str, str]] = []
        self.exporter._conversations = lambda: self.said
        self.base, self.current, self.held, self.stopped = "base", "", "", ""
        self.answers: dict[str, Callable[[str], str | None]] = {}
        self.folder = folder
        self.open()

    def open(self) -> Training:
        """A new engine on the same home."""
        self.training = Training(
            self.database,
            self.folder,
            exporter=self.exporter,
            twin=TwinModel(
                lambda: TrainingPlan("together", self.base, 2_000_000, self.current),
                self._api,
                lambda model, situation: self.answers[model](situation),
                lambda model: setattr(self, "current", model),
            ),
            budget=self.purse,
            randomness=Randomness(),
            hold_reason=lambda: self.held,
            stop_reason=lambda: self.stopped,
        )
        return self.training

    def _api(self) -> Provided:
        self.provided.opened += 1
        return self.provided

    def pairs(self, count: int, name: str = "one") -> None:
        sides = [(f"situation {name} {n}", f"run {name} {n} → koji-core", f"rest {n} → garden") for n in range(count)]
        self.database.write(lambda tx: import_pairs(tx, sides))

    def finish(self, model: str, dollars: float | None = 0.42) -> None:
        self.provided.says = Job("", "done", "completed", model, dollars)
        self.answers[f"together:{model}"] = lambda situation: f"run {situation.removeprefix('situation ')} → koji-core"

    def to(self, state: str) -> str:
        """Step until the run is in `state`; its id."""
        for _ in range(5):
            run = self.training.active()
            if run is None or run.state == state:
                break
            self.training.step()
        found = self.training.runs()[0]
        assert found.state == state, found
        return found.id


@pytest.fixture
def world(database: Database, tmp_path: Path) -> World:
    return World(database, tmp_path)


def lines(world: World, run_id: str) -> list[str]:
    return (world.folder / f"{run_id}.jsonl").read_text().splitlines()


def test_training_on_pairs_begins_at_fifty(world: World) -> None:
    world.pairs(MIN_PAIRS - 1)
    with pytest.raises(Refusal, match="49 pairs"):
        world.training.begin()
    world.pairs(1, "the fiftieth")
    run = world.training.begin()
    assert (run.state, run.method, run.pairs_to) == (RunState.PREPARED, "dpo", 50)
    assert check_preferences(lines(world, run.id)) == []
    assert run.records == len(lines(world, run.id)) < 50
    with pytest.raises(Refusal, match="in progress"):
        world.training.begin()


def test_conversations_come_first(world: World) -> None:
    world.pairs(60)
    world.said = [(f"shall I do {n}?", f"yes, {n}") for n in range(MIN_CONVERSATIONS)]
    first = world.training.begin()
    assert first.method == "sft"
    roles = [[said["role"] for said in json.loads(line)["messages"]] for line in lines(world, first.id)]
    assert roles == [["system", "user", "assistant"]] * len(roles) != []
    world.finish("me/twin-1")
    world.to(RunState.ADOPTED)
    second = world.training.begin()
    assert (second.method, second.checkpoint, second.former_model) == ("dpo", "ft-0", "together:me/twin-1")


def test_the_whole_way(world: World) -> None:
    world.pairs(60)
    world.training.begin()
    for state in (RunState.UPLOADED, RunState.STARTED, RunState.STARTED):
        assert (moved := world.training.step()) is not None
        assert moved.state == state
    assert world.purse.entries == {0: "training 2000000"}
    world.finish("me/twin-1")
    world.to(RunState.TRAINED)
    assert world.purse.entries == {0: "settled 420000"}
    assert world.current == ""
    run = world.training.step()
    assert run is not None
    assert (run.state, run.agreement, run.former_agreement) == (RunState.ADOPTED, 1.0, 0.5)
    assert world.current == "together:me/twin-1"
    assert "100% of" in run.note
    assert world.training.step() is None
    assert world.provided.opened == 0


def test_a_worse_model_is_not_swapped_in_unless_the_operator_says_so(world: World) -> None:
    world.pairs(60)
    world.current = "together:me/twin-1"
    world.answers["together:me/twin-1"] = lambda situation: f"run {situation.removeprefix('situation ')} → koji-core"
    world.training.begin()
    world.finish("me/twin-2")
    world.answers["together:me/twin-2"] = lambda situation: "rest → garden"
    world.to(RunState.KEPT_OLD)
    assert world.current == "together:me/twin-1"
    assert "agrees with 0% of" in world.training.runs()[0].note
    assert world.training.adopt().state == RunState.ADOPTED
    assert world.current == "together:me/twin-2"
    with pytest.raises(Refusal, match="not in use"):
        world.training.adopt()


@pytest.mark.parametrize("cut_at", [RunState.PREPARED, RunState.UPLOADED])
def test_a_step_that_a_crash_cut_off_is_not_done_twice(world: World, cut_at: str) -> None:
    world.pairs(60)
    world.training.begin()
    world.to(cut_at)
    world.provided.cut = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        world.training.step()
    world.open()
    world.finish("me/twin-1")
    world.to(RunState.ADOPTED)
    assert len(world.provided.files) == len(world.provided.jobs) == 1
    assert world.purse.entries == {0: "settled 420000"}


def test_a_fault_that_passes_is_tried_again_and_one_that_stays_ends_the_run(world: World) -> None:
    world.pairs(60)
    world.training.begin()
    world.provided.fault = TrainingError("no network", transient=True)
    run = world.training.step()
    assert run is not None
    assert (run.state, run.note) == (RunState.PREPARED, "no network; it will be tried again")
    world.provided.fault = None
    world.to(RunState.STARTED)
    world.provided.fault = TrainingError("job: 404 no such job", transient=False)
    run = world.training.step()
    assert run is not None
    assert (run.state, world.purse.entries) == (RunState.FAILED, {0: "released"})


def test_a_cap_keeps_a_job_from_starting_and_says_so(world: World) -> None:
    world.pairs(60)
    world.training.begin()
    world.purse.full = True
    run = world.to(RunState.UPLOADED)
    assert world.training.step() is not None
    assert world.training.runs()[0].note == "training: the hour's cap; wait, or raise the cap in the settings"
    assert world.provided.jobs == {}
    world.purse.full = False
    assert world.to(RunState.STARTED) == run


def test_cancelling(world: World) -> None:
    with pytest.raises(Refusal, match="no training"):
        world.training.cancel()
    world.pairs(60)
    world.training.begin()
    world.to(RunState.STARTED)
    assert world.training.cancel().state == RunState.CANCELLED
    assert (world.provided.says.state, world.purse.entries) == ("cancelled", {0: "released"})


def test_a_job_whose_start_a_crash_cut_off_is_cancelled_too_and_paid_for(world: World) -> None:
    world.pairs(60)
    world.training.begin()
    world.to(RunState.UPLOADED)
    world.provided.cut = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        world.training.step()
    assert world.training.reserved() == {0}
    world.open()
    world.provided.job = lambda job: Job(job, "cancelled", "cancelled", "", 0.07)  # type: ignore[method-assign]
    assert world.training.cancel().cost_microusd == 70_000
    assert (world.provided.says.state, world.purse.entries) == ("cancelled", {0: "settled 70000"})
    assert world.training.reserved() == set()


def test_the_kill_switch_ends_the_job_at_the_provider(world: World) -> None:
    """SPEC 3.7: what runs elsewhere goes on costing. A pause or a cap leaves what was paid for to come to its end."""
    world.pairs(60)
    world.training.begin()
    world.to(RunState.STARTED)
    world.held = "month: the month's cap is reached"
    assert (run := world.training.step()) is not None
    assert (run.state, world.provided.says.state) == (RunState.STARTED, "running")
    world.held = world.stopped = "stopped by the operator"
    world.provided.fault = TrainingError("it cannot be reached", transient=True)
    assert (run := world.training.step()) is not None
    assert (run.state, "tried again" in run.note) == (RunState.STARTED, True)
    world.provided.fault = None
    assert (run := world.training.step()) is not None
    assert (run.state, run.note) == (RunState.CANCELLED, "stopped by the operator")
    assert (world.provided.says.state, world.purse.entries) == ("cancelled", {0: "released"})


def test_a_job_that_was_done_when_everything_stopped_is_not_thrown_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.pairs(60)
    world.training.begin()
    world.to(RunState.STARTED)
    world.stopped = "stopped by the operator"

    def refuse(job: str) -> None:
        raise TrainingError("a finished job cannot be cancelled", transient=False)

    monkeypatch.setattr(world.provided, "cancel", refuse)
    world.provided.says = Job("", "done", "succeeded", "ft:new", 0.5)
    assert (run := world.training.step()) is not None
    assert (run.state, run.model) == (RunState.TRAINED, "ft:new")


def test_a_job_that_was_done_before_it_was_cancelled_is_paid_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.pairs(60)
    world.training.begin()
    world.to(RunState.STARTED)
    monkeypatch.delattr(Provided, "cancel")  # a provider refuses to cancel a finished job
    world.provided.says = Job("", "done", "succeeded", "ft:new", None)
    run = world.training.cancel()
    assert (run.state, run.cost_microusd, world.purse.entries) == (
        RunState.CANCELLED,
        2_000_000,
        {0: "settled 2000000"},
    )


def test_a_crash_after_a_model_was_adopted_does_not_lose_the_former_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.pairs(60)
    world.current = "openai:first"
    world.answers["openai:first"] = lambda situation: None
    world.training.begin()
    world.finish("me/twin-1")
    world.to(RunState.TRAINED)
    with monkeypatch.context() as patch:
        patch.setattr(world.training, "_move", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            world.training.step()
    assert world.current == "together:me/twin-1"
    world.open()
    world.to(RunState.ADOPTED)
    world.training.restore_former()
    assert world.current == "openai:first"


def test_while_everything_is_stopped_nothing_begins_that_costs(world: World) -> None:
    world.pairs(60)
    world.held = "stopped by the operator"
    with pytest.raises(Refusal, match="stopped by the operator"):
        world.training.begin()
    world.held = ""
    world.training.begin()
    for state in (RunState.PREPARED, RunState.UPLOADED):
        world.to(state)
        world.held = "stopped by the operator"
        assert (run := world.training.step()) is not None
        assert (run.state, run.note) == (state, "stopped by the operator")
        world.held = ""
    assert (world.provided.jobs, world.purse.entries) == ({}, {})


def test_measuring_goes_on_where_a_fault_broke_it_off(world: World) -> None:
    world.pairs(60)
    world.training.begin()
    world.finish("me/twin-1")
    asked: list[str] = []

    def answer(situation: str) -> str:
        asked.append(situation)
        if len(asked) == 3:
            raise TrainingError("too many requests", transient=True)
        return f"run {situation.removeprefix('situation ')} → koji-core"

    world.answers["together:me/twin-1"] = answer
    world.to(RunState.TRAINED)
    assert (run := world.training.step()) is not None
    assert run.state == RunState.TRAINED
    world.to(RunState.ADOPTED)
    assert len(asked) == len(set(asked)) + 1 == world.training.runs()[0].held_back + 1


def test_what_goes_to_a_provider_has_no_secrets_in_it(world: World) -> None:
    world.exporter._secrets = lambda: ["hunter2-hunter2"]
    sides = ("log in with hunter2-hunter2", "use sk-abcdefghijklmnopqrstuvwxyz → koji-core", "rest → garden")
    world.database.write(lambda tx: import_pairs(tx, [(f"{sides[0]} {n}", *sides[1:]) for n in range(60)]))
    text = "\n".join(lines(world, world.training.begin().id))
    assert "log in with [secret cut]" in text
    assert "hunter2" not in text
    assert "sk-abc" not in text


def test_when_the_next_one_is_due(world: World, clock: FakeClock) -> None:
    now = clock.now()
    world.pairs(MIN_PAIRS - 1)
    assert world.training.missing(now) == "1 more pair until the first training"
    world.pairs(1, "more")
    assert not world.training.missing(now)
    world.training.begin()
    assert world.training.missing(now) == "a training is in progress"
    world.finish("me/twin-1")
    world.to(RunState.ADOPTED)
    assert world.training.missing(now + AGAIN_AFTER)  # nothing new
    world.pairs(AGAIN_FROM - 1, "later")
    assert world.training.missing(now).startswith("1 more pair, or any by")
    assert world.training.missing(now + AGAIN_AFTER - timedelta(seconds=1))
    assert not world.training.missing(now + AGAIN_AFTER)
    world.pairs(1, "the hundredth")
    assert not world.training.missing(now)


def test_what_failed_or_was_stopped_does_not_begin_again_by_itself_at_once(world: World, clock: FakeClock) -> None:
    world.pairs(60)
    assert world.training.may_start(clock.now())
    world.provided.fault = TrainingError("no such model", transient=False)
    world.training.launch()
    assert world.training.runs()[0].state == RunState.FAILED
    assert not world.training.may_start(clock.now() + timedelta(hours=23, minutes=59))
    assert world.training.may_start(clock.now() + timedelta(days=1))
    world.provided.fault = None
    clock.advance(timedelta(minutes=1))
    world.training.begin()  # whoever asks for it gets it
    world.training.cancel()
    assert not world.training.may_start(clock.now() + timedelta(days=6))
    assert world.training.may_start(clock.now() + timedelta(days=7))


def test_an_offer_says_what_would_be_sent_and_stores_nothing(world: World) -> None:
    world.pairs(60)
    offer = world.training.offer()
    assert (offer.method, offer.provider, offer.base_model, offer.cost_cap) == ("dpo", "together", "base", 2_000_000)
    assert offer.records + offer.held_back == 60
    assert world.training.runs() == []
    assert world.provided.files == {}
    run = world.training.launch()
    assert (run.state, run.records) == (RunState.STARTED, offer.records)
    assert offer.size == (world.folder / f"{run.id}.jsonl").stat().st_size
    with pytest.raises(Refusal, match="in progress"):
        world.training.offer()


def test_a_model_is_taken_out_and_swapped_in_again(world: World) -> None:
    world.pairs(60)
    with pytest.raises(Refusal, match="no trained model"):
        world.training.restore_former()
    world.current = "openai:first"
    world.answers["openai:first"] = lambda situation: None
    world.training.begin()
    world.finish("me/twin-1")
    world.to(RunState.ADOPTED)
    assert world.current == "together:me/twin-1"
    assert world.training.restore_former().state == RunState.KEPT_OLD
    assert world.current == "openai:first"
    view = world.training.view(world.training.runs()[0].updated_at)
    assert (view.swap and view.swap.model, view.needed, view.pairs) == ("me/twin-1", AGAIN_FROM, 0)
    assert world.training.adopt().state == RunState.ADOPTED
    assert world.current == "together:me/twin-1"
