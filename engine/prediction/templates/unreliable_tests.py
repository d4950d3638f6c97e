"""Cards about tests that pass and fail on the same files: run them many times, and skip them for a while."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

from engine.model.text import listing
from engine.prediction.context import Part, WorkspaceContext
from engine.prediction.templates.offers import (
    Offer,
    is_usable,
    last_success,
    short_test,
    template,
)
from engine.storage.validation_runs import flipped_tests

RUNS = 20
QUARANTINE = timedelta(days=14)

MAX_HUNTED = 5
"""Maximum number of unreliable tests run at once."""


@template
def hunt_flakes(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """Tests that failed and passed on the same files, or whose quarantine is over."""
    if part.tool is None or not part.tool.runs_single_tests:
        return
    today = context.local.date()
    quarantined = _quarantined(context, part)
    resting = {test for test, until in quarantined if until > today}
    over = [(test, until) for test, until in quarantined if until <= today and is_usable(test)][:MAX_HUNTED]
    flipped = [
        (test, tree)
        for test, tree in flipped_tests(part.runs)
        if is_usable(test) and without_parameters(test) not in resting
    ]
    facts: dict[str, Any]
    if over:
        days = ", ".join(dict.fromkeys(f"{until.day} {until:%B}" for _, until in over))
        tests, which = [test for test, _ in over], "it is steady" if len(over) == 1 else "they are steady"
        reason = f"{'Its' if len(over) == 1 else 'Their'} quarantine ended on {days}; if {which}, take the skip away."
        facts, at = {"until": [until.isoformat() for _, until in over]}, None
    elif flipped and part.runs:
        tests, facts = [test for test, _ in flipped[:MAX_HUNTED]], {"tree": flipped[0][1]}
        reason = "Two runs of the same files disagree about " + ("it." if len(tests) == 1 else "them.")
        at = part.runs[0].ran_at
    else:
        return
    names = listing((short_test(test) for test in tests), 2, 40)
    yield Offer(
        f"Run {names} {RUNS} times: unreliable?",
        reason,
        subject=" ".join(sorted(tests)),
        facts={"tests": sorted(tests), **facts},
        parameters={"tests": tests, "times": RUNS},
        evidence_at=at,
        about=" ".join(tests),
    )


def without_parameters(test: str) -> str:
    """A test of pytest without its parameters: `t.py::test_a` for `t.py::test_a[1-2]`."""
    return test.partition("[")[0]


def _quarantined(context: WorkspaceContext, part: Part) -> list[tuple[str, date]]:
    """The tests of a project that are in quarantine, as its tool names them, and until when."""
    entries = [
        (part.project.path_inside(item.test), item.until)
        for item in context.inspection.quarantined
        if part.holds(item.test)
    ]
    return [(test, until) for test, until in entries if test is not None]


@template
def quarantine(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """A hunt found tests unreliable: skip them for two weeks, and say so again when these are over."""
    if part.tool is None:
        return
    last = last_success(context, part.project.path, "hunt_flakes")
    today = context.local.date()
    resting = {test for test, until in _quarantined(context, part) if until > today}
    results = last.facts.get("tests", ()) if last is not None else ()
    flaky = [
        result
        for result in results
        if result["verdict"] == "flaky"
        and ".py::" in result["test"]
        and is_usable(result["test"])
        and without_parameters(result["test"]) not in resting
    ]
    if last is None or not flaky:
        return
    until, tests = today + QUARANTINE, [item["test"] for item in flaky[:MAX_HUNTED]]
    failed, times = flaky[0]["failed"], flaky[0]["runs"]
    names = listing((short_test(test) for test in tests), 2, 40)
    yield Offer(
        f"Skip {names} until {until.day} {until:%B}",
        f"{short_test(tests[0])} failed {failed} of {times} times; a card comes back when the two weeks are over.",
        subject=" ".join(sorted(tests)),
        facts={"hunt": last.id},
        parameters={
            "tests": tests,
            "until": until.isoformat(),
            "why": f"flaky: failed {failed} of {times}",
        },
        evidence_at=last.ended_at,
        about=" ".join(tests),
    )
