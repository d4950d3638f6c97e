"""What attacks share: a place outside every jail to leave a mark in, the rungs to try, and the table at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.execution.sandbox import PRIVATE, Sandbox
from engine.execution.sandbox.ladder import find_rungs
from tests.attacks.landing_canary import Canary

PROPERTY = "attack"
"""Name of the report property that carries the class of an attack, also from a worker to the main process."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test marked `attack("class")` a property that its report carries."""
    for item in items:
        for mark in item.iter_markers("attack"):
            item.user_properties.append((PROPERTY, mark.args[0]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was tried: a failed test is an attack that succeeded."""
    tried: Counter[str] = Counter()
    won: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            kind = dict(getattr(report, "user_properties", ())).get(PROPERTY)
            if kind is None or (report.when == "setup" and outcome == "passed"):
                continue
            (skipped if outcome == "skipped" else tried)[kind] += 1
            won[kind] += outcome in ("failed", "error")
    if not tried and not skipped:
        return
    terminalreporter.section("attacks")
    width = max(map(len, [*tried, *skipped, "class"]))
    terminalreporter.write_line(f"{'class':<{width}}  tried  held  succeeded  skipped")
    for kind in sorted({*tried, *skipped}):
        held = tried[kind] - won[kind]
        terminalreporter.write_line(f"{kind:<{width}}  {tried[kind]:>5}  {held:>4}  {won[kind]:>9}  {skipped[kind]:>7}")
    total, lost = tried.total(), won.total()
    terminalreporter.write_line(f"{'all':<{width}}  {total:>5}  {total - lost:>4}  {lost:>9}  {skipped.total():>7}")


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder of the operator's outside /tmp and every workspace: where an attack would leave its mark."""
    places = (Path.home(), Path.cwd(), Path("/srv"))
    usable = [
        place
        for place in places
        if os.access(place, os.W_OK) and not any(place.resolve().is_relative_to(private) for private in PRIVATE)
    ]
    if not usable:
        pytest.skip("no folder outside /tmp can be written")
    folder = Path(tempfile.mkdtemp(prefix=".clawpy-attack-", dir=usable[0]))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def canary(outside: Path) -> Canary:
    return Canary(outside)


@pytest.fixture(scope="session")
def working_rungs() -> dict[str, Sandbox]:
    """The rungs of this machine, none among them."""
    return {sandbox.name: sandbox for sandbox in find_rungs()}


@pytest.fixture(params=["bubblewrap", pytest.param("landlock", marks=pytest.mark.attacks)])
def rung(request: pytest.FixtureRequest, working_rungs: dict[str, Sandbox]) -> Sandbox:
    """Each rung of the sandbox ladder that confines; skipped where this machine does not have it."""
    if request.param not in working_rungs:
        pytest.skip(f"{request.param} does not work on this machine")
    return working_rungs[request.param]


@pytest.fixture(
    params=["bubblewrap", *(pytest.param(name, marks=pytest.mark.attacks) for name in ("landlock", "none"))]
)
def every_rung(request: pytest.FixtureRequest, working_rungs: dict[str, Sandbox]) -> Sandbox:
    """Each rung, the last one too, which confines nothing but ends everything."""
    if request.param not in working_rungs:
        pytest.skip(f"{request.param} does not work on this machine")
    return working_rungs[request.param]
