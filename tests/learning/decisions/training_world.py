"""Training on a real database, with a provider and a budget in this process."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.learning.decisions.decisions import PairTexts, import_pairs
from engine.learning.decisions.exporting import Exporter
from engine.learning.decisions.training import Training
from engine.learning.decisions.training_provider import TrainingError, TrainingJob
from engine.learning.decisions.training_runs import RunState, TrainingPlan, TrainingRun, TwinModel
from engine.model import Refusal
from engine.randomness import Randomness
from engine.storage.database import Database, Transaction

RUNNING = TrainingJob("", "running", "training", "", None)
"""What a provider says of a job that runs."""


class StandInProvider:
    """A provider in this process. Its calls are made before they raise `error` or, once, `crash`."""

    def __init__(self):
        self.files: dict[str, str] = {}
        """The names of the uploaded files, by id."""
        self.file_of_job: dict[str, str] = {}
        self.present = RUNNING
        """The present state of each job."""
        self.price_of_cancelled: float | None = None
        self.error: TrainingError | None = None
        self.crash: BaseException | None = None
        self.opened = 0
        """Number of times that it was opened and not closed yet."""

    def _raise_error(self):
        if self.error:
            raise self.error
        if self.crash:
            crash, self.crash = self.crash, None
            raise crash

    def upload(self, path: Path) -> str:
        self.files[f"file-{len(self.files)}"] = path.name
        self._raise_error()
        return next(reversed(self.files))

    def find_file(self, name: str) -> str:
        return next((file for file, known in self.files.items() if known == name), "")

    def start(self, file: str, *, model: str, checkpoint: str, method: str, suffix: str) -> TrainingJob:
        job = f"ft-{len(self.file_of_job)}"
        self.file_of_job[job] = file
        self._raise_error()
        return replace(RUNNING, id=job)

    def find_job(self, file: str) -> TrainingJob | None:
        return next((replace(RUNNING, id=job) for job, own in self.file_of_job.items() if own == file), None)

    def read_job(self, job: str) -> TrainingJob:
        self._raise_error()
        return replace(self.present, id=job)

    def cancel(self, job: str):
        self._raise_error()
        assert self.present.state == "running", "a provider refuses to cancel a finished job"
        self.present = TrainingJob("", "cancelled", "cancelled", "", self.price_of_cancelled)

    def close(self):
        self.opened -= 1


class StandInBudget:
    """Reserves money, unless it `is_exhausted`."""

    def __init__(self):
        self.entries: dict[int, str] = {}
        """What became of each reservation, by its number."""
        self.is_exhausted = False

    def reserve_call(self, transaction: Transaction, purpose: str, estimate: int) -> int:
        if self.is_exhausted:
            raise Refusal("cost_cap", "training: the hour's cap", "wait, or raise the cap in the settings")
        self.entries[len(self.entries)] = f"{purpose} {estimate}"
        return len(self.entries) - 1

    def settle(self, transaction: Transaction, entry_id: int, amount: int):
        self.entries[entry_id] = f"settled {amount}"

    def release(self, transaction: Transaction, entry_id: int):
        self.entries[entry_id] = "released"


class TrainingWorld:
    """Training on a real database, with a provider, a budget, and the settings that a test gives."""

    def __init__(self, database: Database, folder: Path):
        self.database = database
        self.provider, self.budget = StandInProvider(), StandInBudget()
        self.secrets: list[str] = []
        self.exporter = Exporter(database, folder, conversations=list, secrets=lambda: self.secrets)
        self.base_model, self.current_model, self.hold_reason, self.stop_reason = "base", "", "", ""
        self.answers: dict[str, Callable[[str], str | None]] = {}
        """The answer of each model to a situation."""
        self.folder = folder
        self.restart()

    def restart(self):
        """Start the training anew on the same home."""
        self.training = Training(
            self.database,
            self.folder,
            exporter=self.exporter,
            twin=TwinModel(
                lambda: TrainingPlan("together", self.base_model, 2_000_000, self.current_model),
                self._open_provider,
                lambda model, situation: self.answers[model](situation),
                lambda model: setattr(self, "current_model", model),
            ),
            budget=self.budget,
            randomness=Randomness(),
            hold_reason=lambda: self.hold_reason,
            stop_reason=lambda: self.stop_reason,
        )

    def _open_provider(self) -> StandInProvider:
        self.provider.opened += 1
        return self.provider

    def read_examples(self, run_id: str) -> list[str]:
        """The lines of the examples of a run."""
        return (self.folder / f"{run_id}.jsonl").read_text().splitlines()

    def add_pairs(self, count: int, name: str = "one"):
        """Add pairs in whose texts `name` is."""
        sides = [
            PairTexts(f"situation {name} {n}", f"run {name} {n} → koji-core", f"rest {n} → garden")
            for n in range(count)
        ]
        self.database.write(lambda tx: import_pairs(tx, sides))

    def begin_run(self, state: str = RunState.PREPARED):
        """Begin a run on 60 new pairs, and bring it into `state`."""
        self.add_pairs(60)
        self.training.begin()
        self.step_until(state)

    def crash(self):
        """Let the process end when the provider was asked in the next step, and start again."""
        self.provider.crash = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            self.training.step()
        self.restart()

    def step(self) -> TrainingRun:
        """Carry out the next step."""
        run = self.training.step()
        assert run is not None
        return run

    def finish(self, model: str, dollars: float | None = 0.42):
        """Let the job be done. Its model answers as the operator decided."""
        self.provider.present = TrainingJob("", "done", "completed", model, dollars)
        self.answers[f"together:{model}"] = answer_as_operator

    def step_until(self, state: str) -> str:
        """Carry out steps until the run is in `state`; returns its id."""
        for _ in range(5):
            run = self.training.find_active_run()
            if run is None or run.state == state:
                break
            self.training.step()
        newest = self.training.list_runs()[0]
        assert newest.state == state, newest
        return newest.id


def answer_as_operator(situation: str) -> str:
    """The chosen half of the pair with this situation."""
    return f"run {situation.removeprefix('situation ')} → koji-core"
