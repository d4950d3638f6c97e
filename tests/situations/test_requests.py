"""You ask for work on a file or folder in a sentence of your own. What is not there is refused by name (SPEC 11.2)."""

import pytest

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
