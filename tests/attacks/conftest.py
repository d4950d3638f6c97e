"""Fixtures of the attacks: a folder outside every sandbox, the operator's home and process, and the rungs. And the
table of what was tried."""

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.execution.sandbox import Sandbox
from engine.execution.sandbox.ladder import find_rungs
from tests.attacks.landing_files import PROJECT, Canary
from tests.attacks.planting import Trap
from tests.attacks.victim import Victim, folder_outside_tmp
from tests.execution.changesets.landing_world import LandingWorld


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder of the operator's outside /tmp and every workspace: where an attack would leave its mark."""
    with folder_outside_tmp() as folder:
        yield folder


@pytest.fixture
def trap(outside: Path) -> Trap:
    return Trap(outside)


@pytest.fixture
def canary(outside: Path) -> Canary:
    return Canary(outside)


@pytest.fixture(scope="session")
def working_rungs() -> dict[str, Sandbox]:
    """The rungs of this machine, none among them."""
    return {sandbox.name: sandbox for sandbox in find_rungs()}


def require_rung(name: str, rungs: dict[str, Sandbox]) -> Sandbox:
    """The rung of this name. Skips the test where it does not work."""
    if name not in rungs:
        pytest.skip(f"{name} does not work on this machine")
    return rungs[name]


LANDLOCK = pytest.param("landlock", marks=pytest.mark.slow_attack)
NONE = pytest.param("none", marks=pytest.mark.slow_attack)
"""Rungs that only the slow half of the attacks tries."""


@pytest.fixture(params=["bubblewrap", LANDLOCK])
def rung(request: pytest.FixtureRequest, working_rungs: dict[str, Sandbox]) -> Sandbox:
    """Each rung of the sandbox ladder that confines; skipped where this machine does not have it."""
    return require_rung(request.param, working_rungs)


@pytest.fixture(params=["bubblewrap", LANDLOCK, NONE])
def every_rung(request: pytest.FixtureRequest, working_rungs: dict[str, Sandbox]) -> Sandbox:
    """Each rung, the last one too, which confines nothing but ends everything."""
    return require_rung(request.param, working_rungs)


@pytest.fixture
def victim(rung: Sandbox, outside: Path) -> Victim:
    """The operator's home, attacked by commands on each rung that confines."""
    return Victim(outside, rung)


@pytest.fixture
def worker(victim: Victim) -> Victim:
    """The victim of a session that works in a worktree."""
    victim.use_worktree()
    return victim


@pytest.fixture
def checker(victim: Victim) -> Victim:
    """The victim of a session that works over the operator's tree, where the rung can lay something over it."""
    if not victim.confinement.is_ephemeral:
        victim.use_worktree()
    return victim


@pytest.fixture
def other_process() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the operator's outside every session, the leader of its group, with a secret in its environment."""
    with subprocess.Popen(["sleep", "60"], env={"TOKEN": "hunter2"}, start_new_session=True) as process:
        yield process
        process.kill()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LandingWorld]:
    """An empty repository and the change sets of it."""
    world = LandingWorld(tmp_path)
    yield world
    world.close()


@pytest.fixture
def project(world: LandingWorld) -> LandingWorld:
    """The repository with the files of `PROJECT`."""
    world.repository.commit("one", PROJECT)
    return world


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
