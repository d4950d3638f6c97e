"""A shop whose work fails in ways that recur: its repository, its home, its engine and its operator.

Everything is real but the model (see `shop_model`): git, worktrees, pytest, the validation loop, prompts and learning.
"""

import json
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from engine import Engine, Home, open_engine
from engine.clock import FakeClock
from engine.execution.runners.model.host_client import ModelHost
from engine.model import Randomness, SessionView
from engine.model.adaptation import Candidate, CandidateStatus
from engine.services import Overrides
from tests.benchmarks.shop_tasks import MODULE, RULES, ShopTask
from tests.conftest import Repository
from tests.support.helpers import write_settings
from tests.support.model_server import ModelServer

MONDAY = datetime(2026, 3, 2, 10, tzinfo=UTC)
SEEDS = (1, 2, 3)
CHANNEL = "koji-core"

RUN = """\
import glob, runpy

for file in sorted(glob.glob("tests/test_*.py")):
    for name, test in runpy.run_path(file).items():
        if name.startswith("test_"):
            test()
"""
"""A script that runs the shop's tests, and starts twenty times as fast as pytest."""

LADDERS = ("hierarchy", "scope", "behaviour")
"""The three ladders of learning, each of which a shop may have or not."""

MEMORY = "memory"
"""Recall of former sessions: another way of learning."""


class Shop:
    """The repository, the home and the model server of one seed. `on` has those of `LADDERS` and `MEMORY` that are in
    use. Behaviour is in use if the operator approves the candidates. `tries` is how often a session with failing tests
    may try again. With `quick` the tests are run by `RUN`. `engine` is there while the shop is `opened`."""

    def __init__(
        self,
        root: Path,
        server: ModelServer,
        host: ModelHost,
        seed: int,
        *,
        on: Collection[str] = LADDERS,
        tries: int = 3,
        quick: bool = False,
    ) -> None:
        self.on = frozenset(on)
        self.clock = FakeClock(MONDAY)
        self.server = server
        self.host = host
        self.seed = seed
        self.home = Home.locate(root / "home")
        self.repository = Repository(root / "shop")
        self._commit_shop(quick=quick)
        self._write_settings(server, tries)
        self.engine: Engine

    def _commit_shop(self, *, quick: bool) -> None:
        """Commit a module and a test for each rule."""
        files = {".gitignore": ".venv\n__pycache__\n", "shop/__init__.py": ""}
        if quick:
            files |= {"Makefile": f"test:\n\t{sys.executable} -B run.py\n", "run.py": RUN}
        else:
            (self.repository.path / ".venv").symlink_to(sys.prefix, target_is_directory=True)
            # plugins take longer than these tests
            files["pytest.ini"] = "[pytest]\naddopts = --disable-plugin-autoload\n"
        for rule in RULES:
            remedy = rule.remedy.format(name=f"{rule.name}_of_old")
            files[f"shop/{rule.name}.py"] = MODULE.format(rule=rule.name) + remedy.replace("of_old", "first")
            files[f"tests/test_{rule.name}.py"] = rule.test
        self.repository.commit("Begin", files)

    def _write_settings(self, server: ModelServer, tries: int) -> None:
        """Write the settings, in which the ladders that are not in use are off."""
        settings = ["crossPollCostCapPerHour = 100", "crossPollCostCapPerDay = 1000", "crossPollCostCapPerMonth = 9000"]
        settings += ["[providers.openai]", 'kind = "openai"', f'baseUrl = "{server.openai}"', 'model = "gpt-5-mini"']
        settings += [f"[channels.{CHANNEL}]", 'agent = "backend_builder"']
        settings += ["[memory]", *([] if MEMORY in self.on else ["recallTokens = 0"])]
        settings += [] if "scope" in self.on else ["learningsTokens = 0"]
        settings += ["[validation]", f"tries = {tries}"]
        if "hierarchy" not in self.on:
            self.home.data.mkdir(parents=True, exist_ok=True)
            cascade = {"enable_m1": False, "enable_upward_bubbling": False}
            (self.home.data / "wisdom_cascade_config.json").write_text(json.dumps(cascade))
        write_settings(self.home, "\n".join(settings) + "\n")

    @contextmanager
    def opened(self) -> Iterator[Engine]:
        """Open the engine of the shop."""
        self.engine = open_engine(
            self.home,
            workspaces=[str(self.repository.path)],
            clock=self.clock,
            randomness=Randomness(self.seed),
            start_schedule=False,
            overrides=Overrides(unreachable=True, throw_away=True, model_host=self.host),
        )
        try:
            yield self.engine
        finally:
            self.engine.close()

    def work(self, task: ShopTask, correction: str = "") -> SessionView:
        """Run a task from its card to its end, with the operator's `correction` in its prompt."""
        card = self.engine.cards.propose(task.prompt, workspace=str(self.repository.path), channel=CHANNEL)
        started = self.engine.cards.approve(card.id, edit=f"{task.prompt}. {correction}" if correction else None)
        until = time.monotonic() + 120
        while not (view := self.engine.sessions.wait(started.session_id, 2)).state.over:
            lines = [line.text for line in self.engine.sessions.transcript(view.id)]
            assert time.monotonic() < until, json.dumps(lines)
            if lines and "; again in " in lines[-1]:  # a connection broke on a busy machine: end the pause
                self.clock.advance(timedelta(minutes=2))
        self.clock.advance(timedelta(minutes=20))
        return view

    def review(self, view: SessionView) -> None:
        """Put work whose tests passed on a branch, and discard other work, as the operator does."""
        if has_passed(view):
            self.engine.changes.branch(view.change_set_id)
        else:
            self.engine.changes.discard(view.change_set_id)

    def end_day(self) -> None:
        """Run the jobs at the end of a day, and go on to ten o'clock of the next day."""
        self.engine.learnings.catch_up()
        self.engine.knowledge.catch_up()
        for job in ("state", "guidance", "adaptation"):
            self.engine.autonomy.schedule.run(job)
        tomorrow = (self.clock.now() + timedelta(days=1)).replace(hour=10, minute=0)
        self.clock.advance(tomorrow - self.clock.now())

    def approve_on_friday(self) -> None:
        """Approve all candidates, if behaviour is in use."""
        if "behaviour" in self.on:
            approve_candidates(self)


def has_passed(view: SessionView) -> bool:
    """Whether the tests passed on what a session changed."""
    return view.check is not None and view.check.green


def approve_candidates(shop: Shop) -> list[Candidate]:
    """Approve all proposed candidates and those that were rolled back. Returns the active candidates."""
    engine = shop.engine
    for _ in range(8):
        engine.adaptation.run_round()
        in_review = engine.adaptation.candidates(status=CandidateStatus.REVIEW)
        if not in_review:
            break
        for candidate in in_review:
            engine.adaptation.approve(candidate.id)
    for candidate in engine.adaptation.candidates(status=CandidateStatus.ROLLED_BACK):
        engine.adaptation.approve(candidate.id)
    return engine.adaptation.candidates(status=CandidateStatus.ACTIVE)
