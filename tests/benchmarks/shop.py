"""A shop whose work breaks rules that recur: its rules, tasks, model, repository, engine and operator.

Everything is real but the model, a fixed policy on loopback: git, worktrees, the validation loop, prompts and
learning. The model writes naive code, which breaks a rule of the shop, unless its prompt names the remedy, which only
the operator or earlier sessions can have put there.
"""

import hashlib
import json
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from engine.clock import FakeClock
from engine.execution.runners.model.host_client import ModelHost
from engine.model import SessionView
from engine.model.adaptation import Candidate, CandidateStatus
from engine.randomness import Randomness
from tests.support import read_table
from tests.support.model_server import ModelServer, Reply, Request, make_call
from tests.support.model_world import ModelWorld

MODULE = '"""Functions about {rule}."""\n\n\n'
"""The beginning of a module of the shop."""


@dataclass(frozen=True)
class ShopRule:
    """A rule of the shop that naive code breaks. A prompt with `token` names the remedy."""

    name: str
    test: str
    naive: str
    remedy: str
    token: str
    correction: str
    """What the operator adds to a prompt."""


RULES = tuple(ShopRule(name, **texts) for name, texts in read_table(__file__).items())


@dataclass(frozen=True)
class ShopTask:
    """One piece of work. Tasks with the same number and seed are the same."""

    number: int
    rule: ShopRule
    seed: int

    @property
    def function(self) -> str:
        return f"{self.rule.name}_{self.number}"

    @property
    def prompt(self) -> str:
        return f"Add {self.function} to shop/{self.rule.name}.py in the way of the functions there"

    def is_lucky(self, purpose: str, share: float) -> bool:
        """Whether a number from 0 to 1, the same for the same task and purpose, is below `share`."""
        digest = hashlib.sha256(f"{self.seed}:{self.number}:{self.rule.name}:{purpose}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64 < share


def make_tasks(seed: int, count: int) -> list[ShopTask]:
    """`count` tasks, of each rule in turn."""
    return [ShopTask(number, RULES[number % len(RULES)], seed) for number in range(count)]


FOLLOW_SHARE, GUESS_SHARE = 0.9, 0.2
"""How often the model follows its prompt, and how often it is right by itself."""


class ShopModel:
    """The policy."""

    def __init__(self, tasks: Sequence[ShopTask]):
        self._tasks = {task.prompt: task for task in tasks}

    def __call__(self, request: Request) -> Reply:
        task = next(task for prompt, task in self._tasks.items() if any(prompt in text for text in request.users))
        body = self._write_body(task, request)
        if not any("wrote" in text or "written" in text.lower() for text in request.tool_results):
            content = MODULE.format(rule=task.rule.name) + body
            return make_call("write", path=f"shop/{task.rule.name}.py", content=content)
        added_lines = re.findall(r"^\s{4}.*$", body, re.M)
        return Reply(text=f"I added {task.function}: {' '.join(line.strip() for line in added_lines[-2:])}")

    def _write_body(self, task: ShopTask, request: Request) -> str:
        """The function that the model writes: the remedy or naive code."""
        prompt = request.system + "\n".join(request.users)
        is_told = task.rule.token in prompt.replace(task.rule.test, "")
        is_right = (is_told and task.is_lucky("follows", FOLLOW_SHARE)) or task.is_lucky("guesses", GUESS_SHARE)
        return (task.rule.remedy if is_right else task.rule.naive).format(name=task.function)


MONDAY = datetime(2026, 3, 2, 10, tzinfo=UTC)

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

    def __init__(self, root: Path, server: ModelServer, host: ModelHost, seed: int, on: Collection[str]):
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
        in_review = engine.adaptation.list_candidates(status=CandidateStatus.REVIEW)
        if not in_review:
            break
        for candidate in in_review:
            engine.adaptation.approve(candidate.id)
    for candidate in engine.adaptation.list_candidates(status=CandidateStatus.ROLLED_BACK):
        engine.adaptation.approve(candidate.id)
    return engine.adaptation.list_candidates(status=CandidateStatus.ACTIVE)
