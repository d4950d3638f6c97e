"""The safety port of the still engine."""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from engine.model import (
    ChainStep,
    CostState,
    Hold,
    RailState,
    RailVerdict,
    StopLevel,
    Verdict,
)
from tests.console.stand_in_data import (
    BLOG,
    SHOP,
    ago,
    allow,
    burns,
)
from tests.console.stand_in_port import Port

if TYPE_CHECKING:
    from tests.console.stand_in import StandIn

LEVELS = (
    ("config", "crossPollEnabled is true", "turn crossPollEnabled on"),
    ("api", "on", "switch it on through the API, or restart"),
    ("key", "not pressed", "resume stop"),
    ("outside", "no stop file", "resume stop"),
)


class Safety(Port):
    def __init__(self, engine: StandIn) -> None:
        super().__init__(engine)
        self._holds: list[Hold] = []
        self.lifted: set[str] = set()
        self.costs = SimpleNamespace(
            state=lambda: CostState(150_000, 1_200_000, 9_000_000, 2_000_000, 20_000_000, 200_000_000),
            history=burns,
        )

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

    def allow_once(self, prediction_id: str) -> str:
        self.note("allow_once", prediction_id)
        self.lifted.add(prediction_id)
        return "digest"

    def levels(self) -> tuple[StopLevel, ...]:
        pressed = any(hold.word == "stop" for hold in self._holds)
        return tuple(
            StopLevel(name, name == "key" and pressed, "pressed" if name == "key" and pressed else words, lift)
            for name, words, lift in LEVELS
        )

    def rails(self) -> tuple[RailState, ...]:
        said = {verdict.rail: verdict for verdict in self.log(1)[0].verdicts}
        held = next((hold for hold in self._holds), None)

        def one(rail: str, verdict: Verdict, brief: str, reason: str, until: datetime | None = None, stopped: int = 0):
            return RailState(rail, verdict, brief, reason, until, said[rail], ago(minutes=4), stopped)

        kill = (Verdict.BLOCK, held.word, held.reason) if held else (Verdict.ALLOW, "open", "not stopped")
        return (
            one("rate", Verdict.BLOCK, "waits", "the last trigger was at 14:08:30 UTC", ago(minutes=-6)),
            one("loop", Verdict.ALLOW, "2 links", "2 links of the last 10 min are counted; 3 loops were stopped so far",
                stopped=1),
            one("cost", Verdict.ALLOW, "$1.85", "$0.05 of $18.80 left today"),
            one("content", Verdict.ALLOW, "on", "checks every prompt, edit and command of a session",
                stopped=1),
            one("gate", Verdict.ASK, "asks you", "autonomousModeEnabled is off; the workspace's autonomy is not `act`",
                stopped=4),
            one("kill", *kill, held.until if held else None),
        )  # fmt: skip

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
                prediction_id=card, lifted=card in self.lifted, **values,
            )  # fmt: skip

        entries = [
            entry(1, 4, "Hunt flakes: 4 slowest tests"),
            entry(2, 33, "clean up with rm -rf / [/not markup]", block),
            entry(3, 90, "follow up on the analysis", loops, trigger_type="follow-up", from_channel="research"),
            entry(4, 400, "Draft the change log of the 5 commits since v1.2", gate, trigger_type="autonomous",
                  channel="chronicle-hub", workspace=BLOG),
        ]  # fmt: skip
        return [entry for entry in entries if entry.blocked or not blocked_only][:limit]
