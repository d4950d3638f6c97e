"""500 random scenarios of a change set, edits meanwhile and later ones, landed and undone on real git (SPEC 3.9).

`-s` prints how often which outcome came.
"""

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings

from tests.execution.changesets.landing_scenarios import SCENARIOS, Scenario, check_scenario

pytestmark = pytest.mark.faults


def test_five_hundred_scenarios_land_as_git_would():
    outcomes = Counter()

    @settings(max_examples=500, suppress_health_check=list(HealthCheck))
    @given(SCENARIOS)
    def check_random_scenario(scenario: Scenario) -> None:
        with tempfile.TemporaryDirectory() as folder:
            outcome = check_scenario(scenario, Path(folder))
        assume(outcome != "nothing changed")  # no scenario
        outcomes[outcome] += 1

    check_random_scenario()
    print(f"\nlanding: {sum(outcomes.values())} scenarios, as git would have it: {dict(outcomes)}")
    assert {"undone", "refused", "undo refused"} <= outcomes.keys()
