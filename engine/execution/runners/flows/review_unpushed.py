"""Look through the commits that are about to be pushed for what should not be."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import FlowResult, Job, Place
from engine.execution.runners.flows.common import Line, Parameters, Revision, clean, count, resolve
from engine.inspection.leftovers import Leftover, look, look_at_name
from engine.inspection.patch import unquoted

SECRET = "likely secret"
LARGE = 1_000_000
"""Files over so many bytes are told."""
MAX_COMMITS = 300
SHOWN = 200
_HUNK = re.compile(r"^@@ -\S+ \+(\d+)")


class ReviewUnpushedParameters(Parameters):
    """Against what."""

    upstream: Revision = Field(description="what the other side has, for instance origin/main")
    broken: list[Line] = Field(default=[], max_length=20, description="what is known to be broken there, one line each")


@dataclass(frozen=True, slots=True)
class Added:
    """One line that a commit adds. `line` counts from 1 in that commit's file."""

    sha: str
    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    """One thing to mend before the push, without the text that it was found in."""

    kind: str
    path: str
    line: int
    sha: str
    gone: bool


class ReviewUnpushed:
    """Reads every added line of every unpushed commit; secrets count even when a later commit removed them."""

    name: ClassVar = "review_unpushed"
    title: ClassVar = "Review unpushed commits"
    place: ClassVar = Place.OPERATOR_TREE
    parameters: ClassVar[type[BaseModel]] = ReviewUnpushedParameters

    def describe(self, parameters: ReviewUnpushedParameters) -> str:
        return f"Review the commits that {clean(parameters.upstream)} does not have yet for leftovers and secrets"

    def run(self, job: Job) -> FlowResult:
        upstream, head = resolve(job, job.parameters.upstream), resolve(job, "HEAD")
        number = int(job.git.text("rev-list", "--count", f"{upstream}..{head}"))
        if not number:
            return FlowResult(f"Nothing to review: {clean(job.parameters.upstream)} has every commit")
        job.say(
            f"{count(number, 'unpushed commit')}"
            + (f", the newest {MAX_COMMITS} of them" if number > MAX_COMMITS else "")
        )
        patch = job.git.output(
            "log", "--patch", "--unified=0", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames",
            "--no-prefix", "--diff-merges=off", f"--max-count={MAX_COMMITS}", "--format=%x01%H", f"{upstream}..{head}",
        )  # fmt: skip
        found = _judge(job, head, patch.decode(errors="surrogateescape"))
        found += _large(job, upstream, head)
        for one in found[:SHOWN]:
            gone = "  (removed again by a later commit, but still in the history)" if one.gone else ""
            place = f"{clean(one.path)}:{one.line}" if one.line else clean(one.path)
            job.say(f"{place}  {one.kind}  in {one.sha[:10]}{gone}")
        if len(found) > SHOWN:
            job.say(f"and {len(found) - SHOWN} more")
        for line in job.parameters.broken:
            job.say(line)
        for line in next_steps(found, clean(job.parameters.upstream)):
            job.say(line)
        return _told(found, job.parameters.broken, number)


def _judge(job: Job, head: str, patch: str) -> list[Found]:
    """Findings in the order of the log; what a later commit took out again is dropped unless it is a secret."""
    texts: dict[str, list[str]] = {}
    found: dict[tuple[str, str, int], Found] = {}
    named: set[str] = set()
    for added in added_lines(patch):
        hits = look(added.path, added.text)
        if added.path not in named:
            named.add(added.path)
            hits = [*look_at_name(added.path), *hits]
        for hit in hits:
            if added.path not in texts:
                texts[added.path] = _lines(job, head, added.path)
            one = _placed(hit, added, texts[added.path])
            if one is not None:
                found.setdefault((one.kind, one.path, one.line), one)
    return sorted(found.values(), key=lambda one: (not one.kind.startswith(SECRET), one.path, one.line))


def _placed(hit: Leftover, added: Added, now: list[str]) -> Found | None:
    """The finding with its line in the present file, when it is still there."""
    if added.line <= len(now) and now[added.line - 1] == added.text:
        line = added.line
    elif added.text in now:
        line = now.index(added.text) + 1
    elif hit.secret:
        return Found(hit.kind, added.path, added.line, added.sha, gone=True)
    else:
        return None
    return Found(hit.kind, added.path, line, added.sha, gone=False)


def added_lines(patch: str) -> Iterator[Added]:
    """The added lines of `git log --patch --unified=0 --no-prefix --format=%x01%H`."""
    sha = path = ""
    line = 0
    body = False  # within a hunk a line may look like a header
    for text in patch.split("\n"):
        if text.startswith("\x01"):
            sha, body = text[1:], False
        elif text.startswith("diff --git "):
            path, body = "", False
        elif not body and text.startswith("+++ "):
            path = unquoted(text[4:].rstrip("\t"))
        elif match := _HUNK.match(text):
            line, body = int(match[1]), True
        elif body and text.startswith("+"):
            yield Added(sha, path, line, text[1:].rstrip("\r"))
            line += 1


def _lines(job: Job, head: str, path: str) -> list[str]:
    done = job.git.run("cat-file", "blob", f"{head}:{path}", allowed=(0, 128))
    if done.returncode:
        return []
    return [line.rstrip("\r") for line in done.stdout.decode(errors="surrogateescape").split("\n")]


def _large(job: Job, upstream: str, head: str) -> list[Found]:
    """Every file over the limit in any of the commits."""
    objects = job.git.output("rev-list", "--objects", "--no-object-names", f"{upstream}..{head}")
    sizes = job.git.text(
        "cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)", "--buffer", stdin=objects
    )
    large = {}
    for name, kind, size in (line.split() for line in sizes.splitlines()):
        if kind == "blob" and int(size) > LARGE:
            large[name] = int(size)
    if not large:
        return []
    listing = job.git.text(
        "log", "--raw", "--no-abbrev", "--no-renames", "--diff-merges=off", "--format=%x01%H", f"{upstream}..{head}"
    )
    found: dict[str, Found] = {}
    sha = ""
    for line in listing.splitlines():
        if line.startswith("\x01"):
            sha = line[1:]
        elif line.startswith(":") and (blob := line.split()[3]) in large:
            kind = f"large file: {large[blob] / 1_000_000:.1f} MB"
            found.setdefault(blob, Found(kind, unquoted(line.partition("\t")[2]), 0, sha, gone=False))
    return list(found.values())


def next_steps(found: list[Found], upstream: str) -> list[str]:
    """What to do about secrets: a later commit does not take them out of the history, and a copy may be about."""
    if not any(one.kind.startswith(SECRET) for one in found):
        return []
    return [
        f"Next: take what is secret out of these commits: git rebase -i {upstream}",
        "A key that anybody else may have seen: make a new one, revoke this one.",
    ]


def _told(found: list[Found], broken: list[str], commits: int) -> FlowResult:
    kinds = Counter(one.kind.partition(":")[0] for one in found)
    facts = {
        "commits": commits,
        "findings": [
            {"kind": one.kind, "path": clean(one.path), "line": one.line, "commit": one.sha, "gone": one.gone}
            for one in found[:SHOWN]
        ],
    }
    if not found and not broken:
        return FlowResult(f"{count(commits, 'unpushed commit')}, nothing that should not be pushed", facts=facts)
    secrets = sum(number for kind, number in kinds.items() if kind == SECRET)
    if secrets:
        first = next(one for one in found if one.kind.startswith(SECRET))
        where = f"{clean(first.path)}:{first.line}" if first.line else clean(first.path)
        told = [f"do not push: {count(secrets, 'likely secret')}, the first in {where}"]
    else:
        told = []
    told += broken
    rest = [f"{number} {kind}" for kind, number in kinds.most_common() if kind != SECRET]
    told += [f"{', '.join(rest)} to look at"] if rest else []
    words = "; ".join(told)
    summary = f"{words[:1].upper()}{words[1:]} (in {count(commits, 'unpushed commit')})"
    return FlowResult(summary, sound=not secrets and not broken, facts=facts)
