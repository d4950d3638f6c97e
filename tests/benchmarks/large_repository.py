"""Makes a repository with a long history by one `git fast-import`, for the benchmark of the cycle."""

import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from tests.conftest import Repository
from tests.prediction.sensing import NOW

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
