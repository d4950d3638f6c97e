"""The world of a situation: a real repository, and a real engine whose cards a test looks at.

def test_it(situation: Situation):
    situation.commit("one", {"cart.py": "…"}, days_ago=3)
    card = situation.predict_top_card("leftovers")   # a cycle, then the card on top, which must be of this kind
    session = situation.approve(card)        # → and wait for the end
    assert session.summary == "…"
    assert "leftovers" not in situation.predict_kinds()
"""

import os
from datetime import datetime, timedelta
from pathlib import Path

from engine.clock import FakeClock
from engine.engine import Engine
from engine.home import Home
from engine.model import Card, CheckResult, SessionView, Tier
from tests.support import MONDAY_MORNING, acp_agent
from tests.support.engines import open_idle_engine
from tests.support.repository import Repository

SESSION_TIMEOUT_S = 120.0
"""Seconds until a session must have ended, also on a loaded machine."""

CART_TESTS = "def test_total():\n    from cart import total\n    assert total([1, 2]) == 3\n"
SHOP = {
    "cart.py": "def total(prices):\n    return sum(prices)\n",
    "tests/test_cart.py": CART_TESTS,
    "conftest.py": "",
    "pyproject.toml": '[project]\nname = "shop"\nversion = "1.0"\ndependencies = []\n[tool.pytest.ini_options]\n',
    ".gitignore": "__pycache__/\n.pytest_cache/\n.venv\n",
}
"""A small project with a test that passes."""

TOTAL_TEST = "tests/test_cart.py::test_total"
"""The name of that test."""

RIGHT_TOTAL = SHOP["cart.py"]
HARMLESS_TOTAL = "def total(prices):\n    return sum(prices) + 0\n"
ROUNDED_TOTAL = "def total(prices):\n    return round(sum(prices), 2)\n"
WRONG_TOTAL = "def total(prices):\n    return max(prices)\n"
"""Texts of `cart.py`: that of `SHOP`, two more with which its test passes, and one with which it fails."""

API = {
    "packages/api/pyproject.toml": '[project]\nname = "api"\nversion = "1"\n[tool.pytest.ini_options]\n',
    "packages/api/stock.py": "def left(have, sold):\n    return have - sold\n",
    "packages/api/tests/test_stock.py": "from stock import left\n\n\ndef test_left():\n    assert left(3, 1) == 2\n",
    "packages/api/conftest.py": "",
    ".gitignore": "__pycache__/\n.pytest_cache/\n.venv\nnode_modules\n",
}
"""A project of Python in `packages/api`, for repositories with several."""


class Situation:
    """One workspace and its engine on a Monday at nine. Time stands still unless `advance` moves it."""

    def __init__(self, folder: Path):
        self.clock = FakeClock(MONDAY_MORNING)
        self.repository = Repository(folder / "shop")
        self.home = folder / "home"
        self._engine: Engine | None = None

    @property
    def path(self) -> Path:
        return self.repository.path

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = open_idle_engine(
                Home.locate(self.home), self.path, clock=self.clock, unreachable=True, throw_away=True
            )
        return self._engine

    def close(self):
        if self._engine is not None:
            self._engine.close()

    # -- history

    def get_time(self, days_ago: float) -> datetime:
        """The time that many days ago."""
        return self.clock.now() - timedelta(days=days_ago)

    def git(self, *arguments: str, days_ago: float = 0.0) -> str:
        return self.repository.git(*arguments, at=self.get_time(days_ago))

    def checkout(self, *arguments: str, days_ago: float = 0.0):
        self.git("checkout", "-q", *arguments, days_ago=days_ago)

    def write(self, name: str, text: str, *, days_ago: float = 0.0) -> Path:
        """Write a file and date it, so that it was changed that long ago on the clock of the situation."""
        file = self.repository.write(name, text)
        changed_at = self.get_time(days_ago).timestamp()
        os.utime(file, (changed_at, changed_at))
        return file

    def commit(self, message: str, files: dict[str, str] | None = None, *, days_ago: float = 1.0) -> str:
        for name, text in (files or {}).items():
            self.write(name, text, days_ago=days_ago)
        return self.repository.commit(message, at=self.get_time(days_ago))

    def commit_shop(self, *, days_ago: float = 30.0) -> str:
        """Commit the project `SHOP`, with an environment that has pytest."""
        commit = self.commit("The shop", SHOP, days_ago=days_ago)
        self.repository.link_environment()
        return commit

    def add_remote(self) -> Path:
        """Push everything to a bare repository named origin, and let the branch that is checked out follow it."""
        bare = self.path.parent / "origin.git"
        self.git("clone", "-q", "--bare", str(self.path), str(bare))
        self.git("remote", "add", "origin", str(bare))
        self.git("fetch", "-q", "origin")
        self.git("remote", "set-head", "origin", "main")
        self.git("branch", "-q", "--set-upstream-to=origin/" + self.git("branch", "--show-current"))
        return bare

    # -- the console

    def predict_cards(self) -> list[Card]:
        """Run a cycle, and return the cards that wait, from the top."""
        report = self.engine.checks.run(requested=False)
        assert not report.errors, report.errors
        return self.engine.cards.list_pending()

    def predict_kinds(self) -> list[str]:
        """Run a cycle, and return the kinds of the cards that wait, from the top."""
        return [card.kind for card in self.predict_cards()]

    def predict_top_card(self, kind: str, tier: Tier | None = None, prompt: str = "") -> Card:
        """As `predict_card`; the card must be on top."""
        card = self.predict_card(kind, tier, prompt)
        assert card == self.engine.cards.list_pending()[0]
        return card

    def predict_card(self, kind: str, tier: Tier | None = None, prompt: str = "") -> Card:
        """Run a cycle, and return the only card of this kind, wherever it stands. It must have this tier and prompt, if
        they are given."""
        [card] = [card for card in self.predict_cards() if card.kind == kind]
        assert (card.tier, card.assignment.prompt) == (tier or card.tier, prompt or card.assignment.prompt)
        return card

    def propose(self, prompt: str) -> Card:
        """Make a card of the operator's own prompt."""
        return self.engine.cards.propose(prompt, workspace=str(self.path))

    @property
    def problem(self) -> str:
        """The problem that the status names, or ""."""
        return "".join(self.engine.checks.read_remarks().values())

    def assign_coding_agent(self):
        """Let a coding agent serve the channel of most cards, so that it is offered what no flow can mend."""
        self.engine.settings.set("acp.helper.command", list(acp_agent.COMMAND))
        self.engine.settings.set("channels.koji-core.runner", "acp:helper")

    def land(self, session: SessionView):
        """Land what the session changed."""
        self.engine.changes.land(session.change_set_id)

    def advance(self, **duration: float):
        """Let time pass: `minutes=1`."""
        self.clock.advance(timedelta(**duration))

    def approve(self, card: Card) -> SessionView:
        """Approve the card, and return its session when that has ended."""
        approved = self.engine.cards.approve(card.id)
        session = self.engine.sessions.wait(approved.session_id, timeout=SESSION_TIMEOUT_S)
        assert session.state.is_over, session
        self.engine.checks.follow_up()
        return session

    def run_tests(self) -> SessionView:
        """Run the whole suite, as the operator asks for it, so that later runs have something to compare with."""
        return self.approve(self.propose("run_tests"))

    def record_test_run(self, *failing: str, passed: int = 1):
        """Store a run of the whole suite on the present files, as if it had just ended."""
        self.git("add", "-A")
        tree = self.git("write-tree")
        self.git("reset", "-q")
        clean = not self.git("status", "--porcelain")
        check = CheckResult("pytest", passed, len(failing), failing=failing)
        self.engine.database.write(
            lambda tx: self.engine.validation_runs.record(
                tx, session_id="before", workspace=str(self.path), check=check, head=self.git("rev-parse", "HEAD"),
                tree=tree, clean=clean, full=True,
            )
        )  # fmt: skip

    def read_transcript(self, session: SessionView) -> str:
        """The whole transcript of the session."""
        return "\n".join(line.text for line in self.engine.sessions.read_transcript(session.id))
