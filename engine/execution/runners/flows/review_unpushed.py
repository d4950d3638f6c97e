"""Look through what is about to be pushed for what should not be."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import FlowResult, Job, Place
from engine.execution.runners.flows.common import Line, Parameters, Revision, clean, count, resolve
from engine.git.leftovers import SECRET
from engine.git.status import read_status
from engine.git.unpushed import MOST_COMMITS, Found, Span, Unpushed, read_commits, read_uncommitted

SHOWN = 200


class ReviewUnpushedParameters(Parameters):
    """Against what."""

    upstream: Revision | None = Field(
        default=None,
        description="the branch to compare with, for example origin/main; without it, all remote branches",
    )
    newest: int = Field(default=MOST_COMMITS, ge=1, le=MOST_COMMITS, description="the most commits to review")
    broken: list[Line] = Field(default=[], max_length=20, description="known problems of the branch, one line each")


class ReviewUnpushed:
    """Reads every added line of every unpushed commit; secrets count even when a later commit removed them."""

    name: ClassVar = "review_unpushed"
    title: ClassVar = "Review unpushed commits"
    place: ClassVar = Place.OPERATOR_TREE
    parameters: ClassVar[type[BaseModel]] = ReviewUnpushedParameters

    def describe(self, parameters: ReviewUnpushedParameters) -> str:
        whom = clean(parameters.upstream) if parameters.upstream else "no remote branch"
        missing = "does not have yet" if parameters.upstream else "has yet"
        return f"Review the commits that {whom} {missing} for leftovers, secrets and large files"

    def run(self, job: Job) -> FlowResult:
        asked: ReviewUnpushedParameters = job.parameters
        span = Span(resolve(job, "HEAD"), resolve(job, asked.upstream) if asked.upstream else "", asked.newest)
        known = read_commits(job.git, span, leftovers=True)
        uncommitted = read_uncommitted(job.git, span.head, read_status(job.git).files)
        if not known.commits and not uncommitted:
            whom = clean(asked.upstream) if asked.upstream else "another branch"
            return FlowResult(f"Nothing to review: {whom} has every commit")
        job.say(count(known.commits, "unpushed commit"))
        if known.unread:
            job.say(f"The lines of {count(known.unread, 'commit')} were not checked for secrets: too many at once")
        found = [*known.found, *uncommitted]
        for one in found[:SHOWN]:
            job.say(in_words(one))
        if len(found) > SHOWN:
            job.say(f"and {len(found) - SHOWN} more")
        for line in [*asked.broken, *next_steps(found, span.head, _begin(job, span, found))]:
            job.say(line)
        return _told(known, found, asked.broken)


def in_words(one: Found) -> str:
    """One line on what was found, and where."""
    where = f"in {one.sha[:10]}" if one.sha else "not committed yet"
    gone = "  (removed again by a later commit, but still in the history)" if one.gone else ""
    return f"{place(one)}  {one.kind}{size_of(one)}  {where}{gone}"


def place(one: Found) -> str:
    """`config.py:12`, `data/dump.bin`."""
    return f"{clean(one.path)}:{one.line}" if one.line else clean(one.path)


def size_of(one: Found) -> str:
    """`, 60 MB`, "" where the size does not matter."""
    return f", {one.size / 1_000_000:.{0 if one.size >= 10_000_000 else 1}f} MB" if one.size else ""


def next_steps(found: list[Found], head: str, begin: str) -> list[str]:
    """What to do: a later commit takes nothing out of the history, and of a secret a copy may be about. `begin`: what
    `git rebase -i` starts from."""
    bad = [one for one in found if one.secret or not one.line]
    steps = [
        f"Next: remove it from git but keep the file: git rm -r --cached {shlex.quote(clean(path))}"
        for path in dict.fromkeys(one.path for one in bad if not one.line and not one.gone)
    ]
    if any(one.line and not one.gone for one in bad):
        steps.append("Next: move the secret out of the file, for example into an environment variable")
    commits = list(dict.fromkeys(one.sha for one in bad if one.sha))
    if commits == [head]:
        steps.append("Then, before you push: git commit --amend")
    elif commits:
        names = ", ".join(sha[:10] for sha in commits[:5])
        steps.append(f"Then, before you push, edit {names} to remove it from the history: git rebase -i {begin}")
    if any(one.secret and one.sha for one in bad):
        steps.append("If anybody else may have seen a key, revoke it and create a new one.")
    return steps


def _begin(job: Job, span: Span, found: list[Found]) -> str:
    """What a rebase that mends all of them starts from, as git takes it."""
    if job.parameters.upstream:
        return shlex.quote(clean(job.parameters.upstream))
    touched = {one.sha for one in found}
    lines = job.git.text("rev-list", "--topo-order", "--parents", *span.arguments).splitlines()
    oldest = next((line.split() for line in reversed(lines) if line.split()[0] in touched), [])
    return f"{oldest[0][:10]}^" if len(oldest) > 1 else "--root"


def _told(known: Unpushed, found: list[Found], broken: list[str]) -> FlowResult:
    facts = {
        "commits": known.commits,
        "findings": [
            {"kind": one.kind, "path": clean(one.path), "line": one.line, "commit": one.sha, "gone": one.gone}
            | ({"size": one.size} if one.size else {})
            for one in found[:SHOWN]
        ],
    }
    where = f" (in {count(known.commits, 'unpushed commit')})" if known.commits else ""
    if not found and not broken:
        unread = f", but {known.unread} of them could not be read" if known.unread else ""
        return FlowResult(
            f"{count(known.commits, 'unpushed commit')}, nothing that should not be pushed{unread}", facts=facts
        )
    secrets = [one for one in found if one.secret]
    files = [one for one in found if not one.secret and not one.line]
    told = []
    if secrets:
        told.append(f"do not push: {count(len(secrets), SECRET)}, the first in {place(secrets[0])}")
    if files:
        begin = "" if secrets else "do not push: "
        told.append(
            f"{begin}{place(files[0])} is a {files[0].kind}{size_of(files[0])}"
            if files[0].size
            else f"{begin}{place(files[0])} holds {files[0].kind}"
        )
        told[-1] += f", and {count(len(files) - 1, 'other file')}" if len(files) > 1 else ""
    told += broken
    kinds = Counter(one.kind for one in found if one not in secrets and one not in files)
    if kinds:
        told.append(f"{', '.join(f'{number} {kind}' for kind, number in kinds.most_common())} to look at")
    words = "; ".join(told)
    return FlowResult(
        f"{words[:1].upper()}{words[1:]}{where}", sound=not secrets and not files and not broken, facts=facts
    )
