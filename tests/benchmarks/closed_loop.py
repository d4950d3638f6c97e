"""A shop whose work fails in ways that recur, and a model that does better only if its prompt says how.

Everything is real but the model: git, worktrees, pytest, the validation loop, prompts and learning. The model is a
fixed policy on loopback. It writes naive code, which breaks a rule of the shop. After the failing test it finds the
remedy in half of the tasks (a coin seeded with the task), and always when its prompt names the remedy, which only
earlier sessions can have put there.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from engine import Engine, Home, open_engine
from engine.clock import FakeClock
from engine.execution.runners.model.host_client import ModelHost
from engine.model import Randomness, SessionView
from engine.model.adaptation import Candidate, CandidateStatus
from engine.services import Overrides
from tests.conftest import Repository
from tests.support.helpers import read_table
from tests.support.model_server import ModelServer, Reply, Request, calls

MONDAY = datetime(2026, 3, 2, 10, tzinfo=UTC)
SEEDS = (1, 2, 3)
CHANNEL = "koji-core"
FIND_SHARE = 0.5
"""The share of tasks in which the model finds the remedy by itself after the failing test."""


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
        """Whether `draw` is below `share`."""
        return self.draw(purpose) < share

    def draw(self, purpose: str) -> float:
        """A number from 0 to 1, the same for the same task and purpose."""
        digest = hashlib.sha256(f"{self.seed}:{self.number}:{self.rule.name}:{purpose}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64


def make_tasks(seed: int, count: int) -> list[ShopTask]:
    """`count` tasks, of each rule in turn."""
    return [ShopTask(number, RULES[number % len(RULES)], seed) for number in range(count)]


HABIT = ("git status --short", "git log --oneline -3", "ls tests", "python3 -m compileall -q shop")
"""Commands that many sessions run in this order before they write."""

CHATTER = ("ls", "git diff --stat", "git branch", "cat pytest.ini", "ls shop", "wc -l shop/money.py", "head -3 README")
"""Commands that are run in no order."""

MODULE = '"""Functions about {rule}."""\n\n\n'
"""The beginning of a module of the shop."""


class ShopModel:
    """The policy. `harm_by_words`: by the words of a fragment, the share of tasks that following them ruins.
    `habit_share`: the share of tasks in which it runs `HABIT` before it writes; 0 for no commands. `follow_share`: how
    often it follows its prompt; `guess_share`: how often it is right at once by itself."""

    def __init__(self, tasks: Sequence[ShopTask]) -> None:
        self._tasks = {task.prompt: task for task in tasks}
        self.harm_by_words: dict[str, float] = {}
        self.habit_share = 0.0
        self.follow_share, self.guess_share = 1.0, 0.0

    def __call__(self, request: Request) -> Reply:
        task = next(task for prompt, task in self._tasks.items() if any(prompt in text for text in request.users))
        commands = self._draw_first_commands(task)
        if len(request.tool_results) < len(commands):
            return calls("exec", command=commands[len(request.tool_results)])
        writes = sum("wrote" in text or "written" in text.lower() for text in request.tool_results)
        failures = [text for text in request.users if "tests were run on your changes" in text]
        if writes <= len(failures):
            body = self._write_body(task, request, failures)
            content = MODULE.format(rule=task.rule.name) + body
            return calls("write", path=f"shop/{task.rule.name}.py", content=content)
        added_lines = re.findall(r"^\s{4}.*$", self._write_body(task, request, failures), re.M)
        return Reply(text=f"I added {task.function}: {' '.join(line.strip() for line in added_lines[-2:])}")

    def _draw_first_commands(self, task: ShopTask) -> list[str]:
        """The commands that the model runs before it writes."""
        if not self.habit_share:
            return []
        chatter = sorted(CHATTER, key=lambda command: task.draw(command))
        habit = HABIT if task.is_lucky("habit", self.habit_share) else ()
        return [*chatter[:3], *habit, *chatter[3:5]]

    def _write_body(self, task: ShopTask, request: Request, failures: Sequence[str]) -> str:
        """The function that the model writes: the remedy or naive code."""
        prompt = request.system + "\n".join(request.users)
        is_told = task.rule.token in prompt.replace(task.rule.test, "")
        follows = is_told and task.is_lucky("follows", self.follow_share)
        guesses = task.is_lucky("guesses", self.guess_share)
        is_ruined = any(words in prompt and task.is_lucky(words, share) for words, share in self.harm_by_words.items())
        finds_remedy = bool(failures) and task.is_lucky("finds", FIND_SHARE)
        is_right = (follows or guesses or finds_remedy) and not is_ruined
        return (task.rule.remedy if is_right else task.rule.naive).format(name=task.function)


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
    may try again. With `quick` the tests are run by `RUN`."""

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
        self.home.config.mkdir(parents=True, exist_ok=True)
        self.home.config_file.write_text("\n".join(settings) + "\n")

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
