"""The services `insights` and `training` of the stand-in engine, for the insights screen and its pictures.

The figures are counted by the real functions, from two months of made-up cards.
"""

import dataclasses
from datetime import UTC
from random import Random

from engine.learning.decisions.insights import (
    CardFigures,
    CountedAs,
    compute_metrics,
    count_per_slice,
    find_drift,
    make_bucket,
    select_decided,
)
from engine.model import CalibrationCheck, Insights, Phase, TrainingOffer, TrainingRunView, TrainingView
from tests.console.stand_in_data import NOW, StandInService, ago, read_values

DAYS = 60
"""For so many days there are cards."""

SEED = 133
"""With this seed one card was undone, and stated confidences are right, too low and too high."""

KINDS = (("run-tests", "koji-core", 0.74), ("stale-branches", "garden", 0.35), ("summarise-day", "chronicle-hub", 0.58))
"""Kind, channel and usual confidence of cards, in turn."""

THRESHOLD = 0.8


def make_decided_cards() -> list[CardFigures]:
    """Four cards a day but on Sundays, oldest first. They are approved about as often as they state, and more often the
    newer they are."""
    random = Random(SEED)
    cards = []
    for days_ago in range(DAYS, -1, -1):
        day = ago(days=days_ago)
        for number in range(4 if day.weekday() < 6 else 0):
            kind, channel, confidence = KINDS[(days_ago + number) % len(KINDS)]
            stated = round(confidence + random.uniform(-0.12, 0.12), 3)
            newness = 1 - days_ago / DAYS
            is_approved = random.random() < stated - 0.05 + 0.15 * newness
            decision = CountedAs.APPROVED if is_approved else CountedAs.REJECTED
            cards.append(
                CardFigures(
                    source="template" if number % 3 else "embedded-twin",
                    channel=channel,
                    confidence=stated,
                    counted_as=CountedAs.EXPIRED if random.random() < 0.05 else decision,
                    is_autonomous=number == 3 and days_ago < 20,
                    was_undone=number == 3 and days_ago == 9,
                    at=day.replace(hour=8 + 3 * number + days_ago % 3, minute=5),
                    cost=90_000 if number % 2 else 0,
                    kind=kind,
                )
            )
    return [card for card in cards if card.at <= NOW]


def make_run(number: int, state: str, **fields: object) -> TrainingRunView:
    """A run of the training in this state, with these fields; a higher number is a newer run."""
    [run] = read_values(TrainingRunView, "training_runs")
    moment = ago(days=20 - number)
    common = {"state": state, "model": f"me/twin-{number}", "created_at": moment, "updated_at": moment}
    return dataclasses.replace(run, id=f"train_{number}", **common | fields)


class StandInInsights(StandInService):
    """The service `insights`."""

    def fill(self):
        self.cards = make_decided_cards()
        [training] = read_values(TrainingView, "training")
        self.training = dataclasses.replace(training, runs=(make_run(1, "adopted"),))
        [self.check] = read_values(CalibrationCheck, "calibration_check")
        self.phase = Phase(2, self.check.held_out, "its calibration holds on 212 held-out decisions")

    def read(self, days: int | None = 7, workspace: str = "") -> Insights:
        self.record_call("insights", days, workspace)
        cards = [card for card in self.cards if days is None or card.at > ago(days=days)]
        since = min((card.at for card in cards), default=NOW) if days is None else ago(days=days - 1)
        newest = [(card.kind, card.counted_as is CountedAs.APPROVED) for card in select_decided(self.cards)]
        return Insights(
            days=days,
            workspace=workspace,
            metrics=compute_metrics(cards),
            over_time=count_per_slice(cards, since, NOW, UTC),
            phase=self.phase,
            check=self.check,
            threshold=THRESHOLD,
            at_threshold=make_bucket(THRESHOLD, 1.0, select_decided(cards)),
            earning="does not act by itself yet: autonomous mode is off, no workspace is `act` (all are `cards`)",
            drift=find_drift(newest),
            training=self.training,
        )


class StandInTraining(StandInService):
    """The service `training`."""

    def offer(self) -> TrainingOffer:
        self.record_call("offer")
        return read_values(TrainingOffer, "training_offer")[0]

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
