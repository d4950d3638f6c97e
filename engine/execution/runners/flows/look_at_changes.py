"""What is in the changes that no commit has, and how they could be committed."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar, Final

from pydantic import BaseModel

from engine.execution.runners.flow import FlowResult, Job, Place
from engine.execution.runners.flows.common import Parameters, clean, count, listed, resolve
from engine.execution.runners.flows.review_unpushed import in_words
from engine.git.state import FileState
from engine.git.status import is_byproduct, parts, read_status
from engine.git.unpushed import read_uncommitted
from engine.plain_files import read_plain

LARGEST: Final = 1_000_000
MOST_GROUPS: Final = 8

_TEST: Final = re.compile(r"^(?:test[_-])?(.+?)(?:[._-](?:test|tests|spec))?$", re.I)
_TEST_NAME: Final = re.compile(r"^test[_-]|[._-](?:test|tests|spec)$|^.+Test$|^Test[A-Z]", re.I)
_TEST_FOLDER: Final = re.compile(r"(?:^|/)(?:tests?|spec|__tests__)/")
_PROSE: Final = re.compile(r"\.(?:md|rst|adoc|txt)$|(?:^|/)docs?/", re.I)
_SETTINGS: Final = re.compile(
    r"\.(?:toml|ya?ml|cfg|ini|lock|mod|sum|gradle|properties)$|(?:^|/)(?:package(?:-lock)?\.json|\.[^/]+)$"
)
_SOURCE: Final = re.compile(
    r"\.(?:py|js|jsx|ts|tsx|mjs|cjs|go|rs|java|kt|rb|php|ex|exs|cs|c|cc|cpp|h|hpp|swift|scala|vue|svelte)$"
)


@dataclass(frozen=True, slots=True)
class Change:
    """One file. `added` and `removed` count lines, both 0 for what is not text."""

    file: FileState
    added: int
    removed: int


class LookAtChangesParameters(Parameters):
    """None: it is about everything that is not committed."""


class LookAtChanges:
    """Reads the differences to HEAD; nothing is run, staged or written."""

    name: ClassVar = "look_at_changes"
    title: ClassVar = "Look at uncommitted changes"
    place: ClassVar = Place.OPERATOR_TREE
    parameters: ClassVar[type[BaseModel]] = LookAtChangesParameters

    def describe(self, parameters: LookAtChangesParameters) -> str:
        return "Look at what is not committed yet and suggest commits"

    def run(self, job: Job) -> FlowResult:
        head = resolve(job, "HEAD")
        status = read_status(job.git)
        changes = _changes(job, head, status.files)
        if not changes:
            return FlowResult("Nothing to commit: everything is committed")
        groups = grouped(changes)
        for number, (topic, members) in enumerate(list(groups.items())[:MOST_GROUPS], 1):
            lines = f"+{sum(one.added for one in members)} -{sum(one.removed for one in members)}"
            job.say(f"{number}. {clean(topic)}: {count(len(members), 'file')}, {lines}")
            for one in members:
                job.say(f"   {_letter(one.file)} {clean(one.file.path)}  +{one.added} -{one.removed}")
            names = " ".join(shlex.quote(clean(one.file.path)) for one in members[:20])
            job.say(f"   git add -- {names} && git commit")
        if len(groups) > MOST_GROUPS:
            job.say(f"and {len(groups) - MOST_GROUPS} more")
        untested = self._untested(job, changes)
        if untested:
            job.say(f"No test file found for: {listed(untested)}")
        risks = read_uncommitted(job.git, head, status.files)
        for risk in risks:
            job.say(f"Do not commit: {in_words(risk)}")
        told = [f"{count(len(changes), 'file')} not committed"]
        told.append(f"could be {count(len(groups), 'commit')}: {listed(groups, 3)}")
        if untested:
            told.append(f"no tests for {listed(untested, 2)}")
        if risks:
            told.append(f"do not commit {clean(risks[0].path)}: {risks[0].kind}")
        facts = {
            "groups": {clean(topic): [clean(one.file.path) for one in members] for topic, members in groups.items()},
            "untested": [clean(path) for path in untested],
            "next": "secret" if any(risk.secret for risk in risks) else "run_tests",
        }
        return FlowResult("; ".join(told), sound=not risks, facts=facts)

    def _untested(self, job: Job, changes: Iterable[Change]) -> list[str]:
        """Changed source files after which no test file is named."""
        sources = [one.file.path for one in changes if _is_source(one.file.path) and not one.file.deleted]
        if not sources:
            return []
        tracked = parts(job.git.output("ls-files", "-z"))
        new = (one.file.path for one in changes if one.file.untracked)
        tested = {stem(path) for path in (*tracked, *new) if is_test(path)}
        return [path for path in sources if stem(path) not in tested]


def _changes(job: Job, head: str, files: Iterable[FileState]) -> list[Change]:
    out = job.git.output("diff-index", "--numstat", "-z", "--no-renames", head)
    numbers = {}
    for field in parts(out):
        added, removed, path = field.split("\t", 2)
        numbers[path] = (int(added), int(removed)) if added != "-" else (0, 0)
    changes = []
    for file in files:
        if file.untracked and is_byproduct(file.path):
            continue
        changes.append(
            Change(file, *(numbers.get(file.path, (0, 0)) if not file.untracked else (_lines(job, file), 0)))
        )
    return changes


def _lines(job: Job, file: FileState) -> int:
    try:
        data = read_plain(job.folder / file.path, LARGEST, follow=False)
    except (OSError, ValueError):
        return 0  # a folder, a pipe, or too large: no lines to count
    return 0 if b"\0" in data else len(data.splitlines())


def grouped(changes: Iterable[Change]) -> Mapping[str, list[Change]]:
    """Topics, the largest first: what a folder holds, with the tests of its files; manuals and settings apart."""
    every = list(changes)
    home = {stem(one.file.path): _folder(one.file.path) for one in every if _is_source(one.file.path)}
    groups: dict[str, list[Change]] = defaultdict(list)
    for one in every:
        path = one.file.path
        if is_test(path):
            topic = home.get(stem(path)) or "tests"
        elif _is_source(path):
            topic = _folder(path)
        elif _PROSE.search(path):
            topic = "documentation"
        else:
            topic = "settings" if _SETTINGS.search(path) else _folder(path)
        groups[topic].append(one)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


def is_test(path: str) -> bool:
    """Whether a file holds tests, by its name or its folder."""
    return bool(_SOURCE.search(path)) and bool(_TEST_NAME.search(PurePosixPath(path).stem) or _TEST_FOLDER.search(path))


def stem(path: str) -> str:
    """What a file is about: `cart` for `cart.py`, `tests/test_cart.py` and `cart.spec.ts`."""
    name = PurePosixPath(path).stem.lower()
    found = _TEST.match(name)
    return (found[1] if found else name).removesuffix("test")


def _is_source(path: str) -> bool:
    return bool(_SOURCE.search(path)) and not is_test(path)


def _folder(path: str) -> str:
    folders = PurePosixPath(path).parts[:-1]
    return "/".join(folders[:3]) if folders else PurePosixPath(path).stem


def _letter(file: FileState) -> str:
    return "?" if file.untracked else "D" if file.deleted else "M"
