"""The flow that reviews the commits that you have not pushed, and what is staged. It shows secrets, large files and
leftovers, and `cleanup_steps` has the commands that take out what must not be pushed."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from engine.execution.runners import Facts, Place
from engine.execution.runners.flow import Flow, FlowResult, Job, Revision
from engine.execution.runners.flows.cleanup_steps import describe_cleanup
from engine.execution.runners.flows.git_steps import resolve_commit
from engine.git.leftovers import count_kinds
from engine.git.state import read_status
from engine.git.unpushed import (
    MAX_COMMITS,
    NOTHING_UNPUSHED,
    CommitSpan,
    UnpushedProblem,
    UnpushedWork,
    mark_edited_out,
    read_commits,
    read_uncommitted,
)
from engine.wording import capitalised, count

MAX_FINDINGS = 200
"""Maximum number of findings in the transcript and in the facts of a result."""


class ReviewUnpushed(Flow):
    """Reads every added line of every unpushed commit; secrets count even when a later commit removed them."""

    name = "review_unpushed"
    label = "Review unpushed commits"
    work = "review"
    place = Place.OPERATOR_TREE
    upstream: Revision | None = Field(
        default=None,
        description="the branch to compare with, for example origin/main; without it, all remote branches",
    )
    newest: int = Field(default=MAX_COMMITS, ge=1, le=MAX_COMMITS, description="the most commits to review")

    def describe(self) -> str:
        upstream = self.upstream or "no remote branch"
        missing = "does not have yet" if self.upstream else "has yet"
        return f"Review the commits that {upstream} {missing} for leftovers, secrets and large files"

    def run(self, job: Job) -> FlowResult:
        status = read_status(job.git)
        span, unpushed = None, NOTHING_UNPUSHED
        if status.head:
            span = CommitSpan(status.head, resolve_commit(job, self.upstream) if self.upstream else "", self.newest)
            unpushed = mark_edited_out(job.git, read_commits(job.git, span, leftovers=True), status.files)
        uncommitted = read_uncommitted(job.git, status.head, status.files)
        if span is None and not uncommitted:
            return FlowResult("Nothing to review: there is no commit yet, and nothing is staged")
        if not unpushed.commits and not uncommitted:
            return FlowResult(f"Nothing to review: {self.upstream or 'another branch'} has every commit")
        job.say(count(unpushed.commits, "unpushed commit"))
        if unpushed.unread:
            job.say(f"The lines of {count(unpushed.unread, 'commit')} were not checked for secrets: too many at once")
        findings = [*unpushed.committed, *uncommitted]
        job.say_list([finding.description_with_commit for finding in findings], MAX_FINDINGS)
        steps = describe_cleanup(job.git, list(filter(_is_serious, findings)), status, span)
        for line in steps:
            job.say(line)
        result = _make_result(unpushed, findings)
        return replace(result, facts={**result.facts, "head": status.head, "state": status.digest, "steps": steps})


def _make_result(unpushed: UnpushedWork, findings: list[UnpushedProblem]) -> FlowResult:
    finding_facts = [
        {
            "kind": finding.kind,
            "path": finding.path,
            "line": finding.line,
            "commit": finding.sha,
            "gone": finding.is_in_history_only,
        }
        for finding in findings[:MAX_FINDINGS]
    ]
    facts: Facts = {"findings": finding_facts}
    commits = count(unpushed.commits, "unpushed commit")
    if not findings:
        unread = f", but {unpushed.unread} of them could not be read" if unpushed.unread else ""
        return FlowResult(f"{commits}, nothing that should not be pushed{unread}", facts=facts)
    serious = sorted(filter(_is_serious, findings), key=lambda finding: not finding.is_secret)
    parts = list[str]()
    if serious:
        facts["next"] = "secret" if serious[0].is_secret else "large_file"
        remainder = f", and {count(len(serious) - 1, 'other finding')}" if len(serious) > 1 else ""
        step = "push" if any(finding.sha for finding in serious) else "commit"
        parts.append(f"do not {step}: {serious[0].description}{remainder}")
    if leftovers := [finding.kind for finding in findings if not _is_serious(finding)]:
        parts.append(f"{count_kinds(leftovers)} to look at")
    where = f" (in {commits})" if unpushed.commits else ""
    return FlowResult(capitalised("; ".join(parts)) + where, sound=not serious, facts=facts)


def _is_serious(finding: UnpushedProblem) -> bool:
    """Whether a finding must not be pushed, and not only be looked at."""
    return finding.is_secret or not finding.line
