"""Settings, gateway and channels of the stand-in engine."""

from types import SimpleNamespace
from typing import Any

from engine.api.gateway.gateway import GatewayState
from engine.execution.model_router import FIRST_KEY
from engine.model import LocalModels, SetupStep
from tests.console.stand_in_data import BLOG
from tests.console.stand_in_service import StandInService


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
            workspace=lambda path: self.current.workspaces.get(path, SimpleNamespace(autonomy="cards")),
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

    def served_by(self, channel: str = "koji-core") -> str:
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
