"""Training runs: the row of each, and its way from examples to a model in use (SPEC 8.4).

    prepared → uploaded → started → trained → adopted | kept_old        at any step: failed, cancelled

Each step first looks whether an earlier try of it got through (a file of the run's name, a job on that file), so that
one cut off by a crash is not done twice: a job costs money. A fault that may pass leaves the run where it is, with
words; any other ends it, and the model in use stays.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from sqlalchemy import CheckConstraint
from sqlmodel import Field, Session, SQLModel, col, select

from engine.events import TrainingMoved
from engine.feedback import pairs
from engine.feedback.exporting import Exporter
from engine.feedback.records import (
    Preference,
    Shape,
    check_exchanges,
    check_preferences,
    exchange_line,
    preference_line,
)
from engine.feedback.training.examples import (
    MEASURED_LEAST,
    MEASURED_MOST,
    Agreement,
    agreement,
    held_back,
    no_worse,
    split,
)
from engine.feedback.training.provider import Job, TrainingApi, TrainingFault
from engine.storage.database import Database, Transaction
from engine.storage.files import write_atomic
from engine.storage.types import utc
from engine.values import Randomness, Refusal

log = logging.getLogger(__name__)

FIRST_FROM = 50
"""So many pairs before the first training on pairs."""

AGAIN_FROM = 100
"""So many new pairs make the next one due."""

AGAIN_AFTER = timedelta(days=7)
"""After so long any new pair does."""

EXAMPLES_FROM = 10
"""So many conversations before the first training; providers refuse fewer."""

PREPARED, UPLOADED, STARTED, TRAINED = "prepared", "uploaded", "started", "trained"
ADOPTED, KEPT_OLD, FAILED, CANCELLED = "adopted", "kept_old", "failed", "cancelled"
ACTIVE = (PREPARED, UPLOADED, STARTED, TRAINED)
STATES = (*ACTIVE, ADOPTED, KEPT_OLD, FAILED, CANCELLED)

SFT, DPO = "sft", "dpo"


class TrainingRun(SQLModel, table=True):
    """One run. Money in micro-dollars. `pairs_to` is the highest pair it may have seen; `note` the last word on it."""

    __tablename__ = "training_runs"
    __table_args__ = (
        CheckConstraint("state IN ({})".format(", ".join(f"'{one}'" for one in STATES)), name="ck_training_runs_state"),
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
    created_at: datetime = Field(sa_column=utc())
    updated_at: datetime = Field(sa_column=utc())


class Purse(Protocol):
    """Sets money aside and settles it, within the caps (SPEC 3.2)."""

    def reserve_call(self, transaction: Transaction, purpose: str, estimate: int) -> int: ...

    def settle(self, transaction: Transaction, entry_id: int, amount: int) -> None: ...

    def release(self, transaction: Transaction, entry_id: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What the settings say: where and from what to train, the most a run may cost in micro-dollars, and the Twin model
    in use now as `PROVIDER:MODEL`, "" for none."""

    provider: str
    base_model: str
    cost_cap: int
    current_model: str
    automatic: bool = False


Answer = Callable[[str, str], str | None]
"""`answer(model, situation)`: what a model, `PROVIDER:MODEL`, proposes as `prompt → channel`; None for rubbish.
Raises `TrainingFault` when it cannot be asked."""


class Training:
    """Begins runs and brings them on. One run is under way at a time; methods may be called from any thread."""

    def __init__(
        self,
        database: Database,
        folder: Path,
        *,
        exporter: Exporter,
        plan: Callable[[], Plan],
        api: Callable[[], TrainingApi],
        purse: Purse,
        answer: Answer,
        adopt: Callable[[str], None],
        randomness: Randomness,
        held: Callable[[], str] = str,
    ) -> None:
        """`api` raises `Refusal` when there is no key; `adopt` puts a model into the settings; `held()` says why
        nothing that costs may begin now (SPEC 3.7), "" when it may."""
        self._database = database
        self._folder = folder
        self._exporter = exporter
        self._plan = plan
        self._api = api
        self._purse = purse
        self._answer = answer
        self._adopt = adopt
        self._randomness = randomness
        self._held = held
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
        with self._database.read() as session:
            return _active(session)

    def due(self, now: datetime) -> bool:
        """Whether training on pairs is due: the first at 50, then every 100 new ones, or weekly if there is any."""
        return not self.missing(now)

    def missing(self, now: datetime) -> str:
        """What is missing until the next training on pairs, in words; "" when it is due."""
        with self._database.read() as session:
            if _active(session) is not None:
                return "a run is under way"
            last = _last_on_pairs(session)
            new = pairs.count(session, after=last.pairs_to if last else 0)
        if last is None:
            return "" if new >= FIRST_FROM else f"{FIRST_FROM - new} more pairs until the first training"
        if new >= AGAIN_FROM or (new and now - last.created_at >= AGAIN_AFTER):
            return ""
        day = f"{last.created_at + AGAIN_AFTER:%d %B}"
        return f"{AGAIN_FROM - new} more pairs, or any by {day}, until the next training"

    # -- doing

    def begin(self) -> TrainingRun:
        """Prepare the next run: conversations first, then pairs, each from what came of the one before.

        Raises `Refusal`: `held`, `training_active`, `no_base_model`, `few_pairs`, and what the provider's key raises.
        """
        if held := self._held():
            raise Refusal("held", f"no training begins: {held}", "clawpy resume")
        plan = self._plan()
        self._api().close()  # a missing key is said before anything is prepared
        if not plan.base_model:
            raise Refusal(
                "no_base_model", "nothing says which model to train", "clawpy config set training.baseModel MODEL"
            )
        with self._database.read() as session:
            adopted = _last(session, ADOPTED)
        every, exchanges = self._exporter.every_pair(), self._exporter.exchanges()
        if adopted is None and len(exchanges) >= EXAMPLES_FROM:
            method, lines = SFT, [exchange_line(one) for one in exchanges if not held_back(one.situation)]
            faults = check_exchanges(lines)
        else:
            if len(every) < FIRST_FROM:
                words = f"{len(every)} pairs; training on them begins at {FIRST_FROM}"
                raise Refusal("few_pairs", words, f"or approve {EXAMPLES_FROM} cards for a first run on conversations")
            shape = Shape.OPENAI
            method, lines = DPO, [preference_line(one, shape) for one in _each_once(split(every)[0])]
            faults = check_preferences(lines)
        if faults:
            raise Refusal("bad_examples", "; ".join(faults), "this is a fault of the program; please report it")
        run_id = self._randomness.new_id("train")
        self._file(run_id).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self._file(run_id), "".join(f"{line}\n" for line in lines).encode())
        mine = adopted is not None and adopted.provider == plan.provider

        def work(tx: Transaction) -> TrainingRun:
            if (active := _active(tx.session)) is not None:
                raise Refusal("training_active", f"{active.id} is under way ({active.state})", "clawpy train cancel")
            run = TrainingRun(
                id=run_id,
                state=PREPARED,
                method=method,
                provider=plan.provider,
                base_model=plan.base_model,
                checkpoint=adopted.job_id if mine and adopted else "",
                records=len(lines),
                pairs_to=max((one.id for one in every), default=0) if method == DPO else 0,
                former_model=plan.current_model,
                created_at=tx.now,
                updated_at=tx.now,
            )
            tx.session.add(run)
            tx.record(TrainingMoved(subject=run_id, state=PREPARED, note=f"{method}, {len(lines)} examples"))
            return run

        try:
            return self._database.write(work)
        except Refusal:
            self._file(run_id).unlink(missing_ok=True)
            raise

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
            if run.state != STARTED and (held := self._held()):  # looking how a job stands costs nothing
                return self._move(run.id, run.state, note=held)
            try:
                with closing(self._api()) as api:
                    steps[run.state](run, api)
            except TrainingFault as fault:
                log.warning("training %s: %s", run.id, fault)
                if fault.passing:
                    self._move(run.id, run.state, note=f"{fault}; it is tried again")
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
                raise Refusal("no_training", "no training is under way")
            ended = None
            if run.state in (UPLOADED, STARTED) and run.cost_entry is not None:
                try:
                    with closing(self._api()) as api:
                        ended = self._cancelled(run, api)
                except TrainingFault as fault:
                    raise Refusal("not_cancelled", str(fault), "try again, or cancel it at the provider") from fault
            return self._move(run.id, CANCELLED, note="cancelled", settle=ended)

    def reserved(self) -> set[int]:
        """The cost entry that the run under way has set aside for as long as it lasts, restarts included."""
        run = self.active()
        return set() if run is None or run.cost_entry is None else {run.cost_entry}

    # -- the steps

    def _upload(self, run: TrainingRun, api: TrainingApi) -> None:
        file = self._file(run.id)
        if not file.exists():
            self._move(run.id, FAILED, note=f"{file} is gone; begin anew")
            return
        file_id = api.uploaded(file.name) or api.upload(file)
        self._move(run.id, UPLOADED, file_id=file_id)

    def _start(self, run: TrainingRun, api: TrainingApi) -> None:
        if run.cost_entry is None:
            self._database.write(lambda tx: self._reserve(tx, run.id))
        job = api.started(run.file_id) or api.start(
            run.file_id, model=run.base_model, checkpoint=run.checkpoint, method=run.method, suffix=run.id
        )
        self._move(run.id, STARTED, job_id=job.id, note=job.status)

    def _follow(self, run: TrainingRun, api: TrainingApi) -> None:
        job = api.job(run.job_id)
        if job.state == "running":
            self._move(run.id, STARTED, note=job.status)
        elif job.state == "done" and job.model:
            self._move(run.id, TRAINED, settle=job, model=job.model, note="trained; it is measured next")
        else:
            state = CANCELLED if job.state == "cancelled" else FAILED
            self._move(run.id, state, note=f"the provider says {job.status}", settle=_priced(job))

    @staticmethod
    def _cancelled(run: TrainingRun, api: TrainingApi) -> Job | None:
        """End the job, also one whose start a crash cut off before it was noted; what it cost, where that is told."""
        job = run.job_id or (found.id if (found := api.started(run.file_id)) else "")
        if not job:
            return None
        api.cancel(job)
        return _priced(api.job(job))

    def _measure(self, run: TrainingRun, api: TrainingApi) -> None:
        kept = split(self._exporter.every_pair())[1][-MEASURED_MOST:]
        if len(kept) < MEASURED_LEAST:
            words = f"{len(kept)} pairs are held back to measure it on, {MEASURED_LEAST} are needed: clawpy train adopt"
            self._move(run.id, KEPT_OLD, note=words, held_back=len(kept))
            return
        made = f"{run.provider}:{run.model}"
        new = self._agreement(made, kept)
        former = self._plan().current_model
        old = self._agreement(former, kept) if former else COIN
        better = no_worse(new, old)
        words = f"agrees with {new.share:.0%} of {new.asked} held-back decisions, " + (
            f"{former} with {old.share:.0%}" if former else "a coin with half of them"
        )
        if better:
            self._adopt(made)
        self._move(
            run.id, ADOPTED if better else KEPT_OLD, note=words, held_back=len(kept), agreement=new.share,
            former_agreement=old.share, former_model=former,
        )  # fmt: skip

    def adopt(self) -> TrainingRun:
        """Use what the last finished run made although it was not swapped in. Raises `Refusal` `no_training`."""
        with self._database.read() as session:
            run = _last(session, KEPT_OLD)
        if run is None:
            raise Refusal("no_training", "no run ended with a model that is not in use")
        self._adopt(f"{run.provider}:{run.model}")
        return self._move(run.id, ADOPTED, note=f"adopted by the operator; {run.note}")

    # -- within

    def _agreement(self, model: str, kept: Sequence[Preference]) -> Agreement:
        """How far a model agrees with the operator. Raises `TrainingFault`; what it answered until then is kept."""
        for situation in dict.fromkeys(pair.context for pair in kept):
            if self._cancelling.is_set():
                raise TrainingFault("it is being cancelled", passing=True)
            if (model, situation) not in self._answers:
                self._answers[model, situation] = self._answer(model, situation)
        return agreement(kept, [self._answers[model, pair.context] for pair in kept])

    def _file(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.jsonl"

    def _reserve(self, tx: Transaction, run_id: str) -> None:
        run = _of(tx, run_id)
        run.cost_entry = self._purse.reserve_call(tx, "training", self._plan().cost_cap)
        tx.session.add(run)

    def _move(self, run_id: str, state: str, *, settle: Job | None = None, **fields: object) -> TrainingRun:
        """To `state`, in one transaction with what that costs: a job that is done settles what was set aside, with the
        provider's own price or else with all of it; a run that is over without one gives it back."""

        def work(tx: Transaction) -> TrainingRun:
            run = _of(tx, run_id)
            moved = run.state != state
            for name, value in fields.items():
                setattr(run, name, value)
            run.state, run.updated_at = state, tx.now
            if run.cost_entry is not None and settle is not None:
                run.cost_microusd = self._plan().cost_cap if settle.dollars is None else round(settle.dollars * 1e6)
                self._purse.settle(tx, run.cost_entry, run.cost_microusd)
                run.cost_entry = None
            elif run.cost_entry is not None and state not in ACTIVE:
                self._purse.release(tx, run.cost_entry)
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


def _priced(job: Job) -> Job | None:
    """A job that is over without a model, when its provider says what it cost all the same."""
    return job if job.dollars is not None else None


def _of(tx: Transaction, run_id: str) -> TrainingRun:
    run = tx.session.get(TrainingRun, run_id)
    assert run is not None
    return run


def _active(session: Session) -> TrainingRun | None:
    return session.exec(select(TrainingRun).where(col(TrainingRun.state).in_(ACTIVE))).first()


def _last(session: Session, state: str) -> TrainingRun | None:
    newest = col(TrainingRun.updated_at).desc()
    return session.exec(select(TrainingRun).where(TrainingRun.state == state).order_by(newest)).first()


def _last_on_pairs(session: Session) -> TrainingRun | None:
    """The last run whose pairs need not be trained on again: one that failed or was cancelled used none up."""
    over = col(TrainingRun.state).in_((ADOPTED, KEPT_OLD))
    newest = col(TrainingRun.created_at).desc()
    return session.exec(select(TrainingRun).where(TrainingRun.method == DPO, over).order_by(newest)).first()


def _each_once(found: Sequence[Preference]) -> list[Preference]:
    """Pairs that say the same are trained on once."""
    return [*{(one.context, one.chosen, one.rejected): one for one in found}.values()]
