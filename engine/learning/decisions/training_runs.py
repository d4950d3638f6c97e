"""Training runs: their table, and the steps from examples to a model in use (SPEC 8.4).

    prepared → uploaded → started → trained → adopted | kept_old        at any step: failed, cancelled

A job costs money, so each step first checks whether an earlier attempt succeeded (a file of the run's name, a job on
that file). A temporary fault leaves the run where it is, with a note; any other ends it, and the model in use stays.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from sqlalchemy import CheckConstraint, ColumnElement
from sqlmodel import Field, Session, col, select

from engine.events import TrainingMoved
from engine.frozen import frozen
from engine.learning.decisions.decisions import count_pairs
from engine.learning.decisions.exporting import Exporter
from engine.learning.decisions.training_examples import (
    DPO,
    FIRST_FROM,
    MAX_MEASURED,
    MIN_MEASURED,
    SFT,
    Agreement,
    Batch,
    Plan,
    agreement,
    batch_of,
    no_worse,
    split,
)
from engine.learning.decisions.training_lines import Preference
from engine.learning.decisions.training_provider import Job, Provider, TrainingError
from engine.model import Randomness, Refusal, TrainingOffer, TrainingRunView, TrainingView
from engine.model.text import count
from engine.storage.database import Database, Transaction
from engine.storage.files import write_atomic
from engine.storage.rows import Row
from engine.storage.types import utc_column

PREPARED, UPLOADED, STARTED, TRAINED = "prepared", "uploaded", "started", "trained"
ADOPTED, KEPT_OLD, FAILED, CANCELLED = "adopted", "kept_old", "failed", "cancelled"
ACTIVE = (PREPARED, UPLOADED, STARTED, TRAINED)
STATES = (*ACTIVE, ADOPTED, KEPT_OLD, FAILED, CANCELLED)


class TrainingRun(Row, table=True):
    """One run. Money in micro-dollars. `pairs_to` is the highest pair it may have seen; `note` the last word on it."""

    __tablename__ = "training_runs"
    __table_args__ = (
        CheckConstraint(
            "state IN ({})".format(", ".join(f"'{state}'" for state in STATES)), name="ck_training_runs_state"
        ),
        CheckConstraint(f"method IN ('{SFT}', '{DPO}')", name="ck_training_runs_method"),
    )

    id: str = Field(primary_key=True)
    state: str = Field(index=True)
    method: str
    provider: str
    base_model: str
    checkpoint: str = ""
    records: int
    pairs_to: int
    file_id: str = ""
    job_id: str = ""
    model: str = ""
    former_model: str = ""
    agreement: float | None = None
    former_agreement: float | None = None
    held_back: int = 0
    cost_entry: int | None = None
    cost_microusd: int = 0
    note: str = ""
    created_at: datetime = Field(sa_column=utc_column())
    updated_at: datetime = Field(sa_column=utc_column())

    @property
    def view(self) -> TrainingRunView:
        """The run as screens see it."""
        return TrainingRunView(
            self.id, self.state, self.method, self.provider, self.checkpoint or self.base_model, self.records,
            self.model, self.former_model, self.agreement, self.former_agreement, self.held_back, self.cost_microusd,
            self.note, self.created_at, self.updated_at,
        )  # fmt: skip


def run_of(tx: Transaction, run_id: str) -> TrainingRun:
    run = tx.session.get(TrainingRun, run_id)
    assert run is not None
    return run


def newest(session: Session, *where: ColumnElement[bool] | bool, begun: bool = False) -> TrainingRun | None:
    """The run of these that was moved last, or with `begun` that began last."""
    at = TrainingRun.created_at if begun else TrainingRun.updated_at
    return session.exec(select(TrainingRun).where(*where).order_by(col(at).desc())).first()


_ACTIVE = col(TrainingRun.state).in_(ACTIVE)
_ON_PAIRS = (col(TrainingRun.method) == DPO) & col(TrainingRun.state).in_((ADOPTED, KEPT_OLD))
"""Runs whose pairs need not be trained on again: one that failed or was cancelled used none up."""


log = logging.getLogger(__name__)

VIEWED = 5
"""Runs that a screen is told of."""


AGAIN_FROM = 100
"""Number of new pairs that make the next run due."""

AGAIN_AFTER = timedelta(days=7)
"""After so long any new pair does."""

RESTS = {FAILED: timedelta(days=1), CANCELLED: timedelta(days=7)}
"""After such an end nothing begins by itself for so long: what failed would fail again, and each try may cost."""


class BudgetReservation(Protocol):
    """Sets money aside and settles it, within the caps (SPEC 3.2)."""

    def reserve_call(self, transaction: Transaction, purpose: str, estimate: int) -> int: ...

    def settle(self, transaction: Transaction, entry_id: int, amount: int) -> None: ...

    def release(self, transaction: Transaction, entry_id: int) -> None: ...


Answer = Callable[[str, str], str | None]
"""`answer(model, situation)`: what a model, `PROVIDER:MODEL`, proposes as `prompt → channel`; None for rubbish.
Raises `TrainingError` when it cannot be asked."""


@frozen
class TwinModel:
    """The Twin model as training uses it. `plan` is what the settings say, `api` opens the provider (raises `Refusal`
    when there is no key), `answer` asks a model, and `adopt` puts one into the settings."""

    plan: Callable[[], Plan]
    api: Callable[[], Provider]
    answer: Answer
    adopt: Callable[[str], None]


class Training:
    """Begins runs and brings them on. One run is under way at a time; methods may be called from any thread."""

    def __init__(
        self,
        database: Database,
        folder: Path,
        *,
        exporter: Exporter,
        twin: TwinModel,
        budget: BudgetReservation,
        randomness: Randomness,
        hold: Callable[[], str] = str,
        stopped: Callable[[], str] = str,
    ) -> None:
        """`hold()` says why nothing that costs may begin now (SPEC 3.7), "" when it may; `stopped()` why what costs is
        to end as well."""
        self._database = database
        self._folder = folder
        self._exporter = exporter
        self._twin = twin
        self._budget = budget
        self._randomness = randomness
        self._hold = hold
        self._stopped = stopped
        self._stepping = threading.Lock()
        self._cancelling = threading.Event()
        self._answers: dict[tuple[str, str], str | None] = {}
        """What was answered in the measuring that is under way, by model and situation: each is paid for once."""

    # -- looking

    def runs(self, limit: int = 50) -> list[TrainingRun]:
        """The newest runs first."""
        with self._database.read() as session:
            newest = select(TrainingRun).order_by(col(TrainingRun.created_at).desc(), col(TrainingRun.id)).limit(limit)
            return list(session.exec(newest))

    def active(self) -> TrainingRun | None:
        """The run that is under way."""
        return self._newest(_ACTIVE)

    def wanted(self, now: datetime) -> bool:
        """Whether one may begin by itself: it is due, and what ended the last one too early is long enough ago."""
        last = self._newest()
        rest = RESTS.get(last.state) if last else None
        return not self.missing(now) and not (last and rest and now - last.updated_at < rest)

    def progress(self) -> tuple[int, int]:
        """How many pairs no training has seen yet, and how many make the next one due."""
        last = self._newest(_ON_PAIRS, begun=True)
        with self._database.read() as session:
            return count_pairs(session, after=last.pairs_to if last else 0), AGAIN_FROM if last else FIRST_FROM

    def view(self, now: datetime) -> TrainingView:
        """How training stands, for a screen."""
        plan, (new, needed), active = self._twin.plan(), self.progress(), self.active()
        return TrainingView(
            new, needed, self.missing(now), None if active is None else active.view,
            tuple(run.view for run in self.runs(VIEWED)), plan.current_model, plan.enabled, plan.automatic,
        )  # fmt: skip

    def missing(self, now: datetime) -> str:
        """What is missing until the next training on pairs, in words; "" when it is due (SPEC 8.4): the first at 50,
        then every 100 new ones, or weekly if there is any."""
        if self.active() is not None:
            return "a training is in progress"
        (new, needed), day = self.progress(), None
        last = self._newest(_ON_PAIRS, begun=True)
        if last is not None:
            day = last.created_at + AGAIN_AFTER
        if new >= needed or (day and new and now >= day):
            return ""
        first = f"{count(needed - new, 'more pair')} until the first training"
        return f"{count(needed - new, 'more pair')}, or any by {day:%d %B}, until the next training" if day else first

    # -- doing

    def begin(self) -> TrainingRun:
        """Prepare the next run: conversations first, then pairs, each from what came of the one before.

        Raises `Refusal`: `held`, `training_active`, `no_base_model`, `few_pairs`, and what the provider's key raises.
        """
        plan, batch, adopted = self._ready()
        run_id = self._randomness.new_id("train")
        self._file(run_id).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self._file(run_id), batch.data)
        same_provider = adopted is not None and adopted.provider == plan.provider

        def work(tx: Transaction) -> TrainingRun:
            if (active := newest(tx.session, _ACTIVE)) is not None:
                raise _under_way(active)
            run = TrainingRun(
                id=run_id,
                state=PREPARED,
                method=batch.method,
                provider=plan.provider,
                base_model=plan.base_model,
                checkpoint=adopted.job_id if same_provider and adopted else "",
                records=batch.records,
                pairs_to=batch.pairs_to,
                former_model=plan.current_model,
                created_at=tx.now,
                updated_at=tx.now,
            )
            tx.session.add(run)
            tx.record(TrainingMoved(subject=run_id, state=PREPARED, note=f"{batch.method}, {batch.records} examples"))
            return run

        try:
            return self._database.write(work)
        except Refusal:
            self._file(run_id).unlink(missing_ok=True)
            raise

    def launch(self) -> TrainingRun:
        """`begin`, and step until the provider has the job or something stands in the way. Raises as `begin`."""
        run = begun = self.begin()
        state = ""
        while run.id == begun.id and run.state in (PREPARED, UPLOADED) and run.state != state:
            state = run.state
            run = self.step() or run
        return run

    def offer(self) -> TrainingOffer:
        """What `begin` would do now; nothing is sent or stored. Raises what `begin` raises."""
        plan, batch, _ = self._ready()
        if (active := self.active()) is not None:
            raise _under_way(active)
        return TrainingOffer(
            batch.method, plan.provider, plan.base_url, plan.base_model, batch.records, len(batch.data),
            batch.held_back, plan.cost_cap, plan.current_model,
        )  # fmt: skip

    def _ready(self) -> tuple[Plan, Batch, TrainingRun | None]:
        """What the next run would be made of, and the last one whose model was taken."""
        if hold := self._hold():
            raise Refusal("held", f"no training can start: {hold}", "clawpy resume")
        plan, missing = self._twin.plan(), list[Refusal]()
        adopted, declined = (self._newest(TrainingRun.state == state) for state in (ADOPTED, KEPT_OLD))
        try:
            self._twin.api().close()  # a missing key is said before anything is prepared
        except Refusal as refusal:
            missing.append(refusal)
        if not plan.base_model:
            words = "no model to train is set"
            missing.append(Refusal("no_base_model", words, "clawpy config set training.baseModel MODEL"))
        batch = None
        try:
            batch = batch_of(self._exporter, first=adopted is None and declined is None)
        except Refusal as refusal:
            missing.append(refusal)
        if batch is None or missing:
            raise _combined(missing)
        return plan, batch, adopted

    def step(self) -> TrainingRun | None:
        """Bring the run that is under way on by one step; None when there is none. Raises nothing that a provider can
        cause: it stands in the run. While another thread makes a step, nothing is done here."""
        steps = {PREPARED: self._upload, UPLOADED: self._start, STARTED: self._follow, TRAINED: self._measure}
        if not self._stepping.acquire(blocking=False):
            return self.active()
        try:
            run = self.active()
            if run is None:
                return None
            stop = self._stopped() if run.state in (UPLOADED, STARTED) and run.cost_entry is not None else ""
            if not stop and run.state != STARTED and (hold := self._hold()):  # looking how a job stands costs nothing
                return self._move(run.id, run.state, note=hold)
            try:
                with closing(self._twin.api()) as api:
                    if stop:
                        self._stop(run, api, stop)
                    else:
                        steps[run.state](run, api)
            except TrainingError as fault:
                log.warning("training %s: %s", run.id, fault)
                if fault.transient:
                    self._move(run.id, run.state, note=f"{fault}; it will be tried again")
                else:
                    self._move(run.id, FAILED, note=str(fault))
            except Refusal as refusal:  # no key, a cap: the operator may mend it
                self._move(run.id, run.state, note=f"{refusal.message}; {refusal.fix}")
            with self._database.read() as session:
                return session.get(TrainingRun, run.id)
        finally:
            self._stepping.release()

    def cancel(self) -> TrainingRun:
        """End the run that is under way, at the provider too. Raises `Refusal` `no_training`."""
        self._cancelling.set()
        with self._stepping:
            self._cancelling.clear()
            run = self.active()
            if run is None:
                raise Refusal("no_training", "no training is in progress")
            ended = None
            if run.state in (UPLOADED, STARTED) and run.cost_entry is not None:
                try:
                    with closing(self._twin.api()) as api:
                        ended = self._cancelled(run, api)
                except TrainingError as fault:
                    raise Refusal("not_cancelled", str(fault), "try again, or cancel it at the provider") from fault
            return self._move(run.id, CANCELLED, note="cancelled", settle=ended)

    def reserved(self) -> set[int]:
        """The cost entry that the run under way has set aside for as long as it lasts, restarts included."""
        run = self.active()
        return set() if run is None or run.cost_entry is None else {run.cost_entry}

    # -- the steps

    def _upload(self, run: TrainingRun, api: Provider) -> None:
        file = self._file(run.id)
        if not file.exists():
            self._move(run.id, FAILED, note=f"{file} is gone; start a new training")
            return
        file_id = api.find_file(file.name) or api.upload(file)
        self._move(run.id, UPLOADED, file_id=file_id)

    def _start(self, run: TrainingRun, api: Provider) -> None:
        if run.cost_entry is None:
            self._database.write(lambda tx: self._reserve(tx, run.id))
        job = api.find_job(run.file_id) or api.start(
            run.file_id, model=run.base_model, checkpoint=run.checkpoint, method=run.method, suffix=run.id
        )
        self._move(run.id, STARTED, job_id=job.id, note=job.status)

    def _follow(self, run: TrainingRun, api: Provider) -> None:
        job = api.job(run.job_id)
        if job.state == "running":
            self._move(run.id, STARTED, note=job.status)
        elif job.state == "done" and job.model:
            self._move(run.id, TRAINED, settle=job, model=job.model, note="trained; it is measured next")
        else:
            state = CANCELLED if job.state == "cancelled" else FAILED
            self._move(run.id, state, note=f"the provider says {job.status}", settle=_priced(job))

    def _stop(self, run: TrainingRun, api: Provider, why: str) -> None:
        """The kill switch is thrown: the job goes on costing until it is ended at the provider (SPEC 3.7)."""
        try:
            ended = self._cancelled(run, api)
        except TrainingError as fault:
            if fault.transient:
                raise
            if run.job_id:
                self._follow(run, api)  # it cannot be ended any more; how it ended is told there
            else:
                log.warning("training %s could not be ended: %s", run.id, fault)
                self._move(run.id, run.state, note=f"{why}; it could not be ended at the provider: {fault}")
            return
        self._move(run.id, CANCELLED, note=why, settle=ended)

    @staticmethod
    def _cancelled(run: TrainingRun, api: Provider) -> Job | None:
        """End the job, also one whose start a crash cut off before it was noted; what it cost, where that is told."""
        job = run.job_id or (started.id if (started := api.find_job(run.file_id)) else "")
        if not job:
            return None
        api.cancel(job)
        return _priced(api.job(job))

    def _measure(self, run: TrainingRun, api: Provider) -> None:
        pairs = split(self._exporter.every_pair())[1][-MAX_MEASURED:]
        if len(pairs) < MIN_MEASURED:
            few = f"only {count(len(pairs), 'pair')} of the {MIN_MEASURED} needed to measure it"
            words = f"{few}; to use it anyway: clawpy train adopt"
            self._move(run.id, KEPT_OLD, note=words, held_back=len(pairs))
            return
        model = f"{run.provider}:{run.model}"
        new = self._agreement(model, pairs)
        former = self._twin.plan().current_model
        old = self._agreement(former, pairs) if former else COIN
        better = no_worse(new, old)
        words = f"agrees with {new.share:.0%} of {new.asked} held-back decisions, " + (
            f"{former} with {old.share:.0%}" if former else "a coin toss with half"
        )
        if better:
            self._twin.adopt(model)
        self._move(
            run.id, ADOPTED if better else KEPT_OLD, note=words, held_back=len(pairs), agreement=new.share,
            former_agreement=old.share, former_model=former,
        )  # fmt: skip

    def put_back(self) -> TrainingRun:
        """Use again what was in use before the newest model was swapped in. Raises `Refusal` `no_training`."""
        run = self._last(ADOPTED, "in use")
        self._twin.adopt(run.former_model)
        return self._move(run.id, KEPT_OLD, note="switched off by you")

    def adopt(self) -> TrainingRun:
        """Use what the last finished run made although it was not swapped in. Raises `Refusal` `no_training`."""
        run = self._last(KEPT_OLD, "not in use")
        self._twin.adopt(f"{run.provider}:{run.model}")
        return self._move(run.id, ADOPTED, note=f"adopted by you; {run.note}")

    def _last(self, state: str, words: str) -> TrainingRun:
        run = self._newest(TrainingRun.state == state)
        if run is None:
            raise Refusal("no_training", f"there is no trained model that is {words}")
        return run

    # -- within

    def _agreement(self, model: str, pairs: Sequence[Preference]) -> Agreement:
        """How far a model agrees with the operator. Raises `TrainingError`; what it answered until then is kept."""
        for situation in dict.fromkeys(pair.context for pair in pairs):
            if self._cancelling.is_set():
                raise TrainingError("it is being cancelled", transient=True)
            if (model, situation) not in self._answers:
                self._answers[model, situation] = self._twin.answer(model, situation)
        return agreement(pairs, [self._answers[model, pair.context] for pair in pairs])

    def _newest(self, *where: ColumnElement[bool] | bool, begun: bool = False) -> TrainingRun | None:
        with self._database.read() as session:
            return newest(session, *where, begun=begun)

    def _file(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.jsonl"

    def _reserve(self, tx: Transaction, run_id: str) -> None:
        run = run_of(tx, run_id)
        run.cost_entry = self._budget.reserve_call(tx, "training", self._twin.plan().cost_cap)
        tx.session.add(run)

    def _move(self, run_id: str, state: str, *, settle: Job | None = None, **fields: object) -> TrainingRun:
        """To `state`, in one transaction with what that costs: a job that is done settles what was set aside, with the
        provider's own price or else with all of it; a run that is over without one gives it back."""

        def work(tx: Transaction) -> TrainingRun:
            run = run_of(tx, run_id)
            moved = run.state != state
            for name, value in fields.items():
                setattr(run, name, value)
            run.state, run.updated_at = state, tx.now
            if run.cost_entry is not None and settle is not None:
                run.cost_microusd = (
                    self._twin.plan().cost_cap if settle.dollars is None else round(settle.dollars * 1e6)
                )
                self._budget.settle(tx, run.cost_entry, run.cost_microusd)
                run.cost_entry = None
            elif run.cost_entry is not None and state not in ACTIVE:
                self._budget.release(tx, run.cost_entry)
                run.cost_entry = None
            tx.session.add(run)
            if moved:
                tx.record(TrainingMoved(subject=run_id, state=state, note=run.note))
            return run

        moved = self._database.write(work)
        if state not in ACTIVE:
            self._answers.clear()
            self._file(run_id).unlink(missing_ok=True)  # the provider has it; here nobody needs it any more
        return moved


COIN = Agreement(0.5, 0)
"""What a first model is measured against."""


def _combined(missing: Sequence[Refusal]) -> Refusal:
    """All that is missing in one word, so that nobody mends one thing only to hear of the next."""
    first, *_ = missing
    return Refusal(
        first.code, "; ".join(refusal.message for refusal in missing), "; ".join(refusal.fix for refusal in missing)
    )


def _under_way(run: TrainingRun) -> Refusal:
    return Refusal("training_active", f"{run.id} is in progress ({run.state})", "clawpy train cancel")


def _priced(job: Job) -> Job | None:
    """A job that is over without a model, when its provider says what it cost all the same."""
    return job if job.dollars is not None else None
