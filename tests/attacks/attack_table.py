"""Counts the attacks of a run by their class, and prints what was tried, held and succeeded."""

from collections import Counter

import pytest

PROPERTY = "attack"
"""Name of the report property that carries the class of an attack, also from a worker to the main process."""


def pytest_collection_modifyitems(items: list[pytest.Item]):
    """Give each test marked `attack("class")` a property that its report carries."""
    for item in items:
        for mark in item.iter_markers("attack"):
            item.user_properties += [(PROPERTY, kind) for kind in mark.args]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter):
    """Print what was tried: a failed test is an attack that succeeded."""
    counts = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            kind = dict(getattr(report, "user_properties", ())).get(PROPERTY)
            if kind and (report.when, outcome) != ("setup", "passed"):
                counts.setdefault(kind, Counter())[outcome] += 1
    if not counts:
        return
    rows = [*sorted(counts.items()), ("all", sum(counts.values(), Counter()))]
    width = max(len(kind) for kind in (*counts, "class"))
    terminalreporter.section("attacks")
    terminalreporter.write_line(f"{'class':<{width}}  tried  held  succeeded  skipped")
    for kind, outcomes in rows:
        held, succeeded = outcomes["passed"], outcomes["failed"] + outcomes["error"]
        figures = f"{held + succeeded:>5}  {held:>4}  {succeeded:>9}  {outcomes['skipped']:>7}"
        terminalreporter.write_line(f"{kind:<{width}}  {figures}")
