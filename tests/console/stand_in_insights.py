"""The figures of the still engine, and its training: sixty days of made-up decisions, counted by the real functions."""

from __future__ import annotations

import dataclasses
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

from engine.learning.decisions.metrics import CardFigures, bucket, by_person, drift, metrics, over_time
from engine.model import (
    CalibrationCheck,
    Insights,
    Phase,
    TrainingOffer,
    TrainingRunView,
    TrainingView,
)
from tests.console.stand_in_data import NOW
from tests.console.stand_in_port import Port

if TYPE_CHECKING:
    from tests.console.stand_in import StandIn

KINDS = (("run-tests", "koji-core", 0.74), ("stale-branches", "garden", 0.35), ("summarise-day", "chronicle-hub", 0.58))


def decided() -> list[CardFigures]:
    """Four cards a day but on Sundays; the newer, the more of them approved."""
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


def run(number: int, state: str, **more: object) -> TrainingRunView:
    base = TrainingRunView(
        f"train_{number}", state, "dpo", "together", "Qwen/Qwen3-8B", 112, f"me/twin-{number}", "", 0.71, 0.5, 23,
        410_000, "agrees with 71% of 23 held-back decisions, a coin toss with half",
        NOW - timedelta(days=20 - number), NOW - timedelta(days=20 - number),
    )  # fmt: skip
    return dataclasses.replace(base, **more)  # type: ignore[arg-type]


class Figures(Port):
    """The port `insights`."""

    def __init__(self, engine: StandIn) -> None:
        super().__init__(engine)
        self.cards = decided()
        self.training = TrainingView(
            31, 100, "69 more pairs, or any by 28 January, until the next training", None, (run(1, "adopted"),),
            "together:me/twin-1", True, False,
        )  # fmt: skip
        self.check = CalibrationCheck(
            212, True, "its confidence was off by 0.041 on 212 held-out decisions; chance alone explains up to 0.080",
            0.041, 0.080,
        )  # fmt: skip
        self.phase = Phase(2, 212, "its calibration holds on 212 held-out decisions")

    def read(self, days: int | None = 7, workspace: str = "") -> Insights:
        self.note("insights", days, workspace)
        cards = [card for card in self.cards if days is None or card.at > NOW - timedelta(days=days)]
        since = NOW - timedelta(days=days - 1) if days else cards[0].at if cards else NOW
        newest = [(item.kind, item.outcome == "approved") for item in by_person(self.cards)]
        return Insights(
            days, workspace, metrics(cards, UTC), over_time(cards, since, NOW, UTC), self.phase, self.check, 0.8,
            bucket(0.8, 1.0, by_person(cards)),
            "does not act by itself yet: autonomous mode is off, no workspace is `act` (all are `cards`)",
            drift(newest), self.training,
        )  # fmt: skip


class Training(Port):
    """The port `training`."""

    def offer(self) -> TrainingOffer:
        self.note("offer")
        url = "https://api.together.xyz/v1"
        return TrainingOffer("dpo", "together", url, "Qwen/Qwen3-8B", 112, 184_320, 26, 1_000_000, "together:me/twin-1")

    def launch(self) -> TrainingRunView:
        self.note("launch")
        return run(2, "started")

    def cancel(self) -> TrainingRunView:
        self.note("cancel")
        return run(2, "cancelled")

    def adopt(self) -> TrainingRunView:
        self.note("adopt")
        return run(2, "adopted")

    def restore_former(self) -> TrainingRunView:
        self.note("restore_former")
        return run(1, "kept_old")
