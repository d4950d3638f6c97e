"""What the project's own linter and formatter ask for."""

from __future__ import annotations

from engine.model import SessionState, SessionView
from engine.model.words import count, counted, listing, moment, plain
from engine.prediction.context import Part, WorkspaceContext
from engine.prediction.templates.making import (
    MOST_PATHS,
    Offer,
    branch_of,
    ended,
    oldest,
    template,
    usable,
    usable_names,
)


def last_lint(context: WorkspaceContext, project: str) -> SessionView | None:
    """The newest lint of a project that ran to its end; one that found something new counts as failed."""
    done = (SessionState.SUCCEEDED, SessionState.FAILED)
    return next((one for one in ended(context, project, "lint") if one.state in done), None)


@template
def lint(context: WorkspaceContext, part: Part) -> Offer | None:
    """The source files that are not committed, else those not pushed, where they are newer than the last lint."""
    git, linters = context.seen, part.project.linters
    if not linters or any(
        one.kind == linters[0].row.kind == "node" and not one.installed for one in part.project.packages
    ):
        return None  # a linter of node comes with the packages
    files = [file for file in git.files if not file.deleted and part.lints(file.path) and usable(file.path)]
    changed, where = sorted(file.path for file in files), "not committed"
    moments = [file.modified_at for file in files if file.modified_at]
    if not changed and git.recent:
        changed, where = usable_names(path for path in git.own_files if part.lints(path)), "not pushed"
        moments = [git.recent[0].at]
    last = last_lint(context, part.project.path)
    if not changed or (last is not None and all(at < last.created_at for at in moments)):
        return None
    linter, whole = plain(linters[0].name, 20), len(changed) > MOST_PATHS
    return Offer(
        f"Lint {f'the whole project{part.within}' if whole else listing(changed)} with {linter}",
        f"{count(len(changed), 'source file')} changed and {where} yet; only new findings are reported.",
        subject=branch_of(git),
        facts={"paths": changed, "head": git.head, "after": last.id if last else ""},
        parameters={"paths": [] if whole else changed},
        evidence_at=oldest(moments),
        about=" ".join(changed),
    )


@template
def fix_lint(context: WorkspaceContext, part: Part) -> Offer | None:
    """The last lint found something, and nobody has tidied up since."""
    git, linters = context.seen, part.project.linters
    if not git.head or not linters:
        return None
    last = last_lint(context, part.project.path)
    found = sum(last.facts.get("rules", {}).values()) if last else 0
    if last is None or last.ended_at is None or not found:
        return None
    fixed = ended(context, part.project.path, "fix_lint")
    if any(one.created_at > last.ended_at for one in fixed):
        return None
    changed = usable_names(file.path for file in git.files if not file.deleted and part.lints(file.path))
    paths = changed if len(changed) <= MOST_PATHS else []
    linter = plain(linters[0].name, 20)
    return Offer(
        f"Fix what {linter} found" + (f" in {counted(paths, 'uncommitted file')}" if paths else " where that is safe"),
        f"{count(found, 'finding')} at {moment(last.ended_at, context.local)}; what it changes waits as a diff.",
        subject=f"{linter} on {branch_of(git)}",
        facts={"lint": last.id, "paths": paths},
        parameters={"paths": paths},
        evidence_at=last.ended_at,
        about=" ".join(paths),
    )
