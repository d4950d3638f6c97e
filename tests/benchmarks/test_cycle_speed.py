"""How long a cycle over three workspaces takes, one of them with 50,000 commits and 20 subprojects.

    pytest tests/benchmarks/test_cycle_speed.py -m benchmark -s

Bars: the first cycle of a new home under 5 s, later ones under 500 ms at p95, after an edit and after a commit. It is
`engine.card_cycle.run_cycle` of a real engine that serves all three: sense, propose, weigh, ask the rails, store. The
baseline is one full `git log` walk.
"""

from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path

from engine import Engine, Home, open_engine
from engine.git import Git
from tests.benchmarks.measuring import p95, print_table, time_call
from tests.conftest import Repository
from tests.prediction.sensing import NOW

COMMITS, FILES, PROJECTS = 50_000, 2_000, 20
"""The size of the large workspace."""

ROUNDS = 40
"""Cycles after an edit, and cycles after a commit."""

BAR_SECONDS, FIRST_SECONDS = 0.5, 5.0
"""Maximum seconds of a later cycle at p95, and of the first one."""

MANIFESTS = {
    "pyproject.toml": '[project]\nname = "part{n}"\nversion = "1"\ndependencies = ["pytest"]\n',
    "package.json": '{"name": "part{n}", "scripts": {"test": "node --test"}}\n',
    "go.mod": "module example.org/part{n}\n\ngo 1.22\n",
    "Cargo.toml": '[package]\nname = "part{n}"\nversion = "0.1.0"\nedition = "2021"\n',
}


def make_large_repository(path: Path, commits: int, files: int, projects: int = 0) -> Repository:
    """`commits` commits over `files` files, with a tag every 5,000, 50 branches and `projects` subprojects of 4 kinds,
    made by one fast-import; all but the newest 50 commits are pushed."""
    repository = Repository(path)
    start = int((NOW - timedelta(days=2000)).timestamp())
    stream: list[str] = []
    for number in range(1, commits + 1):
        text = f"value = {number}\n"
        stream.append(
            f"commit refs/heads/main\nmark :{number}\ncommitter A <a@b.org> {start + number * 3400} +0000\n"
            f"data {len(f'c{number}')}\nc{number}\n"
            f"M 100644 inline src/pack{number % 40}/module{number % files}.py\ndata {len(text)}\n{text}\n"
        )
        for part in range(projects if number == 1 else 0):
            name, text = list(MANIFESTS.items())[part % len(MANIFESTS)]
            text = text.replace("{n}", str(part))
            stream.append(f"M 100644 inline services/part{part}/{name}\ndata {len(text)}\n{text}\n")
        if number % 5_000 == 0:
            stream.append(f"reset refs/tags/v{number // 5_000}\nfrom :{number}\n\n")
        if number % (commits // 50) == 0:
            stream.append(f"reset refs/heads/topic-{number}\nfrom :{number}\n\n")
    subprocess.run(
        ["git", "fast-import", "--quiet"], cwd=path, input="".join(stream).encode(), check=True, capture_output=True
    )
    repository.git("reset", "-q", "--hard", "main")
    repository.git("remote", "add", "origin", "https://git.invalid/large.git")
    repository.git("update-ref", "refs/remotes/origin/main", "main~50")
    repository.git("branch", "-q", "--set-upstream-to=origin/main")
    return repository


def test_cycle_over_three_workspaces(tmp_path: Path) -> None:
    large = make_large_repository(tmp_path / "large", COMMITS, FILES, PROJECTS)
    small = [make_large_repository(tmp_path / name, 500, 100) for name in ("shop", "site")]
    paths = [str(repository.path) for repository in (large, *small)]
    first = []
    for number in range(3):
        engine = open_engine(Home.locate(tmp_path / f"home{number}"), workspaces=paths, start_schedule=False)
        try:
            first.append(time_call(engine.card_cycle.run_cycle))
            if number == 2:
                edited, committed = time_cycles(engine, large)
        finally:
            engine.close()
    walks = [time_call(lambda: Git(large.path).output("log", "--format=%H %ct %s")) for _ in range(5)]
    print(f"\n3 workspaces, one with {COMMITS:,} commits, {FILES:,} files and {PROJECTS} subprojects")
    baseline = "git log of everything"
    rows = {"first": first, "warm, after an edit": edited, "warm, after a commit": committed, baseline: walks}
    print_table("cycle", rows, baseline=baseline)
    assert max(first) < FIRST_SECONDS
    assert p95(edited) < BAR_SECONDS
    assert p95(committed) < BAR_SECONDS


def time_cycles(engine: Engine, large: Repository) -> tuple[list[float], list[float]]:
    """Seconds of whole cycles with an edit before each, and with a commit before each. Half of the cards are decided
    in between, so that there is always something to weigh and to store."""

    def cycle() -> float:
        seconds = time_call(engine.card_cycle.run_cycle)
        for card in engine.cards.pending()[::2]:
            engine.cards.dismiss(card.id)
        return seconds

    edited, committed = [], []
    for number in range(ROUNDS):
        large.write("src/pack1/module1.py", f"value = {number}\n")
        edited.append(cycle())
    for _ in range(ROUNDS):
        large.git("commit", "-q", "--allow-empty", "-m", "next")
        committed.append(cycle())
    return edited, committed
