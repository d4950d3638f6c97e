"""The Twin model, its training, the figures of both, and the predictions of other programs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.events import TwinAnswered
from engine.execution.runners.model.completions import Completions
from engine.frozen import frozen
from engine.keys import Keys
from engine.learning.decisions.insights import Figures
from engine.learning.decisions.training_examples import Plan
from engine.learning.decisions.training_lines import ARROW
from engine.learning.decisions.training_provider import Account, Provider, TrainingFault
from engine.learning.decisions.training_runs import Training, TwinModel
from engine.model import NoAnswer, Refusal, microusd
from engine.prediction.hook import PredictorHook
from engine.prediction.model_twin import ModelTwin, TwinAccess, Unusable
from engine.settings_store import SettingsStore

if TYPE_CHECKING:
    from engine.engine import Engine


def build(core: Engine) -> PredictorHook:
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
            held=core.safety.kill_switch.held,
            secrets=core.keys.secrets,
        ).ask,
        flows=core.flows,
        phase=lambda: core.predictions.phase().number,
        told=partial(_twin_told, core),
    )
    school = _TwinSchool(core.settings, core.keys, twin, core.twin)
    core.training = Training(
        core.database,
        home.data / "training",
        exporter=core.exporter,
        twin=TwinModel(school.plan, school.provider, school.answer, school.adopt),
        budget=core.safety.costs,
        randomness=randomness,
        hold=lambda: core.safety.kill_switch.stopped() or "",
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
    return core.autonomy.earning([workspace] if workspace else core.workspaces).words


def _twin_told(core: Engine, model: str, usable: bool, words: str) -> None:
    core.database.write(lambda tx: tx.record(TwinAnswered(subject=model, usable=usable, reason=words)))


@frozen
class _TwinSchool:
    """What training needs of the settings, the keys and the Twin model (SPEC 8.4)."""

    settings: SettingsStore
    keys: Keys
    access: TwinAccess
    twin: ModelTwin

    def plan(self) -> Plan:
        """As the settings are now."""
        settings = self.settings.current
        training, current = settings.training, self.twin.named
        provider_settings = settings.provider(training.provider)
        return Plan(
            training.provider,
            training.base_model,
            microusd(training.cost_cap),
            "" if current is None else str(current),
            automatic=training.automatic,
            enabled=settings.twin_model_enabled,
            base_url="" if provider_settings is None else provider_settings.base_url,
        )

    def provider(self) -> Provider:
        """Raises `Refusal`: `unknown_provider`, `no_key`."""
        training = self.settings.current.training
        provider_settings = self.settings.current.provider(training.provider)
        if provider_settings is None:
            raise Refusal(
                "unknown_provider",
                f"there is no provider {training.provider}",
                "clawpy config set training.provider NAME",
            )
        key = self.keys.get(training.provider) or self.access.key(training.provider)
        if key is None and not provider_settings.keyless:
            raise Refusal("no_key", f"{training.provider} has no key", f"clawpy key set {training.provider}")
        # The libraries want a word even where the provider wants none.
        return Provider(Account(training.api, provider_settings.base_url, key.value if key else "keyless"))

    def answer(self, model: str, situation: str) -> str | None:
        """What a model proposes, as `prompt → channel`; None for rubbish. Raises `TrainingFault`."""
        try:
            reply = self.twin.answer(model, situation)
        except Unusable:
            return None
        except NoAnswer as fault:
            raise TrainingFault(f"{model} cannot be reached: {fault}", passing=True) from fault
        return f"{reply.prompt}{ARROW}{reply.channel}"

    def adopt(self, model: str) -> None:
        """The model is the Twin from now on; no restart is needed."""
        self.settings.set("twinModelId", model)
