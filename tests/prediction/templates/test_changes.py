"""Cards about your own changes (SPEC 2.3): debugging that you left, secrets, files that belong in no repository, and
lint."""

from dataclasses import replace
from datetime import timedelta

import pytest

from engine.git.unpushed import UnpushedProblem, UnpushedWork
from engine.model import Proposal
from engine.prediction.kinds import kind_title
from engine.prediction.templates.changes import leftovers, lint
from engine.prediction.templates.history import publishing_warnings
from tests.conftest import Repository
from tests.prediction.sensing import NOW, SensedWorkspace, make_session, touch


def list_subjects(proposals: list[Proposal]) -> list[str]:
    return [proposal.subject for proposal in proposals]


def test_a_file_is_linted_again_after_it_was_written(world: SensedWorkspace, repository: Repository):
    repository.write("cart.py", "3")
    touch(repository.path / "cart.py", NOW - timedelta(hours=3))
    [first] = lint(*world.sense_top())
    world.sessions = [make_session("lint")]
    assert lint(*world.sense_top()) == [], "the last lint read this file"
    touch(repository.path / "cart.py", NOW)
    [second] = lint(*world.sense_top())
    assert second.fingerprint != first.fingerprint
    assert (second.parameters, second.subject) == (first.parameters, first.subject)


KEY = "AK" + "IA" + "Q7W2E9R4T1Y8U3I6"
TOKEN = "glp" + "at-" + "x7Kq2mWz9RtB4vNc8LpS"
"""Made-up secrets. They are put together here, so that no scanner takes this file for a leak."""


def test_a_breakpoint_and_a_todo_in_one_file_are_two_subjects(world: SensedWorkspace, repository: Repository):
    repository.write("cart.py", "def total(prices):\n    breakpoint()\n    return sum(prices)\n")
    [card] = leftovers(world.sense())
    assert card.subject == "breakpoint in cart.py"
    repository.write("cart.py", "\n\ndef total(prices):\n    breakpoint()\n    return sum(prices)\n")
    [moved] = leftovers(world.sense())
    assert moved.prompt == "Show what is left in cart.py:4"
    assert moved.fingerprint == card.fingerprint, "lines above make no new card"
    repository.write("cart.py", "def total(prices):\n    breakpoint()\n    breakpoint()\n    return sum(prices)\n")
    [second] = leftovers(world.sense())
    assert second.fingerprint != card.fingerprint
    repository.write("größe neu.js", "  debugger;\n")
    assert list_subjects(leftovers(world.sense())) == ["breakpoint in cart.py, debugger statement in größe neu.js"]
    repository.write("rates.py", "<<<<<<< HEAD\na = 1\n=======\na = 2\n>>>>>>> theirs\n")
    assert list_subjects(leftovers(world.sense())) == ["conflict marker in rates.py"]


def test_another_secret_in_the_same_file_is_another_subject(world: SensedWorkspace, repository: Repository):
    repository.write("cart.py", f'KEY = "{KEY}"\n')
    [first] = publishing_warnings(world.sense())
    assert first.subject == "AWS access key in cart.py"
    repository.write("cart.py", f'KEY = "{KEY}"\nHOST = "{TOKEN}"\n')
    [both] = publishing_warnings(world.sense())
    assert both.subject == "AWS access key in cart.py, GitLab token in cart.py"
    assert both.prompt.endswith(", and 1 other finding")
    repository.commit("Configure")
    assert list_subjects(publishing_warnings(world.sense())) == [both.subject], "a commit does not change the subject"


@pytest.mark.parametrize(
    "problem, prompt",
    [
        (
            UnpushedProblem("files that a tool fills", "web/node_modules", size=17),
            "web/node_modules holds files that a tool fills",
        ),
        (UnpushedProblem("database dump", "old.sql", size=2_100_000), "old.sql is 2.1 MB (database dump)"),
        (UnpushedProblem("large file", "a.bin", size=60_000_000), "a.bin is 60 MB"),
    ],
)
def test_a_file_that_belongs_in_no_repository_is_described(
    world: SensedWorkspace, problem: UnpushedProblem, prompt: str
):
    context = world.sense()
    inspection = replace(context.inspection, unpushed=UnpushedWork(1, committed=(problem,)))
    [card] = publishing_warnings(replace(context, inspection=inspection))
    assert card.prompt == f"Do not push yet: {prompt}"
    assert kind_title(card.kind) == "Files that belong in no repository"
