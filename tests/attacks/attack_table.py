"""Counts the attacks of a run by their class, and prints what was tried, held and succeeded."""

from collections import Counter

import pytest

PROPERTY = "attack"
"""Name of the report property that carries the class of an attack, also from a worker to the main process."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test marked `attack("class")` a property that its report carries."""
    for item in items:
        for mark in item.iter_markers("attack"):
            item.user_properties += [(PROPERTY, kind) for kind in mark.args]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was tried: a failed test is an attack that succeeded."""
    tried = Counter()
    succeeded = Counter()
    skipped = Counter()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            kind = dict(getattr(report, "user_properties", ())).get(PROPERTY)
            if kind is None or (report.when == "setup" and outcome == "passed"):
                continue
            (skipped if outcome == "skipped" else tried)[kind] += 1
            succeeded[kind] += outcome in ("failed", "error")
    if not tried and not skipped:
        return
    terminalreporter.section("attacks")
    width = max(map(len, [*tried, *skipped, "class"]))
    terminalreporter.write_line(f"{'class':<{width}}  tried  held  succeeded  skipped")
    for kind in sorted({*tried, *skipped}):
        held = tried[kind] - succeeded[kind]
        terminalreporter.write_line(
            f"{kind:<{width}}  {tried[kind]:>5}  {held:>4}  {succeeded[kind]:>9}  {skipped[kind]:>7}"
        )
    total, lost = tried.total(), succeeded.total()
    terminalreporter.write_line(f"{'all':<{width}}  {total:>5}  {total - lost:>4}  {lost:>9}  {skipped.total():>7}")
