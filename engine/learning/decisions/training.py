"""Trains a model on the operator's decisions: the steps from examples to a model in use (SPEC 8.4).

A job costs money, so each step first checks whether an earlier attempt succeeded: whether there is a file with the
run's name, or a job on that file. After a temporary error the run keeps its state and gets a note. Any other error ends
the run, and the model in use stays.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

from engine.events.learning import TrainingMoved
from engine.files import write_atomic
from engine.learning.decisions.decisions import Preference
from engine.learning.decisions.exporting import Exporter
from engine.learning.decisions.training_provider import Provider, TrainingError, TrainingJob
from engine.learning.decisions.training_runs import (
    ACTIVE_STATES,
    MAX_MEASURED_PAIRS,
    MEASURED_STATES,
    MIN_MEASURED_PAIRS,
    Agreement,
    Batch,
    BudgetReservation,
    PairProgress,
    RunState,
    TrainingPlan,
    TrainingRun,
    TwinModel,
    describe_missing,
    find_newest_run,
    load_run,
    make_batch,
    may_replace,
    measure_agreement,
    read_progress,
    split_pairs,
)
from engine.model import Refusal, TrainingOffer, TrainingView
from engine.randomness import Randomness
from engine.storage import read_all
from engine.storage.database import Database, Transaction
from engine.wording import count, to_microusd

log = logging.getLogger(__name__)

COIN_TOSS = Agreement(0.5, 0)
"""The agreement with which the first trained model is compared."""

COOL_DOWNS = {RunState.FAILED: timedelta(days=1), RunState.CANCELLED: timedelta(days=7)}
"""Time after a run in this state in which no run begins by itself, because it may fail again and cost money."""

MAX_VIEWED = 5
"""Maximum number of runs that a screen shows."""


class Training:
    """Starts training runs and carries out their steps, one run at a time. Methods may be called from any thread."""

    def __init__(
        self,
        database: Database,
        folder: Path,
        *,
        exporter: Exporter,
        twin: TwinModel,
        budget: BudgetReservation,
        randomness: Randomness,
        hold_reason: Callable[[], str] = str,
        stop_reason: Callable[[], str] = str,
    ) -> None:
        """`hold_reason()` says why nothing that costs money may begin now (SPEC 3.7), "" if it may. `stop_reason()`
        says why even a running job must end, "" if it may go on."""
        self._database = database
        self._twin = twin
        self._folder = folder
        self._exporter = exporter
        self._budget = budget
        self._randomness = randomness
        self._hold_reason = hold_reason
        self._stop_reason = stop_reason
        self._step_lock = threading.Lock()
        self._cancel_requested = threading.Event()
        self._answers: dict[tuple[str, str], str | None] = {}
        """The answers in the present measurement, by model and situation, so that each is paid for only once."""

    # -- runs, and when the next one is due

    def list_runs(self, limit: int = 50) -> list[TrainingRun]:
        """The newest runs first."""
        with self._database.read() as session:
            return read_all(session, TrainingRun, "ORDER BY created_at DESC, id LIMIT :limit", {"limit": limit})

    def find_active_run(self) -> TrainingRun | None:
        """The run in progress, None without one."""
        return self._load_newest(ACTIVE_STATES)

    def may_start(self, now: datetime) -> bool:
        """Whether a run may begin by itself: it is due, and the cool-down after a failed or cancelled one is over."""
        last_run = self._load_newest()
        cool_down = COOL_DOWNS.get(RunState(last_run.state)) if last_run else None
        is_cooling = last_run is not None and cool_down is not None and now - last_run.updated_at < cool_down
        return not self.describe_missing(now) and not is_cooling

    def view(self, now: datetime) -> TrainingView:
        """The state of training, for a screen."""
        plan, progress, active = self._twin.plan(), self._read_progress(), self.find_active_run()
        return TrainingView(
            progress.unused,
            progress.needed,
            self.describe_missing(now),
            None if active is None else active.view,
            tuple(run.view for run in self.list_runs(MAX_VIEWED)),
            plan.current_model,
            plan.enabled,
            plan.automatic,
        )

    def describe_missing(self, now: datetime) -> str:
        """What is missing until the next training on pairs, "" if it is due (SPEC 8.4)."""
        return "a training is in progress" if self.find_active_run() else describe_missing(self._read_progress(), now)

    def _read_progress(self) -> PairProgress:
        """See `read_progress`."""
        with self._database.read() as session:
            return read_progress(session)

    def _load_newest(self, states: Collection[RunState] = tuple(RunState)) -> TrainingRun | None:
        """See `find_newest_run`."""
        with self._database.read() as session:
            return find_newest_run(session, states)

    # -- the next run

    def begin(self) -> TrainingRun:
        """Prepare the next run: on conversations first, then on pairs, each from the model of the run before.

        Raises `Refusal`: `held`, `training_active`, `no_base_model`, `few_pairs`, and the refusals of the provider's
        key.
        """
        plan, batch = self._require_plan(), self._make_batch()
        adopted = self._load_newest([RunState.ADOPTED])
        run_id = self._randomness.new_id("train")
        self._locate_examples(run_id).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self._locate_examples(run_id), batch.data)

        def add_run(tx: Transaction) -> TrainingRun:
            if (active := find_newest_run(tx.session, ACTIVE_STATES)) is not None:
                raise _make_active_refusal(active)
            run = TrainingRun(
                id=run_id,
                state=RunState.PREPARED,
                method=batch.method,
                provider=plan.provider,
                base_model=plan.base_model,
                checkpoint=adopted.job_id if adopted and adopted.provider == plan.provider else "",
                records=batch.records,
                pairs_to=batch.last_pair,
                former_model=plan.current_model,
                created_at=tx.now,
                updated_at=tx.now,
            )
            tx.session.add(run)
            tx.record(TrainingMoved(subject=run_id, state=run.state, note=f"{batch.method}, {batch.records} examples"))
            return run

        try:
            return self._database.write(add_run)
        except Refusal:
            self._locate_examples(run_id).unlink(missing_ok=True)
            raise

    def launch(self) -> TrainingRun:
        """`begin` a run, and carry out steps until the provider has the job or a step fails. Raises as `begin`."""
        run = self.begin()
        run_id, state = run.id, ""
        while run.id == run_id and run.state in (RunState.PREPARED, RunState.UPLOADED) and run.state != state:
            state = run.state
            run = self.step() or run
        return run

    def offer(self) -> TrainingOffer:
        """The run that `begin` would start now. Raises as `begin`."""
        plan, batch = self._require_plan(), self._make_batch()
        if (active := self.find_active_run()) is not None:
            raise _make_active_refusal(active)
        return TrainingOffer(
            batch.method,
            plan.provider,
            plan.base_url,
            plan.base_model,
            batch.records,
            len(batch.data),
            batch.held_back,
            plan.cost_cap,
            plan.current_model,
        )

    def _require_plan(self) -> TrainingPlan:
        """The settings of the next run. Raises `Refusal`: `held`, `no_base_model`, and those of the provider's key."""
        if hold := self._hold_reason():
            raise Refusal("held", f"no training can start: {hold}", "clawpy resume")
        plan = self._twin.plan()
        self._twin.open_provider().close()  # raises for a missing key before anything is prepared
        if not plan.base_model:
            fix = "clawpy config set training.baseModel MODEL"
            raise Refusal("no_base_model", "no model to train is set", fix)
        return plan

    def _make_batch(self) -> Batch:
        """The examples of the next run. Raises `Refusal` `few_pairs`."""
        return make_batch(self._exporter, is_first=self._load_newest(MEASURED_STATES) is None)

    # -- steps

    def step(self) -> TrainingRun | None:
        """Carry out the next step of the run in progress; None without one. An error of the provider becomes a note of
        the run. Does nothing while another thread carries out a step."""
        if not self._step_lock.acquire(blocking=False):
            return self.find_active_run()
        try:
            run = self.find_active_run()
            return None if run is None else self._carry_out_step(run)
        finally:
            self._step_lock.release()

    def _carry_out_step(self, run: TrainingRun) -> TrainingRun:
        """Carry out the next step of a run, unless work is held or stopped; returns the run after it."""
        steps: dict[str, Callable[[TrainingRun, Provider], None]] = {
            RunState.PREPARED: self._upload,
            RunState.UPLOADED: self._start,
            RunState.STARTED: self._follow,
            RunState.TRAINED: self._measure,
        }
        stop_reason = self._stop_reason() if _may_cost(run) else ""
        is_free = run.state == RunState.STARTED  # a job is only read
        hold_reason = "" if stop_reason or is_free else self._hold_reason()
        if hold_reason:
            return self._change_state(run.id, run.state, note=hold_reason)
        try:
            with closing(self._twin.open_provider()) as provider:
                if stop_reason:
                    self._stop(run, provider, stop_reason)
                else:
                    steps[run.state](run, provider)
        except TrainingError as error:
            log.warning("training %s: %s", run.id, error)
            if error.transient:
                self._change_state(run.id, run.state, note=f"{error}; it will be tried again")
            else:
                self._change_state(run.id, RunState.FAILED, note=str(error))
        except Refusal as refusal:  # a missing key or a cap, which the operator can fix
            self._change_state(run.id, run.state, note=f"{refusal.message}; {refusal.fix}")
        with self._database.read() as session:
            return load_run(session, run.id)

    def cancel(self) -> TrainingRun:
        """End the run in progress, at the provider too. Raises `Refusal` `no_training`, `not_cancelled`."""
        self._cancel_requested.set()
        with self._step_lock:
            self._cancel_requested.clear()
            run = self.find_active_run()
            if run is None:
                raise Refusal("no_training", "no training is in progress")
            job = None
            if _may_cost(run):
                try:
                    with closing(self._twin.open_provider()) as provider:
                        job = self._end_job(run, provider)
                except TrainingError as error:
                    raise Refusal("not_cancelled", str(error), "try again, or cancel it at the provider") from error
            return self._change_state(run.id, RunState.CANCELLED, note="cancelled", job=job)

    def find_reserved_entries(self) -> set[int]:
        """The cost entry that reserves money for the run in progress, which goes on after a restart."""
        run = self.find_active_run()
        return set() if run is None or run.cost_entry is None else {run.cost_entry}

    def _upload(self, run: TrainingRun, provider: Provider) -> None:
        """Send the examples to the provider."""
        file = self._locate_examples(run.id)
        if not file.exists():
            self._change_state(run.id, RunState.FAILED, note=f"{file} is gone; start a new training")
            return
        file_id = provider.find_file(file.name) or provider.upload(file)
        self._change_state(run.id, RunState.UPLOADED, file_id=file_id)

    def _start(self, run: TrainingRun, provider: Provider) -> None:
        """Reserve money for the job, and start it."""
        if run.cost_entry is None:
            self._database.write(lambda tx: self._reserve(tx, run.id))
        job = provider.find_job(run.file_id) or provider.start(
            run.file_id, model=run.base_model, checkpoint=run.checkpoint, method=run.method, suffix=run.id
        )
        self._change_state(run.id, RunState.STARTED, job_id=job.id, note=job.status)

    def _follow(self, run: TrainingRun, provider: Provider) -> None:
        """Read the state of the job from the provider."""
        job = provider.read_job(run.job_id)
        if job.state == "running":
            self._change_state(run.id, RunState.STARTED, note=job.status)
        elif job.state == "done" and job.model:
            self._change_state(run.id, RunState.TRAINED, job=job, model=job.model, note="trained; it is measured next")
        else:
            state = RunState.CANCELLED if job.state == "cancelled" else RunState.FAILED
            self._change_state(run.id, state, note=f"the provider says {job.status}", job=job)

    def _stop(self, run: TrainingRun, provider: Provider, reason: str) -> None:
        """End the job at the provider because of the kill switch (SPEC 3.7), since it would go on costing money. A job
        that is over already is handled as usual."""
        job = self._find_job(run, provider)
        if job is not None and job.state != "running":
            self._follow(self._change_state(run.id, RunState.STARTED, job_id=job.id), provider)
        else:
            self._change_state(run.id, RunState.CANCELLED, note=reason, job=self._end_job(run, provider))

    @staticmethod
    def _find_job(run: TrainingRun, provider: Provider) -> TrainingJob | None:
        """The job of a run. A crash may have hidden its start from the table."""
        return provider.read_job(run.job_id) if run.job_id else provider.find_job(run.file_id)

    def _end_job(self, run: TrainingRun, provider: Provider) -> TrainingJob | None:
        """End the job at the provider, unless it is over, and return it."""
        job = self._find_job(run, provider)
        if job is None or job.state != "running":
            return job
        provider.cancel(job.id)
        return provider.read_job(job.id)

    def _measure(self, run: TrainingRun, provider: Provider) -> None:
        """Measure the trained model on pairs that were held back, and adopt it if it may replace the former one."""
        _, held_back = split_pairs(self._exporter.load_preferences())
        pairs = held_back[-MAX_MEASURED_PAIRS:]
        if len(pairs) < MIN_MEASURED_PAIRS:
            few = f"only {count(len(pairs), 'pair')} of the {MIN_MEASURED_PAIRS} needed to measure it"
            note = f"{few}; to use it anyway: clawpy train adopt"
            self._change_state(run.id, RunState.KEPT_OLD, note=note, held_back=len(pairs))
            return
        model = f"{run.provider}:{run.model}"
        new = self._measure_agreement(model, pairs)
        current = self._twin.plan().current_model
        former = run.former_model if current == model else current  # adopted already, before a crash
        old = self._measure_agreement(former, pairs) if former else COIN_TOSS
        is_better = may_replace(new, old)
        compared = f"{former} with {old.share:.0%}" if former else "a coin toss with half"
        note = f"agrees with {new.share:.0%} of {new.asked} held-back decisions, {compared}"
        if is_better:
            self._twin.adopt(model)
        self._change_state(
            run.id,
            RunState.ADOPTED if is_better else RunState.KEPT_OLD,
            note=note,
            held_back=len(pairs),
            agreement=new.share,
            former_agreement=old.share,
            former_model=former,
        )

    # -- the model in use

    def restore_former(self) -> TrainingRun:
        """Use the model again that the newest model replaced. Raises `Refusal` `no_training`."""
        run = self._find_newest(RunState.ADOPTED, "in use")
        return self._switch_model(run.former_model, run, RunState.KEPT_OLD, "switched off by you")

    def adopt(self) -> TrainingRun:
        """Use the model of the last finished run, which was not adopted by itself. Raises `Refusal` `no_training`."""
        run = self._find_newest(RunState.KEPT_OLD, "not in use")
        return self._switch_model(f"{run.provider}:{run.model}", run, RunState.ADOPTED, f"adopted by you; {run.note}")

    def _switch_model(self, model: str, run: TrainingRun, state: RunState, note: str) -> TrainingRun:
        """Use a model from now on, and set the state of the run that trained the newest one."""
        self._twin.adopt(model)
        return self._change_state(run.id, state, note=note)

    def _find_newest(self, state: RunState, description: str) -> TrainingRun:
        """The newest run in a state, which `description` names. Raises `Refusal` `no_training`."""
        run = self._load_newest([state])
        if run is None:
            raise Refusal("no_training", f"there is no trained model that is {description}")
        return run

    # -- answers, files and rows

    def _measure_agreement(self, model: str, pairs: Sequence[Preference]) -> Agreement:
        """The agreement of a model with the operator. If it raises `TrainingError`, the answers so far are kept."""
        for situation in dict.fromkeys(pair.context for pair in pairs):
            if self._cancel_requested.is_set():
                raise TrainingError("it is being cancelled", transient=True)
            if (model, situation) not in self._answers:
                self._answers[model, situation] = self._twin.answer(model, situation)
        return measure_agreement(pairs, [self._answers[model, pair.context] for pair in pairs])

    def _locate_examples(self, run_id: str) -> Path:
        """The file of examples of a run."""
        return self._folder / f"{run_id}.jsonl"

    def _reserve(self, tx: Transaction, run_id: str) -> None:
        """Reserve the most that a run may cost. Raises a refusal at a cap."""
        run = load_run(tx.session, run_id)
        run.cost_entry = self._budget.reserve_call(tx, "training", self._twin.plan().cost_cap)
        tx.session.add(run)

    def _change_state(
        self, run_id: str, state: RunState | str, *, job: TrainingJob | None = None, **fields: object
    ) -> TrainingRun:
        """Set the state and fields of a run. If it is over, or the provider states the price of its `job`, the reserved
        money is settled."""

        def update(tx: Transaction) -> TrainingRun:
            run = load_run(tx.session, run_id)
            is_new_state = run.state != state
            for name, value in fields.items():
                setattr(run, name, value)
            run.state, run.updated_at = state, tx.now
            self._settle_cost(tx, run, job)
            tx.session.add(run)
            if is_new_state:
                tx.record(TrainingMoved(subject=run_id, state=state, note=run.note))
            return run

        run = self._database.write(update)
        if state not in ACTIVE_STATES:
            self._answers.clear()
            self._locate_examples(run_id).unlink(missing_ok=True)  # the provider has it
        return run

    def _settle_cost(self, tx: Transaction, run: TrainingRun, job: TrainingJob | None) -> None:
        """Settle the reserved money of a run with the price of its job, or release it when the run is over. If the
        provider states no price, the whole amount is settled for a job that is done, and nothing for others."""
        if run.cost_entry is None:
            return
        if job is not None and (job.state == "done" or job.dollars is not None):
            run.cost_microusd = self._twin.plan().cost_cap if job.dollars is None else to_microusd(job.dollars)
            self._budget.settle(tx, run.cost_entry, run.cost_microusd)
            run.cost_entry = None
        elif run.state not in ACTIVE_STATES:
            self._budget.release(tx, run.cost_entry)
            run.cost_entry = None


def _make_active_refusal(run: TrainingRun) -> Refusal:
    """The refusal of another run while this one is in progress."""
    return Refusal("training_active", f"{run.id} is in progress ({run.state})", "clawpy train cancel")


def _may_cost(run: TrainingRun) -> bool:
    """Whether the provider may have a job of this run that costs money."""
    return run.state in (RunState.UPLOADED, RunState.STARTED) and run.cost_entry is not None
