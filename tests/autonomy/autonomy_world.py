"""A whole engine on a real repository under a fake clock, with an operator whose past approvals have earned trust."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.autonomy.autonomy import ACT_JOB, STATE_JOB
from engine.clock import FakeClock
from engine.engine import Engine
from engine.events.work import AutonomousCycleFinished
from engine.home import Home
from engine.model import CalibrationCheck, Card, DecidedBy, DecidedCard, DecisionSignal, SessionView
from engine.randomness import Randomness
from engine.storage.database import Transaction
from tests.execution.session_world import ClaimsToConfine
from tests.support.engines import open_idle_engine
from tests.support.repository import Repository

FLOW, CHANNEL = "draft_changelog", "chronicle-hub"
"""The flow of the card that may run by itself, and its channel."""


class StandInCalibrator:
    """A calibrator that gives every card the same confidence, and whose check passes."""

    confidence = 0.95

    def calibrate(self, kind: str, score: float) -> float:
        return self.confidence

    def check(self) -> CalibrationCheck:
        return CalibrationCheck(held_out=100, is_calibrated=True, reason="it holds")


class AutonomyWorld:
    """One home and one repository; `engine` is open between `opened()` and its end."""

    def __init__(self, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch):
        self.clock = clock
        self.home = Home.locate(tmp_path / "home")
        two_days_ago = clock.now() - timedelta(days=2)
        for name in ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"):
            monkeypatch.setenv(name, two_days_ago.isoformat())
        self.repository = Repository(tmp_path / "shop")
        self.workspace = str(self.repository.path)
        self._make_change_log_due(two_days_ago.timestamp())
        self._open_count = 0
        self.calibrator = StandInCalibrator()
        self.configure()
        self.engine: Engine

    def _make_change_log_due(self, stamp: float):
        """Commit a new version that the change log lacks, in files of this time."""
        self.repository.commit("Begin", {"CHANGELOG.md": "# Changelog\n"})
        self.repository.git("tag", "v1.0")
        for number in range(3):
            self.repository.commit(f"Add part {number}", {f"part{number}.py": f"x = {number}\n"})
        self.repository.commit("Bump version to 1.1", {"version.py": "VERSION = '1.1'\n"})
        for path in self.repository.path.rglob("*"):
            if path.is_file() and "objects" not in path.parts:
                os.utime(path, (stamp, stamp))

    def configure(self, autonomy: str = "act", **settings: Any):
        """Write the settings file; what is not named has its default, but autonomous mode is on."""
        values = {"autonomousModeEnabled": "true"} | {name: str(value).lower() for name, value in settings.items()}
        lines = [f"{name} = {value}" for name, value in values.items()]
        self.home.config.mkdir(parents=True, exist_ok=True)
        lines += [f'[workspaces."{self.workspace}"]', f'autonomy = "{autonomy}"']
        self.home.config_file.write_text("\n".join(lines) + "\n")

    def edit_file(self, ago: timedelta = timedelta(0)):
        """A change of a file in an editor, `ago` on the fake clock."""
        file = self.repository.write("part0.py", f"x = {self.clock.now().isoformat()!r}\n")
        stamp = (self.clock.now() - ago).timestamp()
        os.utime(file, (stamp, stamp))

    @contextmanager
    def opened(self) -> Iterator[Engine]:
        """An engine, opened without its schedule, and with ids of its own."""
        self._open_count += 1
        self.engine = open_idle_engine(
            self.home,
            self.workspace,
            clock=self.clock,
            randomness=Randomness(self._open_count),
            calibrator=self.calibrator,
            sandbox=ClaimsToConfine(),
        )
        try:
            yield self.engine
        finally:
            self.engine.close()

    def earn_trust(self, approvals: int = 20, *, kind: str = FLOW, channel: str = CHANNEL, others: int = 15):
        """Record past approvals of so many cards of a kind and of `others`, and approve and run an own prompt."""

        def record(tx: Transaction):
            for number, past_kind in enumerate([kind] * approvals + ["lint"] * others):
                card = DecidedCard(
                    f"pred_past_{kind}_{number}", past_kind, channel, self.workspace, kind, "past", 0.9,
                    DecidedBy.OPERATOR,
                )  # fmt: skip
                self.engine.decisions.record(tx, DecisionSignal.APPROVED, card)

        self.engine.database.write(record)
        self._run_own_prompt(channel)

    def _run_own_prompt(self, channel: str):
        prompt = "summarise_day since=2026-01-01T00:00:00Z"
        card = self.engine.cards.propose(prompt, workspace=self.workspace, channel=channel)
        self.engine.cards.approve(card.id)
        self.wait_for_session(card.id)

    def be_inactive(self, span: timedelta = timedelta(minutes=30)):
        """The operator does nothing for so long; the schedule notices."""
        self.clock.advance(span)
        self.engine.autonomy.schedule.run(STATE_JOB)

    def run_cycle(self) -> AutonomousCycleFinished:
        """One autonomous cycle as the schedule runs it; what it did."""
        assert self.engine.autonomy.schedule.run(ACT_JOB), "the cycle is not wanted"
        (entry,) = self.engine.ledger.read_newest(1, kinds=("AutonomousCycleFinished",))
        return AutonomousCycleFinished(
            **{key: tuple(value) if isinstance(value, list) else value for key, value in entry.payload.items()}
        )

    def read_causes(self) -> list[str]:
        """The causes of all changes of the state, oldest first."""
        return [
            entry.payload["cause"] for entry in reversed(self.engine.ledger.read_newest(500, kinds=("StateChanged",)))
        ]

    def wait_for_session(self, card_id: str) -> SessionView:
        """Wait until the session of a card has ended."""
        view = self.engine.sessions.find_of_card(card_id)
        return self.engine.sessions.wait(view.id, 20)

    def find_card(self) -> Card:
        """The pending card of `FLOW`."""
        return next(card for card in self.engine.cards.list_pending() if card.assignment.flow == FLOW)
