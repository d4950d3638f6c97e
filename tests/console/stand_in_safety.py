"""The service `safety` of the stand-in engine: rails, chain, log and costs from the table, and a kill switch that tests
throw."""

import dataclasses
from datetime import datetime
from types import SimpleNamespace

from engine.model import ChainStep, CostState, Hold, LogEntry, RailState, StopLevel, Verdict
from tests.console.stand_in_data import read_burns, read_values
from tests.console.stand_in_service import StandInService


class StandInKillSwitch(StandInService):
    """The kill switch of the service `safety`."""

    def fill(self):
        self._holds: list[Hold] = []

    def holds(self) -> list[Hold]:
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

    def levels(self) -> tuple[StopLevel, ...]:
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
        self.costs = SimpleNamespace(state=lambda: read_values(CostState, "costs")[0], history=read_burns)

    def rails(self) -> tuple[RailState, ...]:
        rails, last = read_values(RailState, "rails"), {verdict.rail: verdict for verdict in self.log(1)[0].verdicts}
        if hold := next(iter(self.kill_switch.holds()), None):
            blocks = {"verdict": Verdict.BLOCK, "brief": hold.word, "reason": hold.reason, "until": hold.until}
            rails[-1] = dataclasses.replace(rails[-1], **blocks)
        return tuple(dataclasses.replace(rail, last=last[rail.rail]) for rail in rails)

    def chain(self, limit: int = 20) -> list[ChainStep]:
        return read_values(ChainStep, "chain")[:limit]

    def log(self, limit: int = 50, blocked_only: bool = False) -> list[LogEntry]:
        log = [
            dataclasses.replace(entry, allowed_once=entry.prediction_id in self.allowed_once)
            for entry in read_values(LogEntry, "log")
        ]
        return [entry for entry in log if entry.blocked or not blocked_only][:limit]
