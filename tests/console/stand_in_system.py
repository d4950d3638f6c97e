"""Settings, gateway, channels and safety of the stand-in engine, with a kill switch that tests throw."""

import dataclasses
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from engine.api.gateway import GatewayState
from engine.execution.model_router import FIRST_KEY
from engine.installed import LocalModels, SetupStep
from engine.model import ChainStep, CostState, Hold, RailDecision, RailState, StopLevel, Verdict
from tests.console.stand_in_data import BLOG, StandInService, read_burns, read_values


class StandInSettings(StandInService):
    """The service `settings`; what is set is only noted."""

    fault = ""

    def fill(self):
        self.current: Any = SimpleNamespace(
            keys={},
            channels=("koji-core",),
            console=SimpleNamespace(theme="clawpy-dark", mouse=True, bell=True),
            silence_threshold_ms=1_800_000,
            cross_poll_enabled=True,
            autonomous_mode_enabled=False,
            twin_model_enabled=False,
            dpo_export_enabled=False,
            quiet_hours_start=23,
            quiet_hours_end=8,
            workspaces={BLOG: SimpleNamespace(autonomy="act")},
            get_workspace=lambda path: self.current.workspaces.get(path, SimpleNamespace(autonomy="cards")),
        )

    def set(self, key: str, value: Any):
        self.record_call("set", key, value)


class StandInGateway(StandInService):
    """The service `gateway`."""

    url = ""
    """The address, "" while it is closed."""

    def state(self) -> GatewayState:
        return GatewayState(self.url, "this machine only", "keyring") if self.url else GatewayState()

    def take_new_token(self) -> str:
        return ""

    def set_enabled(self, on: bool) -> str:
        self.record_call("gateway", on)
        self.url = "http://127.0.0.1:8477" if on else ""
        return "clawpy_secret" if on else ""


class StandInChannelSetup(StandInService):
    """The service `channel_setup`: what serves a channel, and what could."""

    def fill(self):
        self.serves = "openai:gpt-6.1-terra"
        self.here: list[Any] = []
        self.local = LocalModels()
        self.missing = FIRST_KEY
        self.supported_agents: list[str] = []

    def find_executor(self, channel: str = "koji-core") -> str:
        return self.serves

    def find_agents(self) -> list[Any]:
        return self.here

    list_agents = find_agents

    def find_next_step(self) -> SetupStep:
        return self.missing

    def find_local_models(self) -> LocalModels:
        return self.local

    def assign_model(self, model_id: str):
        self.record_call("assign_model", model_id)

    def assign_agent(self, name: str, channel: str = "koji-core") -> Any:
        self.record_call("assign_agent", name)
        return next(item for item in self.here if item.name == name)


class StandInKillSwitch(StandInService):
    """The kill switch of the service `safety`."""

    def fill(self):
        self._holds: list[Hold] = []

    def list_holds(self) -> list[Hold]:
        return list(self._holds)

    def hold(self, word: str, reason: str, until: datetime | None = None):
        """Place a hold, for a test."""
        self._holds.append(Hold(word, reason, self._engine.now, until))

    def stop(self, reason: str, by: str):
        self.record_call("stop", reason)
        if not self._is_stopped():
            self._holds.append(Hold("stop", reason, self._engine.now, None, by))

    def resume(self, word: str):
        self.record_call("resume", word)
        self._holds = [hold for hold in self._holds if hold.word != word]

    def list_levels(self) -> tuple[StopLevel, ...]:
        pressed = {"is_active": True, "description": "pressed"} if self._is_stopped() else {}
        return tuple(
            dataclasses.replace(level, **pressed) if level.name == "key" else level
            for level in read_values(StopLevel, "stop_levels")
        )

    def _is_stopped(self) -> bool:
        return any(hold.word == "stop" for hold in self._holds)


class StandInSafety(StandInService):
    """The service `safety`. A hold changes the last rail."""

    def fill(self):
        self.kill_switch = StandInKillSwitch(self._engine)
        self.allowed_once: set[str] = set()
        self.costs = SimpleNamespace(read_state=lambda: read_values(CostState, "costs")[0], read_spending=read_burns)

    def read_rail_states(self) -> tuple[RailState, ...]:
        rails = read_values(RailState, "rails")
        last = {verdict.rail: verdict for verdict in self.read_log(1)[0].verdicts}
        if hold := next(iter(self.kill_switch.list_holds()), None):
            blocks = {"verdict": Verdict.BLOCK, "brief": hold.word, "reason": hold.reason, "until": hold.until}
            rails[-1] = dataclasses.replace(rails[-1], **blocks)
        return tuple(dataclasses.replace(rail, last=last[rail.rail]) for rail in rails)

    def list_chain(self, limit: int = 20) -> list[ChainStep]:
        return read_values(ChainStep, "chain")[:limit]

    def read_log(self, limit: int = 50, blocked_only: bool = False) -> list[RailDecision]:
        log = [
            dataclasses.replace(entry, allowed_once=entry.prediction_id in self.allowed_once)
            for entry in read_values(RailDecision, "log")
        ]
        return [entry for entry in log if entry.blocked or not blocked_only][:limit]
