"""A shop whose work fails in ways that recur: its repository, its home, its engine and its operator.

Everything is real but the model (see `shop_model`): git, worktrees, pytest, the validation loop, prompts and learning.
"""

import json
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from engine.clock import FakeClock
from engine.execution.runners.model.host_client import ModelHost
from engine.model import Randomness, SessionView
from engine.model.adaptation import Candidate, CandidateStatus
from tests.benchmarks.shop_tasks import MODULE, RULES, ShopTask
from tests.execution.model.model_world import ModelWorld
from tests.support.model_server import ModelServer

PHASES_HEADING = "\nchange                     before  after   more  fewer   p (sign test, one-sided)"
"""The heading of the rows that `compare_phases` prints."""


def compare_phases(passed: Mapping[str, Sequence[bool]], before: str, after: str) -> float:
    """Compare two phases of `passed` by a one-sided sign test, and print a row. `passed` says of each task whether it
    passed, by phase. Returns the probability that chance alone makes so many more tasks pass."""
    pairs = list(zip(passed[before], passed[after], strict=True))
    more = sum(second and not first for first, second in pairs)
    fewer = sum(first and not second for first, second in pairs)
    changed = more + fewer
    chance = sum(math.comb(changed, count) for count in range(more, changed + 1)) / 2**changed
    rates = (sum(passed[name]) / len(passed[name]) for name in (before, after))
    figures = "  ".join(f"{rate:6.0%}" for rate in rates)
    print(f"{before + ' to ' + after:25}  {figures}  {more:5}  {fewer:5}   {chance:.4f}")
    return chance


MONDAY = datetime(2026, 3, 2, 10, tzinfo=UTC)
SEEDS = (1, 2, 3)

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

TOKENS_OF_WAYS = {"memory.recallTokens": MEMORY, "memory.learningsTokens": "scope"}
"""The ways of learning by the setting that is 0 where they are off."""


class Shop(ModelWorld):
    """The repository, the home and the model server of one seed. `on` has those of `LADDERS` and `MEMORY` that are in
    use. Behaviour is in use if the operator approves the candidates. A session with failing tests may not try again.
    `engine` is there while the shop is `opened`."""

    def __init__(
        self,
        root: Path,
        server: ModelServer,
        host: ModelHost,
        seed: int,
        on: Collection[str],
    ):
        super().__init__(root, FakeClock(MONDAY), server, host=host)
        self.on = frozenset(on)
        self.randomness = Randomness(seed)
        self.sandbox = None
        self._commit_shop()
        self._write_settings()

    def _commit_shop(self):
        """Commit a module and a test for each rule."""
        files = {".gitignore": "__pycache__\n", "shop/__init__.py": "", "run.py": RUN}
        files["Makefile"] = f"test:\n\t{sys.executable} -B run.py\n"
        for rule in RULES:
            remedy = rule.remedy.format(name=f"{rule.name}_of_old")
            files[f"shop/{rule.name}.py"] = MODULE.format(rule=rule.name) + remedy.replace("of_old", "first")
            files[f"tests/test_{rule.name}.py"] = rule.test
        self.repository.commit("Begin", files)

    def _write_settings(self):
        """Write the settings, in which the ladders that are not in use are off."""
        off = {name: 0 for name, way in TOKENS_OF_WAYS.items() if way not in self.on}
        caps = {"crossPollCostCapPerHour": 100, "crossPollCostCapPerDay": 1000, "crossPollCostCapPerMonth": 9000}
        self.configure(validation=True, **caps, **off, **{"validation.tries": 0})
        if "hierarchy" not in self.on:
            self.home.data.mkdir(parents=True, exist_ok=True)
            cascade = {"enable_m1": False, "enable_upward_bubbling": False}
            (self.home.data / "wisdom_cascade_config.json").write_text(json.dumps(cascade))

    def work(self, task: ShopTask, correction: str) -> SessionView:
        """Run a task from its card to its end, with the operator's `correction` in its prompt."""
        edit = f"{task.prompt}. {correction}" if correction else None
        started = self.engine.cards.approve(self.propose(task.prompt).id, edit=edit)
        view = self.finish(self.engine.sessions.get(started.session_id))
        self.clock.advance(timedelta(minutes=20))
        return view

    def review(self, view: SessionView):
        """Put work whose tests passed on a branch, and discard other work, as the operator does."""
        if has_passed(view):
            self.engine.changes.branch(view.change_set_id)
        else:
            self.engine.changes.discard(view.change_set_id)

    def end_day(self):
        """Run the jobs at the end of a day, and go on to ten o'clock of the next day."""
        self.engine.learnings.catch_up()
        self.engine.knowledge.catch_up()
        for job in ("state", "guidance", "adaptation"):
            self.engine.autonomy.schedule.run(job)
        tomorrow = (self.clock.now() + timedelta(days=1)).replace(hour=10, minute=0)
        self.clock.advance(tomorrow - self.clock.now())


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
