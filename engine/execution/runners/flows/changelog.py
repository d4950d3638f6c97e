"""Flows about the change log: one drafts it, in the file's own style, and one lists what a release would contain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from engine.execution.runners.flow import (
    CannotRun,
    Facts,
    Flow,
    FlowError,
    FlowResult,
    Job,
    Place,
    Revision,
    check_argument,
)
from engine.execution.runners.flows.changelog_text import SECTIONS, add_entries, classify, is_mentioned
from engine.execution.runners.flows.git_steps import operator_git, resolve_commit
from engine.execution.runners.toolchains.projects import changelog_of
from engine.model.text import count, join_names, one_line

# -- Draft the change log of the commits since a release -----------------------------------------------------------

MAX_COMMITS = 500

MAX_CHANGELOG_BYTES = 20_000_000


def _check_since(text: str) -> str:
    return check_argument(text) if text else ""


class DraftChangelog(Flow):
    """Groups the commits and writes them into the unreleased section, under the file's own headings."""

    name = "draft_changelog"
    label = "Draft the change log"
    place = Place.CHANGE_SET
    since: Annotated[str, AfterValidator(_check_since)] = Field(
        default="", description='a tag or commit; "" = the last tag'
    )
    create: bool = Field(default=False, description="create CHANGELOG.md if the project has no change log")

    def describe(self) -> str:
        since = self.since or "the last tag"
        return f"Draft the change log of the commits since {since}"

    def run(self, job: Job) -> FlowResult:
        commits = self._read_commits(job)
        name = changelog_of(job.folder)
        if not name and not self.create:
            raise CannotRun("this project has no change log", "create one with create=true")
        name = name or "CHANGELOG.md"
        try:
            text = job.read_document(name, MAX_CHANGELOG_BYTES).decode()
        except UnicodeDecodeError as error:
            raise FlowError(
                f"{name} is not UTF-8 (byte {error.start})", "convert it, for example with iconv"
            ) from error
        entries, left_out, mentioned = _sort_commits(commits, text)
        facts: Facts = {
            "file": name,
            "commits": len(commits),
            "entries": entries,
            "left_out": left_out,
            "already_there": mentioned,
        }
        job.say(f"{count(len(commits), 'commit')}, {name} {'exists' if text else 'is new'}")
        for section, lines in entries.items():
            for entry in lines:
                job.say(f"{section:<10}  {entry}")
        for words, subjects in (("left out", left_out), ("already there", mentioned)):
            if subjects:
                job.say(f"{words}: {join_names(subjects, 10)}")
        if entries:
            (job.folder / name).write_bytes(add_entries(text, entries).encode())
            number = sum(map(len, entries.values()))
            return FlowResult(f"{name}: {count(number, 'entry', 'entries')} under Unreleased", facts=facts)
        why = f"{count(len(mentioned), 'commit')} already mentioned" if mentioned else "no commits"
        if left_out and not mentioned:
            why = "no commits that users would notice"
        return FlowResult(f"Nothing to add to {name}: {why}", facts=facts)

    def _read_commits(self, job: Job) -> list[tuple[str, str]]:
        """(id, subject) of each commit, oldest first, without merges."""
        until = resolve_commit(job, "HEAD")
        newest_tag = ("describe", "--tags", "--abbrev=0", until)
        since = resolve_commit(job, self.since) if self.since else job.git.text(*newest_tag, allowed=(0, 128))
        span = f"{since}..{until}" if since else until
        out = job.git.text(
            "log", "--no-merges", f"--max-count={MAX_COMMITS}", "--reverse", "--format=%H%x00%s", span, "--"
        )
        pairs = [line.partition("\0") for line in out.split("\n") if line]
        return [(sha, one_line(subject)) for sha, _, subject in pairs]


def _sort_commits(commits: Sequence[tuple[str, str]], text: str) -> tuple[dict[str, list[str]], list[str], list[str]]:
    """(new entries by section, subjects that no user would notice, subjects that `text` mentions already)."""
    entries: dict[str, list[str]] = {section: [] for section in SECTIONS}
    left_out: list[str] = []
    mentioned: list[str] = []
    for sha, subject in commits:
        section, entry = classify(subject) or ("", "")
        if not section:
            left_out.append(subject)
        elif is_mentioned(text, sha, entry) or entry in entries[section]:
            mentioned.append(subject)
        else:
            entries[section].append(entry)
    return {section: lines for section, lines in entries.items() if lines}, left_out, mentioned


# -- List the contents of a release: the commits since the last one, in the sections of a change log ----------------

MAX_SHOWN_ENTRIES = 8
"""Maximum number of entries of a section in the transcript."""


class LookAtRelease(Flow):
    """Lists the changes since a tag that users of the project would notice."""

    name = "look_at_release"
    label = "Look at what a release would hold"
    place = Place.OPERATOR_TREE
    since: Revision = Field(description="the tag of the last release")

    def describe(self) -> str:
        return f"List what a release would hold since {self.since}"

    def run(self, job: Job) -> FlowResult:
        git, since = operator_git(job), self.since
        span = f"{resolve_commit(job, self.since)}..HEAD"
        subjects = git.text("log", "--no-merges", "--format=%s", span).splitlines()
        entries: dict[str, list[str]] = {section: [] for section in SECTIONS}
        for entry in filter(None, map(classify, subjects)):
            entries[entry[0]].append(entry[1])
        for section, lines in entries.items():
            if lines:
                job.say(f"{section}:")
                job.say_list(lines, MAX_SHOWN_ENTRIES, indent="- ")
        noticed = sum(map(len, entries.values()))
        sections = ", ".join(f"{len(lines)} {section.lower()}" for section, lines in entries.items() if lines)
        summary = f"{count(len(subjects), 'commit')} since {since}, {noticed} that users notice"
        facts = {"since": self.since, "commits": len(subjects), "entries": entries}
        return FlowResult(f"{summary}: {sections}" if noticed else summary, facts=facts)
