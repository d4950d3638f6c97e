"""What becomes of a landing and of its undo, by what the operator did meanwhile and later (SPEC 3.9).

Five hundred random scenarios: `pytest -m faults -s tests/execution/changesets/test_landing_outcomes.py`.
"""

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings

from tests.execution.changesets.landing_scenarios import SCENARIOS, Scenario, check_scenario
from tests.execution.changesets.random_edits import Edit

LINE = Edit("line", "a.txt", other="theirs", number=3)
"""What the session changes in most cases."""

CASES = {
    "the same line": (LINE, Edit("line", "a.txt", other="mine", number=3), None, "refused"),
    "a renamed file with an edit": (Edit("rename", "a.txt", "moved.txt"), Edit("line", "a.txt"), None, "undone"),
    "another case of a name": (Edit("rename", "a.txt", "A.txt"), None, None, "undone"),
    "an ignored file where a file comes": (Edit("write", "new"), Edit("ignored", "new"), None, "refused"),
    "an empty folder where a file comes": (Edit("write", "new"), Edit("empty_folder", "new"), None, "undone"),
    "a later mode": (LINE, None, Edit("mode", "a.txt"), "undo refused"),
    "later gone": (LINE, None, Edit("delete", "a.txt"), "undo refused"),
    "later a file where the folder was": (Edit("delete", "d/c.txt"), None, Edit("write", "d"), "undo refused"),
}
"""What the session does, what the operator does meanwhile and later, and what becomes of the landing and its undo."""


@pytest.mark.long
@pytest.mark.parametrize("session, meanwhile, later, outcome", CASES.values(), ids=CASES)
def test_what_would_lose_something_of_yours_is_refused_and_nothing_else(
    tmp_path: Path, session: Edit, meanwhile: Edit | None, later: Edit | None, outcome: str
):
    scenario = Scenario([], [session], [meanwhile] if meanwhile else [], [later] if later else [])
    assert check_scenario(scenario, tmp_path) == outcome


@pytest.mark.parametrize(
    "number, expected",
    [
        pytest.param(10, set(), marks=pytest.mark.long),
        pytest.param(500, {"undone", "refused", "undo refused"}, marks=pytest.mark.faults),
    ],
)
def test_a_landing_is_what_git_would_do_and_an_undo_is_its_exact_reverse(number: int, expected: set[str]):
    outcomes = Counter()

    @settings(max_examples=number, suppress_health_check=list(HealthCheck))
    @given(SCENARIOS)
    def check_random_scenario(scenario: Scenario):
        with tempfile.TemporaryDirectory() as folder:
            outcome = check_scenario(scenario, Path(folder))
        assume(outcome != "nothing changed")  # no scenario
        outcomes[outcome] += 1

    check_random_scenario()
    print(f"\nlanding: {outcomes.total()} scenarios, as git would have it: {dict(outcomes)}")
    assert expected <= outcomes.keys()
