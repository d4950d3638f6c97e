"""What the project's own linter and formatter ask for."""

from __future__ import annotations

import re
from typing import Final

from engine.prediction.context import Part, WorkspaceContext
from engine.prediction.templates.making import MOST_PATHS, branch_of, offer, oldest, usable_names
from engine.prediction.words import count, counted, listing, moment, plain
from engine.values import Proposal, SessionState, SessionView

_FINDINGS: Final = re.compile(r"\b(\d+) findings?\b")


def last_lint(context: WorkspaceContext) -> SessionView | None:
    """The newest lint here that ran to its end; one that found something new counts as failed."""
    return next(
        (
            session
            for session in context.sessions
            if session.flow == "lint" and session.state in (SessionState.SUCCEEDED, SessionState.FAILED)
        ),
        None,
    )


def findings(session: SessionView) -> int:
    """How many findings the summary of a lint tells of ("ruff: 4 findings in 2 files"), 0 when of none."""
    told = _FINDINGS.search(session.summary)
    return int(told[1]) if told else 0


def lint(context: WorkspaceContext, part: Part) -> list[Proposal]:
    """The source files that are not committed, or not pushed and not looked at since the last commit."""
    git, linters = context.git, part.project.linters
    if git is None or git.operation or not linters:
        return []
    changed = usable_names(file.path for file in git.files if not file.deleted and part.lints(file.path))
    at, last = oldest(file.modified_at for file in git.files), last_lint(context)
    if not changed and git.recent and (last is None or last.created_at < git.recent[0].at):
        changed, at = usable_names(path for path in git.own_files if part.lints(path)), git.recent[0].at
    if not changed:
        return []
    linter, whole = plain(linters[0].name, 20), len(changed) > MOST_PATHS
    where = "not pushed" if git.clean else "not committed"
    return [
        offer(
            context,
            "lint",
            f"Lint {f'the whole project{part.within}' if whole else listing(changed)} with {linter}",
            f"{count(len(changed), 'source file')} changed and {where} yet; only new findings are told.",
            subject=part.about(branch_of(git)),
            facts={"paths": changed, "head": git.head, **part.parameters},
            parameters={"paths": [] if whole else changed, **part.parameters},
            evidence_at=at,
            about=" ".join(changed),
        )
    ]


def fix_lint(context: WorkspaceContext, part: Part) -> list[Proposal]:
    """The last lint found something, and nobody has tidied up since."""
    git, linters = context.git, part.project.linters
    if git is None or not git.head or not linters:
        return []
    last = last_lint(context)
    found = findings(last) if last else 0
    if last is None or last.ended_at is None or not found:
        return []
    ended = last.ended_at
    if any(session.flow == "fix_lint" and session.created_at > ended for session in context.sessions):
        return []
    changed = usable_names(file.path for file in git.files if not file.deleted and part.lints(file.path))
    paths = changed if len(changed) <= MOST_PATHS else []
    linter = plain(linters[0].name, 20)
    return [
        offer(
            context,
            "fix_lint",
            f"Fix what {linter} found"
            + (f" in {counted(paths, 'uncommitted file')}" if paths else " where that is safe"),
            f"{count(found, 'finding')} at {moment(ended, context.local)}; what it changes waits as a diff.",
            subject=part.about(f"{linter} on {branch_of(git)}"),
            facts={"lint": last.id, "paths": paths, **part.parameters},
            parameters={"paths": paths, **part.parameters},
            evidence_at=ended,
            about=" ".join(paths),
        )
    ]
