"""Cards about unreliable tests, which pass and fail on the same files.

The first card runs such a test many times (`hunt_flakes`). If some of these runs fail, the second offers to put it in
quarantine, where it is skipped until a day. When the day has come, the first card comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from engine.prediction.context import Part, WorkspaceContext
from engine.prediction.templates.offers import (
    Offer,
    find_last_success,
    is_usable,
    shorten_test,
    template,
)
from engine.storage.validation_runs import find_unreliable_tests
from engine.wording import join_shortened

RUN_COUNT = 20
"""Number of times that an unreliable test is run."""

QUARANTINE_TIME = timedelta(days=14)
"""How long an unreliable test is skipped."""

MAX_TESTS = 5
"""Maximum number of tests of a card."""


@template
def hunt_flakes(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """Tests failed and passed on the same files, or the quarantine of a test is over."""
    if part.tool is None or not part.tool.runs_single_tests:
        return
    today = context.local.date()
    quarantined = _find_quarantined(context, part)
    skipped = {test for test, until in quarantined if until > today}
    released = [(test, until) for test, until in quarantined if until <= today and is_usable(test)][:MAX_TESTS]
    unreliable = [
        (test, tree)
        for test, tree in find_unreliable_tests(part.runs)
        if _strip_parameters(test) not in skipped and is_usable(test)
    ][:MAX_TESTS]
    if released:
        until_days = [until.isoformat() for _, until in released]
        yield _make_hunt_offer([test for test, _ in released], _describe_end(released), {"until": until_days}, None)
    elif unreliable:
        reason = "Two runs of the same files disagree about " + ("it." if len(unreliable) == 1 else "them.")
        tests, facts = [test for test, _ in unreliable], {"tree": unreliable[0][1]}
        yield _make_hunt_offer(tests, reason, facts, part.runs[0].ran_at)


def _make_hunt_offer(tests: Sequence[str], reason: str, facts: Mapping[str, Any], at: datetime | None) -> Offer:
    """The offer to run these tests `RUN_COUNT` times, for a reason that arose at a time."""
    names = join_shortened((shorten_test(test) for test in tests), 2, 40)
    return Offer(
        f"Run {names} {RUN_COUNT} times: unreliable?",
        reason,
        subject=" ".join(sorted(tests)),
        facts={"tests": sorted(tests), **facts},
        parameters={"tests": list(tests), "times": RUN_COUNT},
        evidence_at=at,
    )


def _describe_end(released: Sequence[tuple[str, date]]) -> str:
    """Say on which days the quarantine of these tests ended, and what to do if they are steady."""
    days = ", ".join(dict.fromkeys(f"{until.day} {until:%B}" for _, until in released))
    return f"The quarantine ended on {days}; take the skip away from what is steady."


def _strip_parameters(test: str) -> str:
    """A test of pytest without its parameters: `t.py::test_a` for `t.py::test_a[1-2]`."""
    return test.partition("[")[0]


def _find_quarantined(context: WorkspaceContext, part: Part) -> list[tuple[str, date]]:
    """The tests of a project that are in quarantine, each with the first day on which it runs again. Tests have the
    names of the project's tool."""
    return [
        (test, quarantined.until)
        for quarantined in context.inspection.quarantined
        if part.holds(quarantined.test) and (test := part.project.path_inside(quarantined.test)) is not None
    ]


@template
def quarantine(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """A session found unreliable tests. The card offers to skip them for two weeks; `hunt_flakes` then comes back to
    them."""
    if part.tool is None:
        return
    last = find_last_success(context, part.project.path, "hunt_flakes")
    today = context.local.date()
    skipped = {test for test, until in _find_quarantined(context, part) if until > today}
    results = last.facts.get("tests", ()) if last is not None else ()
    unreliable = [
        result
        for result in results
        if result["verdict"] == "flaky"
        and ".py::" in result["test"]
        and is_usable(result["test"])
        and _strip_parameters(result["test"]) not in skipped
    ]
    if last is None or not unreliable:
        return
    until, tests = today + QUARANTINE_TIME, [result["test"] for result in unreliable[:MAX_TESTS]]
    failed, times = unreliable[0]["failed"], unreliable[0]["runs"]
    most = "up to " if len(tests) > 1 else ""  # the first failed most, and the reason is written above all of them
    names = join_shortened((shorten_test(test) for test in tests), 2, 40)
    yield Offer(
        f"Skip {names} until {until.day} {until:%B}",
        f"{shorten_test(tests[0])} failed {failed} of {times} times; a card comes back when the two weeks are over.",
        subject=" ".join(sorted(tests)),
        facts={"hunt": last.id},
        parameters={
            "tests": tests,
            "until": until.isoformat(),
            "why": f"flaky: failed {most}{failed} of {times}",
        },
        evidence_at=last.ended_at,
    )
