"""How long a cycle over three workspaces takes (SPEC 2.9), one of them with 50,000 commits and 20 subprojects.

    pytest tests/benchmarks/test_cycle_speed.py -m benchmark -s

Bars: the first cycle of a new home under 5 s, later ones under 500 ms at p95, after an edit and after a commit. It is
`engine.checks.run` of a real engine that serves all three: sense, propose, weigh, ask the rails, store. The
baseline is one full `git log` walk.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from engine import Engine, Home
from engine.git import Git
from tests.benchmarks.measuring import compute_p95, print_table, time_call
from tests.prediction.builders import NOW
from tests.support.engines import open_idle_engine
from tests.support.repository import Repository

COMMITS_PER_TAG = 5_000
BRANCHES = 50

MANIFESTS = {
    "pyproject.toml": '[project]\nname = "part{n}"\nversion = "1"\ndependencies = ["pytest"]\n',
    "package.json": '{"name": "part{n}", "scripts": {"test": "node --test"}}\n',
    "go.mod": "module example.org/part{n}\n\ngo 1.22\n",
    "Cargo.toml": '[package]\nname = "part{n}"\nversion = "0.1.0"\nedition = "2021"\n',
}
"""A manifest of each kind of project, by its name. `{n}` stands for the number of the project."""


def make_large_repository(path: Path, commits: int, files: int, projects: int = 0) -> Repository:
    """A repository with `commits` commits over `files` files, tags, branches, and `projects` subprojects of 4 kinds.
    All but the newest 50 commits are pushed."""
    repository = Repository(path)
    stream = "".join(_write_history(commits, files, projects))
    subprocess.run(["git", "fast-import", "--quiet"], cwd=path, input=stream.encode(), check=True, capture_output=True)
    repository.git("reset", "-q", "--hard", "main")
    repository.git("remote", "add", "origin", "https://git.invalid/large.git")
    repository.git("update-ref", "refs/remotes/origin/main", "main~50")
    repository.git("branch", "-q", "--set-upstream-to=origin/main")
    return repository


def _write_history(commits: int, files: int, projects: int) -> Iterator[str]:
    """The commands of `git fast-import`, commit by commit."""
    start = int((NOW - timedelta(days=2000)).timestamp())
    for number in range(1, commits + 1):
        message = f"c{number}"
        yield f"commit refs/heads/main\nmark :{number}\ncommitter A <a@b.org> {start + number * 3400} +0000\n"
        yield f"data {len(message)}\n{message}\n"
        yield _write_file(f"src/pack{number % 40}/module{number % files}.py", f"value = {number}\n")
        if number == 1:
            yield from _write_manifests(projects)
        if number % COMMITS_PER_TAG == 0:
            yield f"reset refs/tags/v{number // COMMITS_PER_TAG}\nfrom :{number}\n\n"
        if number % (commits // BRANCHES) == 0:
            yield f"reset refs/heads/topic-{number}\nfrom :{number}\n\n"


def _write_manifests(projects: int) -> Iterator[str]:
    for number in range(projects):
        name, text = list(MANIFESTS.items())[number % len(MANIFESTS)]
        yield _write_file(f"services/part{number}/{name}", text.replace("{n}", str(number)))


def _write_file(path: str, text: str) -> str:
    return f"M 100644 inline {path}\ndata {len(text)}\n{text}\n"


COMMITS, FILES, PROJECTS = 50_000, 2_000, 20
"""The size of the large workspace."""

HOMES = 3
"""New homes whose first cycle is timed."""

ROUNDS = 40
"""Cycles after an edit, and cycles after a commit."""

BAR_SECONDS, FIRST_SECONDS = 0.5, 5.0
"""Maximum seconds of a later cycle at p95, and of the first one."""


def time_cycles(engine: Engine, change: Callable[[], object]) -> list[float]:
    """Seconds of whole cycles with a `change` before each. Half of the cards are decided in between, so that there is
    always something to weigh and to store."""
    seconds = []
    for _ in range(ROUNDS):
        change()
        seconds.append(time_call(engine.checks.run))
        for card in engine.cards.list_pending()[::2]:
            engine.cards.dismiss(card.id)
    return seconds


def test_a_cycle_over_three_workspaces_is_quick(tmp_path: Path):
    large = make_large_repository(tmp_path / "large", COMMITS, FILES, PROJECTS)
    small = [make_large_repository(tmp_path / name, 500, 100) for name in ("shop", "site")]
    paths = [str(repository.path) for repository in (large, *small)]
    first = []
    for number in range(HOMES):
        home = Home.locate(tmp_path / f"home{number}")
        with closing(open_idle_engine(home, *paths)) as engine:
            first.append(time_call(engine.checks.run))
            if number == HOMES - 1:
                edited = time_cycles(engine, lambda: large.write("src/pack1/module1.py", f"{time.monotonic_ns()}\n"))
                committed = time_cycles(engine, lambda: large.git("commit", "-q", "--allow-empty", "-m", "next"))
    walks = [time_call(lambda: Git(large.path).output("log", "--format=%H %ct %s")) for _ in range(5)]
    print(f"\n3 workspaces, one with {COMMITS:,} commits, {FILES:,} files and {PROJECTS} subprojects")
    baseline = "git log of everything"
    rows = {"first": first, "warm, after an edit": edited, "warm, after a commit": committed, baseline: walks}
    print_table("cycle", rows, baseline=baseline)
    assert max(first) < FIRST_SECONDS
    assert compute_p95(edited) < BAR_SECONDS
    assert compute_p95(committed) < BAR_SECONDS
