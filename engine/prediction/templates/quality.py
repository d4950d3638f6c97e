"""What the project's own linter and formatter ask for."""

from __future__ import annotations

import re
from typing import Final

from engine.prediction.collectors.time_of_day import Activity
from engine.prediction.context import WorkspaceContext
from engine.prediction.templates.making import MOST_PATHS, branch_of, offer, oldest, usable_names
from engine.prediction.words import count, counted, listing, moment, plain
from engine.values import Proposal, SessionState, SessionView

CHANNEL = "koji-core"
_FINDINGS: Final = re.compile(r"\b(\d+) findings?\b")


def last_lint(context: WorkspaceContext) -> SessionView | None:
    """The newest lint here that ran to its end."""
    return next(
        (session for session in context.sessions if session.flow == "lint" and session.state is SessionState.SUCCEEDED),
        None,
    )


def findings(session: SessionView) -> int:
    """How many findings the summary of a lint tells of ("ruff: 4 findings in 2 files"), 0 when of none."""
    told = _FINDINGS.search(session.summary)
    return int(told[1]) if told else 0


def lint(context: WorkspaceContext) -> list[Proposal]:
    """The files that changed; on a clean tree what the last commits touched; else, never linted, the whole project."""
    git, tool = context.git, context.tool
    if git is None or tool is None or not tool.linter:
        return []
    changed = usable_names(file.path for file in git.files if not file.deleted and tool.lints(file.path))
    recent = usable_names(path for path in git.recent_files if tool.lints(path)) if git.clean else []
    linter = plain(tool.linter, 20)
    if changed:
        paths, strength, activities = changed, 0.5, (Activity.WORK,)
        prompt = f"Lint {counted(changed, 'uncommitted file')} with {linter}"
        reasoning = f"{listing(changed)} changed since HEAD."
        evidence, at = count(len(changed), "changed file"), oldest(file.modified_at for file in git.files)
    elif recent and (last_lint(context) is None or _linted_before(context)):
        paths, strength, activities = recent, 0.3, (Activity.WORK,)
        prompt = f"Lint {counted(recent, 'file')} that the latest commits touched, with {linter}"
        reasoning = f"{listing(recent)} changed last, and {linter} has not looked at HEAD yet."
        evidence, at = f"{count(len(recent), 'file')} in the latest commits", git.recent[0].at
    elif git.head and last_lint(context) is None:
        paths, strength, activities = [], 0.2, (Activity.WORK,)
        prompt = f"Lint the whole project with {linter} once"
        reasoning = f"The project has settings for {linter}, and it never ran here."
        evidence, at = "never linted here", git.recent[0].at
    else:
        return []
    whole = len(paths) > MOST_PATHS
    return [
        offer(
            context,
            "lint",
            f"Lint the whole project with {linter}: {count(len(paths), 'file')} changed" if whole else prompt,
            reasoning,
            subject=branch_of(git) if paths else "whole project",
            facts={"paths": paths, "head": git.head},
            parameters={"paths": [] if whole else paths},
            activities=activities,
            strength=strength,
            evidence=evidence,
            channel=CHANNEL,
            evidence_at=at,
            usual_hours=8.0,
            continues=("fix_lint",),
            about=" ".join(paths),
        )
    ]


def _linted_before(context: WorkspaceContext) -> bool:
    """Whether the last lint is older than the last commit."""
    last = last_lint(context)
    git = context.git
    return last is not None and git is not None and bool(git.recent) and last.created_at < git.recent[0].at


def fix_lint(context: WorkspaceContext) -> list[Proposal]:
    """The last lint found something, and nobody has tidied up since."""
    git, tool = context.git, context.tool
    if git is None or not git.head or tool is None or not tool.linter:
        return []
    last = last_lint(context)
    found = findings(last) if last else 0
    if last is None or last.ended_at is None or not found:
        return []
    ended = last.ended_at
    if any(session.flow == "fix_lint" and session.created_at > ended for session in context.sessions):
        return []
    changed = usable_names(file.path for file in git.files if not file.deleted and tool.lints(file.path))
    paths = changed if len(changed) <= MOST_PATHS else []
    linter = plain(tool.linter, 20)
    return [
        offer(
            context,
            "fix_lint",
            f"Let {linter} mend what it found"
            + (f" in {counted(paths, 'uncommitted file')}" if paths else " where that is safe"),
            f"{count(found, 'finding')} at {moment(ended, context.local)}; what it changes waits as a diff.",
            subject=f"{linter} on {branch_of(git)}",
            facts={"lint": last.id, "paths": paths},
            parameters={"paths": paths},
            activities=(Activity.WORK,),
            strength=0.6,
            evidence=count(found, "lint finding"),
            channel=CHANNEL,
            evidence_at=ended,
            usual_hours=8.0,
            continues=("lint",),
            about=" ".join(paths),
        )
    ]
