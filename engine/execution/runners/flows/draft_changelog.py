"""Draft the change log of the commits since a release."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, Field

from engine.execution.runners.flow import CannotRun, FlowResult, FlowUnable, Job, Place
from engine.execution.runners.flows.changelog_text import SECTIONS, classify, extended, mentioned
from engine.execution.runners.flows.common import Parameters, clean, count, plain, resolve
from engine.execution.runners.flows.lint import is_own_file
from engine.plain_files import read_plain

FILES = ("CHANGELOG.md", "CHANGELOG", "CHANGES.md", "HISTORY.md", "NEWS.md", "CHANGES.rst", "CHANGELOG.rst",
         "HISTORY.rst", "CHANGES", "docs/CHANGELOG.md", "docs/changelog.md", "changelog.md")  # fmt: skip
MAX_COMMITS = 500
LARGEST = 20_000_000
"""Bytes of a change log."""


def changelog_of(folder: Path) -> str:
    """The file in which a project keeps its change log, "" when it keeps none."""
    return next((name for name in FILES if os.path.lexists(folder / name)), "")


def _from(text: str) -> str:
    return plain(text) if text else ""


class DraftChangelogParameters(Parameters):
    """Which commits, and whether a project that keeps no change log is to get one."""

    since: Annotated[str, AfterValidator(_from)] = Field(default="", description='a tag or commit; "" = the last tag')
    create: bool = Field(default=False, description="create CHANGELOG.md if the project has no change log")


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Commits by what becomes of them; subjects are sanitised."""

    entries: dict[str, list[str]]
    known: list[str]
    silent: list[str]

    @property
    def number(self) -> int:
        return sum(map(len, self.entries.values()))


class DraftChangelog:
    """Groups the commits and writes them into the unreleased section, under the file's own headings."""

    name: ClassVar = "draft_changelog"
    title: ClassVar = "Draft the change log"
    place: ClassVar = Place.CHANGE_SET
    parameters: ClassVar[type[BaseModel]] = DraftChangelogParameters

    def describe(self, parameters: DraftChangelogParameters) -> str:
        since = clean(parameters.since) or "the last tag"
        return f"Draft the change log of the commits since {since}"

    def run(self, job: Job) -> FlowResult:
        commits = self._commits(job)
        name = changelog_of(job.folder)
        if not name and not job.parameters.create:
            raise CannotRun("this project has no change log", "create one with create=true")
        name = name or "CHANGELOG.md"
        file = job.folder / name
        if (file.exists() or file.is_symlink()) and not is_own_file(job.folder, name):
            raise FlowUnable(f"{name} is not a regular file of this repository", "replace it with a regular file")
        try:
            text = read_plain(file, LARGEST).decode() if file.exists() else ""
        except UnicodeDecodeError as error:
            raise FlowUnable(
                f"{name} is not UTF-8 (byte {error.start})", "convert it, for example with iconv"
            ) from error
        except ValueError as error:
            raise FlowUnable(f"{name} {error}", "make it smaller") from error
        sorted_ = _sort(commits, text)
        facts: dict[str, object] = {
            "file": name,
            "commits": len(commits),
            "entries": sorted_.entries,
            "left_out": sorted_.silent,
            "already_there": sorted_.known,
        }
        job.say(f"{count(len(commits), 'commit')}, {name} {'exists' if text else 'is new'}")
        for section in SECTIONS:
            for entry in sorted_.entries.get(section, ()):
                job.say(f"{section:<10}  {entry}")
        for words, subjects in (("left out", sorted_.silent), ("already there", sorted_.known)):
            if subjects:
                job.say(f"{words}: {'; '.join(subjects[:10])}" + (" …" if len(subjects) > 10 else ""))
        if not sorted_.number:
            return FlowResult(f"Nothing to add to {name}: {_why(sorted_, commits)}", facts=facts)
        file.write_bytes(extended(text, sorted_.entries).encode())
        return FlowResult(f"{name}: {count(sorted_.number, 'entry', 'entries')} under Unreleased", facts=facts)

    def _commits(self, job: Job) -> list[tuple[str, str]]:
        """Id and subject of each commit, oldest first, merges left out."""
        until = resolve(job, "HEAD")
        since = resolve(job, job.parameters.since) if job.parameters.since else self._tag_before(job, until)
        span = f"{since}..{until}" if since else until
        out = job.git.text(
            "log", "--no-merges", f"--max-count={MAX_COMMITS}", "--reverse", "--format=%H%x00%s", span, "--"
        )
        pairs = [line.partition("\0") for line in out.split("\n") if line]
        return [(sha, clean(subject)) for sha, _, subject in pairs]

    def _tag_before(self, job: Job, until: str) -> str:
        """The newest tag in the history of `until`; "" when there is none: from the beginning."""
        done = job.git.run("describe", "--tags", "--abbrev=0", until, allowed=(0, 128))
        return done.stdout.decode(errors="surrogateescape").strip() if done.returncode == 0 else ""


def _sort(commits: list[tuple[str, str]], text: str) -> _Sorted:
    entries: dict[str, list[str]] = {}
    known: list[str] = []
    silent: list[str] = []
    for sha, subject in commits:
        found = classify(subject)
        if found is None:
            silent.append(subject)
        elif mentioned(text, sha, found[1]) or found[1] in entries.get(found[0], ()):
            known.append(subject)
        else:
            entries.setdefault(found[0], []).append(found[1])
    return _Sorted({section: entries[section] for section in SECTIONS if section in entries}, known, silent)


def _why(sorted_: _Sorted, commits: list[tuple[str, str]]) -> str:
    if not commits:
        return "no commits"
    if sorted_.known:
        return f"{count(len(sorted_.known), 'commit')} already mentioned"
    return "no commits that users would notice"
