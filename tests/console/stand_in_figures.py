"""Rails, costs, figures and training of the stand-in engine: sixty days of decisions, counted by the real functions."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from engine.learning.decisions.metrics import (
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
    Phase,
    RailState,
    RailVerdict,
    StopLevel,
    TrainingOffer,
    TrainingRunView,
    TrainingView,
    Verdict,
)
from tests.console.stand_in_data import BLOG, NOW, SHOP, ago, allow, burns
from tests.console.stand_in_service import StandInService

LEVELS = (
    ("config", "crossPollEnabled is true", "turn crossPollEnabled on"),
    ("api", "on", "switch it on through the API, or restart"),
    ("key", "not pressed", "resume stop"),
    ("outside", "no stop file", "resume stop"),
)


class KillSwitch(StandInService):
    def fill(self) -> None:
        self._holds: list[Hold] = []

    def holds(self) -> list[Hold]:
        return list(self._holds)

    def hold(self, word: str, reason: str, until: datetime | None = None) -> None:
        """Place a hold, for a test."""
        self._holds.append(Hold(word, reason, self._engine.now, until))

    def stop(self, reason: str, by: str) -> None:
        self.note("stop", reason)
        self._holds.append(Hold("stop", reason, self._engine.now, None, by))

    def resume(self, word: str) -> None:
        self.note("resume", word)
        self._holds = [hold for hold in self._holds if hold.word != word]

    def levels(self) -> tuple[StopLevel, ...]:
        pressed = any(hold.word == "stop" for hold in self._holds)
        return tuple(
            StopLevel(name, name == "key" and pressed, "pressed" if name == "key" and pressed else words, lift)
            for name, words, lift in LEVELS
        )


class Safety(StandInService):
    def fill(self) -> None:
        self.kill_switch = KillSwitch(self._engine)
        self.allowed_once: set[str] = set()
        self.costs = SimpleNamespace(
            state=lambda: CostState(150_000, 1_200_000, 9_000_000, 2_000_000, 20_000_000, 200_000_000),
            history=burns,
        )

    def allow_once(self, prediction_id: str) -> str:
        self.note("allow_once", prediction_id)
        self.allowed_once.add(prediction_id)
        return "digest"

    def rails(self) -> tuple[RailState, ...]:
        last_verdicts = {verdict.rail: verdict for verdict in self.log(1)[0].verdicts}
        hold = next(iter(self.kill_switch.holds()), None)

        def state(
            rail: str, verdict: Verdict, brief: str, reason: str, until: datetime | None = None, stopped: int = 0
        ):
            return RailState(rail, verdict, brief, reason, until, last_verdicts[rail], ago(minutes=4), stopped)

        kill = (Verdict.BLOCK, hold.word, hold.reason) if hold else (Verdict.ALLOW, "open", "not stopped")
        return (
            state("rate", Verdict.BLOCK, "waits", "the last trigger was at 14:08:30 UTC", ago(minutes=-6)),
            state(
                "loop",
                Verdict.ALLOW,
                "2 links",
                "2 links of the last 10 min are counted; 3 loops were stopped so far",
                stopped=1,
            ),
            state("cost", Verdict.ALLOW, "$1.85", "costs $0.05; $18.80 of the day's $20.00 are left"),
            state("content", Verdict.ALLOW, "on", "checks every prompt, edit and command of a session", stopped=1),
            state(
                "gate",
                Verdict.ASK,
                "asks you",
                "autonomousModeEnabled is off; the workspace's autonomy is not `act`",
                stopped=4,
            ),
            state("kill", *kill, hold.until if hold else None),
        )

    def chain(self, limit: int = 20) -> list[ChainStep]:
        return [
            ChainStep("koji-core", "research", "pred_000000000021", SHOP, ago(minutes=2), 3, 1, ago(minutes=-3)),
            ChainStep("chronicle-hub", "koji-core", "pred_000000000020", SHOP, ago(minutes=4), 2, 2, ago(minutes=-1)),
            ChainStep("owner", "chronicle-hub", "pred_000000000012", SHOP, ago(minutes=22), 1, 0),
            ChainStep("owner", "koji-core", "pred_000000000011", BLOG, ago(hours=3), 1, 0),
        ][:limit]

    def log(self, limit: int = 50, blocked_only: bool = False) -> list[Any]:
        block = RailVerdict("content", Verdict.BLOCK, "deletes outside the workspace: rm -rf /", "destructive.rm")
        loops = RailVerdict("loop", Verdict.BLOCK, "koji-core → research → koji-core within 5 min", "reverse link")
        gate = RailVerdict("gate", Verdict.ASK, "confidence 0.71 is below 0.80; quiet hours", "below-threshold,quiet")

        def entry(id: int, minutes: float, prompt: str, *no: RailVerdict, **more: Any) -> Any:
            values = {
                "trigger_type": "manual",
                "channel": "koji-core",
                "from_channel": "owner",
                "workspace": SHOP,
            } | more
            card = f"pred_{id:012}"
            return SimpleNamespace(
                id=id, at=ago(minutes=minutes), prompt=prompt, verdicts=allow(*no), blocked=bool(no), reason="",
                prediction_id=card, allowed_once=card in self.allowed_once, **values,
            )  # fmt: skip

        entries = [
            entry(1, 4, "Hunt flakes: 4 slowest tests"),
            entry(2, 33, "clean up with rm -rf / [/not markup]", block),
            entry(3, 90, "follow up on the analysis", loops, trigger_type="follow-up", from_channel="research"),
            entry(4, 400, "Draft the change log of the 5 commits since v1.2", gate, trigger_type="autonomous",
                  channel="chronicle-hub", workspace=BLOG),
        ]  # fmt: skip
        return [entry for entry in entries if entry.blocked or not blocked_only][:limit]


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


class Figures(StandInService):
    """The service `insights`."""

    def fill(self) -> None:
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
        newest = [(item.kind, item.outcome == "approved") for item in select_decided(self.cards)]
        return Insights(
            days, workspace, compute_metrics(cards), count_per_slice(cards, since, NOW, UTC), self.phase,
            self.check, 0.8,
            make_bucket(0.8, 1.0, select_decided(cards)),
            "does not act by itself yet: autonomous mode is off, no workspace is `act` (all are `cards`)",
            find_drift(newest), self.training,
        )  # fmt: skip


class Training(StandInService):
    """The service `training`."""

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
