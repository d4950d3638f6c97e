"""What a release would hold: the commits since the last one, in the sections of a change log."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import FlowResult, Job, Place
from engine.execution.runners.flows.changelog_text import SECTIONS, classify
from engine.execution.runners.flows.common import Parameters, Revision, clean, count, home_git, resolve

SHOWN_ENTRIES = 8
"""So many entries of a section are told."""


class LookAtReleaseParameters(Parameters):
    """Since when."""

    since: Revision = Field(description="the tag of the last release")


class LookAtRelease:
    """What users of the project would notice since a tag. Nothing is run and nothing written."""

    name: ClassVar = "look_at_release"
    title: ClassVar = "Look at what a release would hold"
    place: ClassVar = Place.OPERATOR_TREE
    parameters: ClassVar[type[BaseModel]] = LookAtReleaseParameters

    def describe(self, parameters: LookAtReleaseParameters) -> str:
        return f"List what a release would hold since {clean(parameters.since)}"

    def run(self, job: Job) -> FlowResult:
        git, since = home_git(job), clean(job.parameters.since)
        span = f"{resolve(job, job.parameters.since)}..HEAD"
        subjects = [clean(line) for line in git.text("log", "--no-merges", "--format=%s", span).splitlines()]
        entries: dict[str, list[str]] = {section: [] for section in SECTIONS}
        for found in filter(None, map(classify, subjects)):
            entries[found[0]].append(found[1])
        for section, lines in entries.items():
            if lines:
                rest = len(lines) - SHOWN_ENTRIES
                more = [f"- and {rest} more"] if rest > 0 else []
                job.say("\n".join([f"{section}:", *(f"- {line}" for line in lines[:SHOWN_ENTRIES]), *more]))
        told = sum(map(len, entries.values()))
        inside = ", ".join(f"{len(lines)} {section.lower()}" for section, lines in entries.items() if lines)
        summary = f"{count(len(subjects), 'commit')} since {since}, {told} that users notice"
        facts = {"since": job.parameters.since, "commits": len(subjects), "entries": entries}
        return FlowResult(f"{summary}: {inside}" if told else summary, facts=facts)
