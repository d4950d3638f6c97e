"""What stored runs say of one test (SPEC 4.9): whether it passed, and whether it did both with the same files."""

from __future__ import annotations

import dataclasses

from engine.storage.validation_runs import find_flipped_tests, read_verdict_on
from tests.support.past_run import PastRun


def test_a_test_passed_if_it_was_measured_or_the_whole_suite_ran() -> None:
    assert read_verdict_on(PastRun("h", failing=("t",)), "t") is False
    assert read_verdict_on(PastRun("h"), "t") is True
    assert read_verdict_on(PastRun("h", full=False), "t") is None
    assert read_verdict_on(PastRun("h", full=False, durations=(("t", 0.1),)), "t") is True
    assert read_verdict_on(PastRun("h", passed=0), "t") is None


def test_a_flip_needs_the_same_files() -> None:
    red, green = PastRun("h", failing=("t",), tree="1"), PastRun("h", tree="1")
    assert find_flipped_tests([red, green]) == [("t", "1")]
    assert find_flipped_tests([red, dataclasses.replace(green, tree="2")]) == []
    assert find_flipped_tests([dataclasses.replace(red, tree=""), dataclasses.replace(green, tree="")]) == []
