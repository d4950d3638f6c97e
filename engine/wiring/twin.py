"""The Twin model, its training, the figures of both, and the predictions of other programs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.adapters import Brakes, TwinAccess, TwinSchool
from engine.events import TwinAnswered
from engine.execution.runners.model.completions import Completions
from engine.learning.decisions.insights import Figures
from engine.learning.decisions.training_runs import Training, TwinModel
from engine.prediction.hook import PredictorHook
from engine.prediction.model_twin import ModelTwin
from engine.wiring.rails import held

if TYPE_CHECKING:
    from engine.engine import Engine


def build(core: Engine, brakes: Brakes) -> PredictorHook:
    """What else proposes cards; returns the hook that reads what other programs predict."""
    home, clock, randomness = core.home, core.clock, core.randomness
    twin = TwinAccess(core.settings, core.models, core.keys)
    core.twin = ModelTwin(
        core.settings,
        Completions(
            core.database,
            host=core.host,
            access=twin,
            calls=core.calls,
            costs=core.safety.costs,
            clock=clock,
            held=partial(held, core),
            secrets=core.keys.secrets,
        ).ask,
        flows=core.flows,
        phase=lambda: core.predictions.phase().number,
        told=partial(_twin_told, core),
    )
    school = TwinSchool(core.settings, core.keys, twin, core.twin)
    core.training = Training(
        core.database,
        home.data / "training",
        exporter=core.exporter,
        twin=TwinModel(school.plan, school.provider, school.answer, school.adopt),
        budget=core.safety.costs,
        randomness=randomness,
        held=lambda: brakes.stopped() or "",
        stopped=core.safety.kill_switch.thrown,
    )
    core.insights = Figures(
        core.database,
        clock,
        phase=lambda: core.predictions.phase(),
        check=lambda: core.predictions.calibration(),
        threshold=lambda: core.settings.current.cross_poll_auto_execute_threshold,
        earning=partial(_earning, core),
        training=lambda: core.training.view(clock.now()),
    )
    return PredictorHook(
        core.database,
        lambda: Path(core.settings.current.predictions_dir or home.data).expanduser() / "predictions.jsonl",
        flows=core.flows,
        home_workspace=lambda: next(iter(core.workspaces), ""),
        report=core.report,
    )


def _earning(core: Engine, workspace: str) -> str:
    """What is still needed before a workspace, or any for "", acts by itself."""
    earned = core.autonomy.earning([workspace] if workspace else core.workspaces)
    return "" if earned is None else earned.words


def _twin_told(core: Engine, model: str, usable: bool, words: str) -> None:
    core.database.write(lambda tx: tx.record(TwinAnswered(subject=model, usable=usable, reason=words)))
