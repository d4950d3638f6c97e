"""Rails, costs, figures and training of the stand-in engine: sixty days of decisions, counted by the real functions."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

from engine.learning.decisions.insights import (
    CardFigures,
    compute_metrics,
    count_per_slice,
    find_drift,
    make_bucket,
    select_decided,
)
from engine.model import (
    CalibrationCheck,
    ChainStep,
    CostState,
    Hold,
    Insights,
    LogEntry,
    Phase,
    RailState,
    StopLevel,
    TrainingOffer,
    TrainingRunView,
    TrainingView,
    Verdict,
)
from tests.console.stand_in_data import NOW, read_burns, read_values
from tests.console.stand_in_service import StandInService

LEVELS = (
    ("config", "crossPollEnabled is true", "turn crossPollEnabled on"),
    ("api", "on", "switch it on through the API, or restart"),
    ("key", "not pressed", "resume stop"),
    ("outside", "no stop file", "resume stop"),
)
"""The levels of the kill switch: name, state in words, and how a stop of the level ends."""


class StandInKillSwitch(StandInService):
    """The kill switch of the service `safety`."""

    def fill(self) -> None:
        self._holds: list[Hold] = []

    def holds(self) -> list[Hold]:
        return list(self._holds)

    def hold(self, word: str, reason: str, until: datetime | None = None) -> None:
        """Place a hold, for a test."""
        self._holds.append(Hold(word, reason, self._engine.now, until))

    def stop(self, reason: str, by: str) -> None:
        self.record_call("stop", reason)
        if all(hold.word != "stop" for hold in self._holds):
            self._holds.append(Hold("stop", reason, self._engine.now, None, by))

    def resume(self, word: str) -> None:
        self.record_call("resume", word)
        self._holds = [hold for hold in self._holds if hold.word != word]

    def levels(self) -> tuple[StopLevel, ...]:
        pressed = any(hold.word == "stop" for hold in self._holds)
        return tuple(
            StopLevel(name, name == "key" and pressed, "pressed" if name == "key" and pressed else words, lift)
            for name, words, lift in LEVELS
        )


class StandInSafety(StandInService):
    """The service `safety`. A hold changes the last rail."""

    def fill(self) -> None:
        self.kill_switch = StandInKillSwitch(self._engine)
        self.allowed_once: set[str] = set()
        self.costs = SimpleNamespace(
            state=lambda: CostState(150_000, 1_200_000, 9_000_000, 2_000_000, 20_000_000, 200_000_000),
            history=read_burns,
        )

    def rails(self) -> tuple[RailState, ...]:
        rails, last = read_values(RailState, "rails"), {verdict.rail: verdict for verdict in self.log(1)[0].verdicts}
        if hold := next(iter(self.kill_switch.holds()), None):
            blocks = {"verdict": Verdict.BLOCK, "brief": hold.word, "reason": hold.reason, "until": hold.until}
            rails[-1] = dataclasses.replace(rails[-1], **blocks)  # type: ignore[arg-type]
        return tuple(dataclasses.replace(rail, last=last[rail.rail]) for rail in rails)

    def chain(self, limit: int = 20) -> list[ChainStep]:
        return read_values(ChainStep, "chain")[:limit]

    def log(self, limit: int = 50, blocked_only: bool = False) -> list[LogEntry]:
        log = [
            dataclasses.replace(entry, allowed_once=entry.prediction_id in self.allowed_once)
            for entry in read_values(LogEntry, "log")
        ]
        return [entry for entry in log if entry.blocked or not blocked_only][:limit]


KINDS = (("run-tests", "koji-core", 0.74), ("stale-branches", "garden", 0.35), ("summarise-day", "chronicle-hub", 0.58))


def make_decided_cards() -> list[CardFigures]:
    """Four cards a day except on Sundays. The newer they are, the more of them were approved."""
    cards = []
    for day in range(60, -1, -1):
        at = NOW - timedelta(days=day)
        for number in range(4 if at.weekday() < 6 else 0):
            kind, channel, confidence = KINDS[(day + number) % 3]
            stated = round(confidence + ((day * 7 + number * 3) % 11 - 5) / 40, 3)
            luck = (day * 37 + number * 61) % 100 / 100
            word = "approved" if luck < stated + (60 - day) / 400 - 0.05 else "rejected" if luck < 0.93 else "expired"
            source = "template" if number % 3 else "embedded-twin"
            moment = at.replace(hour=8 + (number * 3 + day % 3), minute=5)
            cards.append(
                CardFigures(source, channel, stated, word, number == 3 and day < 20, day == 9 and number == 3, moment,
                        (number % 2) * 90_000, kind)
            )  # fmt: skip
    return [card for card in cards if card.at <= NOW]


def make_run(number: int, state: str, **fields: object) -> TrainingRunView:
    """A run of the training in this state, with these fields; a higher number is a newer run."""
    base = TrainingRunView(
        f"train_{number}", state, "dpo", "together", "Qwen/Qwen3-8B", 112, f"me/twin-{number}", "", 0.71, 0.5, 23,
        410_000, "agrees with 71% of 23 held-back decisions, a coin toss with half",
        NOW - timedelta(days=20 - number), NOW - timedelta(days=20 - number),
    )  # fmt: skip
    return dataclasses.replace(base, **fields)  # type: ignore[arg-type]


class StandInFigures(StandInService):
    """The service `insights`."""

    def fill(self) -> None:
        self.cards = make_decided_cards()
        self.training = TrainingView(
            31, 100, "69 more pairs, or any by 28 January, until the next training", None, (make_run(1, "adopted"),),
            "together:me/twin-1", enabled=True, automatic=False,
        )  # fmt: skip
        self.check = CalibrationCheck(
            212, True, "its confidence was off by 0.041 on 212 held-out decisions; chance alone explains up to 0.080",
            0.041, 0.080,
        )  # fmt: skip
        self.phase = Phase(2, 212, "its calibration holds on 212 held-out decisions")

    def read(self, days: int | None = 7, workspace: str = "") -> Insights:
        self.record_call("insights", days, workspace)
        cards = [card for card in self.cards if days is None or card.at > NOW - timedelta(days=days)]
        since = NOW - timedelta(days=days - 1) if days else cards[0].at if cards else NOW
        newest = [(item.kind, item.counted_as == "approved") for item in select_decided(self.cards)]
        return Insights(
            days, workspace, compute_metrics(cards), count_per_slice(cards, since, NOW, UTC), self.phase,
            self.check, 0.8,
            make_bucket(0.8, 1.0, select_decided(cards)),
            "does not act by itself yet: autonomous mode is off, no workspace is `act` (all are `cards`)",
            find_drift(newest), self.training,
        )  # fmt: skip


class StandInTraining(StandInService):
    """The service `training`."""

    def offer(self) -> TrainingOffer:
        self.record_call("offer")
        url = "https://api.together.xyz/v1"
        return TrainingOffer("dpo", "together", url, "Qwen/Qwen3-8B", 112, 184_320, 26, 1_000_000, "together:me/twin-1")

    def launch(self) -> TrainingRunView:
        self.record_call("launch")
        return make_run(2, "started")

    def cancel(self) -> TrainingRunView:
        self.record_call("cancel")
        return make_run(2, "cancelled")

    def adopt(self) -> TrainingRunView:
        self.record_call("adopt")
        return make_run(2, "adopted")

    def restore_former(self) -> TrainingRunView:
        self.record_call("restore_former")
        return make_run(1, "kept_old")
