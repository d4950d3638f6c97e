"""You ask for work on a file or folder in a sentence of your own. What is not there is refused by name (SPEC 11.2)."""

import pytest

from engine.model import SessionState
from tests.situations.situation import Situation
from tests.support.helpers import refused


@pytest.mark.parametrize(
    "prompt, problem, command",
    [
        (
            "remove_leftovers paths=gone.py",
            "remove_leftovers: paths: there is no file or folder gone.py in this repository",
            "git ls-files",
        ),
        (
            "run_tests project=nope",
            "run_tests: project: there is no file or folder nope in this repository",
            "git ls-files",
        ),
        (
            "bisect test=nope good=nope",
            "bisect: good: `nope` names no commit in this repository",
            "git log --oneline --all",
        ),
        (
            "forecast_conflicts base=HEAD branches=HEAD,nope",
            "forecast_conflicts: branches: `nope` names no commit in this repository",
            "git log --oneline --all",
        ),
    ],
)
def test_what_the_repository_does_not_have_is_refused_with_its_parameter(
    shop: Situation, prompt: str, problem: str, command: str
):
    refusal = refused("bad_parameters", lambda: shop.propose(prompt))
    assert refusal.message == problem
    assert refusal.fix.startswith(f"`{command}` lists its ")


def test_a_shallow_clone_says_how_to_get_the_commit_that_it_lacks(shop: Situation):
    shop.commit("A second commit", {"NOTES": ""})
    (shop.path / ".git/shallow").write_text(shop.git("rev-parse", "HEAD"))  # as `git clone --depth 1` leaves it
    refusal = refused("bad_parameters", lambda: shop.propose("bisect test=test_cart.py good=HEAD~1"))
    assert refusal.message == "bisect: good: `HEAD~1` names no commit in this repository, which is a shallow clone"
    assert refusal.fix == "`git fetch --unshallow` gets its older commits"


@pytest.mark.long
def test_a_request_about_a_folder_is_done_to_its_result(situation: Situation):
    unused, failing = "import os\n", "def test_a():\n    assert 0\n"
    situation.commit_shop()
    files = {
        "src/a b.py": unused,
        "src/[x]/ü.py": unused,
        "more/c.py": unused,
        "docs/d.md": "",
        "more/test_c.py": failing,
    }
    situation.commit("begin", {"ruff.toml": "lint.select = ['F']\n", **files})
    situation.write("src/new.py", f"{unused}import sys\n")
    results = {
        "lint src": "ruff: 2 findings in 1 file are new (F401 2)",
        "lint the src/[x]/": "ruff found nothing new in 1 file; HEAD has 1 finding",
        "lint more/c.py": "ruff found nothing new in 1 file; HEAD has 1 finding",
        "lint docs": "Nothing to lint: no linter of the project reads docs",
        "format src": "ruff check and ruff format changed 3 files: src/[x]/ü.py, src/a b.py and src/new.py",
        "format docs": "Nothing to fix: no linter of the project fixes docs",
        "run the tests of docs": "No tests found for docs, nothing was run: `run the tests` runs the whole suite",
    }
    prompts = ["Lint src", "Lint src/[x]/", "Lint more/c.py", "Lint docs", "Format and fix src", "Format and fix docs"]
    for (prompt, summary), title in zip(results.items(), [*prompts, "Run the tests of docs"], strict=True):
        card = situation.propose(prompt)
        assert card.assignment.prompt == title
        session = situation.approve(card)
        assert (session.state, session.summary) == (SessionState.SUCCEEDED, summary)
    session = situation.approve(situation.propose("run the tests of tests"))
    assert (session.check.failed, session.check.passed) == (0, 1), "the tests of other folders are not run"
    session = situation.approve(situation.propose("run the tests of more"))
    assert session.check.failing == ("more/test_c.py::test_a",)
