"""What your own changes left behind: debugging, conflict markers, documentation of what is gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import PurePosixPath

from engine.git.mentions import Mention
from engine.git.own_changes import MARKER, TODOS, LeftIn
from engine.model import SessionView, Tier
from engine.model.words import count, listing, moment, plain, tail
from engine.prediction.context import Part, WorkspaceContext, result_words
from engine.prediction.templates.making import (
    MOST_PATHS,
    Offer,
    branch_of,
    oldest,
    template,
    usable_names,
)

_SAYS = {
    MARKER: "conflict markers",
    "breakpoint": "a breakpoint",
    "debugger statement": "a debugger statement",
    "debug print": "a debug print",
    ".only": "a test that keeps all others from running (.only)",
    "TODO": "a TODO",
    "FIXME": "a FIXME",
}


@template
def leftovers(context: WorkspaceContext) -> Offer | None:
    """You added debugging, a conflict marker or a TODO, and it is still there."""
    git, found = context.seen, context.looks.own.leftovers
    if not found:
        return None
    marked = [one for one in found if one.kind == MARKER]
    told = marked or list(found)
    kinds = list(dict.fromkeys(_words(one.kind) for one in told))
    where = listing((one.place for one in told), 3)
    files = {one.path for one in told}
    state = "not committed" if files <= {file.path for file in git.files} else "not pushed"
    what = " and ".join(kinds[:2]) + (" and more" if len(kinds) > 2 else "")
    return Offer(
        f"Show what is left in {where}",
        f"You added {what} in {where}, {state} yet.",
        subject=_subject(told),
        facts=_lines_of(found),
        parameters={"today": midnight(context)},
        evidence_at=_written(context, files),
        tier=Tier.BLOCKS if marked else None,
        about=" ".join(sorted(files)),
    )


def _subject(found: Sequence[LeftIn]) -> str:
    """What is in which files: a breakpoint is something else than the TODO that you keep."""
    return ", ".join(list(dict.fromkeys(f"{one.kind} in {plain(one.path, 100)}" for one in found))[:5])


def _lines_of(found: Sequence[LeftIn]) -> dict[str, list[str]]:
    """What is found, without the numbers of the lines: those change with every line above."""
    return {"found": sorted(f"{one.kind} {one.path} {one.text}" for one in found)}


def midnight(context: WorkspaceContext) -> str:
    """When the operator's day began, as flows take it."""
    return context.local.replace(hour=0, minute=0, second=0, microsecond=0).isoformat()


@template
def remove_leftovers(context: WorkspaceContext) -> Offer | None:
    """The debugging was shown; what has a line for itself can be taken out."""
    git = context.git
    found = [
        one
        for one in context.looks.own.leftovers
        if one.kind != MARKER and one.kind not in TODOS and one.kind != ".only"
    ]
    shown = last_of(context, "look_for_leftovers")
    paths = usable_names(one.path for one in found)
    written = _written(context, set(paths))
    if git is None or not paths or shown is None or (written is not None and shown.created_at < written):
        return None
    return Offer(
        f"Remove the debugging from {listing(paths)} and run the tests",
        f"{listing((one.place for one in found), 3)}: debugging that you added; only statements on a "
        "line of their own go.",
        subject=_subject(found),
        facts=_lines_of(found),
        parameters={"paths": paths},
        evidence_at=written,
        about=" ".join(paths),
    )


@template
def stale_docs(context: WorkspaceContext) -> Offer | None:
    """Documentation names what your changes renamed or removed, and what is nowhere any more."""
    found = context.looks.own.mentions
    if not found:
        return None
    names = list(dict.fromkeys(plain(one.old, 60) for one in found))
    first = found[0]
    became = f" (now `{plain(first.new, 60)}`)" if first.new else ""
    more = f" and {count(len(found) - 1, 'more line')}" if len(found) > 1 else ""
    return Offer(
        f"Show the documentation that still names {listing(names, 2, 40)}",
        f"{tail(f'{first.path}:{first.line}')} names `{names[0]}`{became}, which your changes removed{more}.",
        subject=" ".join(sorted(names)[:5]),
        facts=_facts_of(found),
        parameters={},
        evidence_at=_newest(context),
        about=" ".join(names),
    )


@template
def update_docs(context: WorkspaceContext) -> Offer | None:
    """The stale documentation was shown; what was evidently renamed can be put right."""
    git, shown = context.git, last_of(context, "look_at_mentions")
    found = [one for one in context.looks.own.mentions if one.new]
    paths = usable_names(one.path for one in found)
    newest = _newest(context)
    if git is None or not paths or shown is None or (newest is not None and shown.created_at < newest):
        return None
    pairs = list(dict.fromkeys(f"{plain(one.old, 40)} → {plain(one.new, 40)}" for one in found))
    return Offer(
        f"Put the new names into {listing(paths)}",
        f"{listing(pairs, 2, 80)}, in {count(len(found), 'line')}; what it changes waits as a diff.",
        subject=" ".join(sorted(plain(one.old, 60) for one in found)[:5]),
        facts=_facts_of(found),
        parameters={"paths": paths},
        evidence_at=newest,
        about=" ".join(paths),
    )


SHORT_SUITE = 120.0
"""Seconds that a whole suite may take to be run once more for its coverage."""


@template
def uncovered_lines(context: WorkspaceContext, part: Part) -> Offer | None:
    """Source files changed, the tests of this very state are green, and nobody asked which lines they run."""
    git, tool = context.seen, part.tool
    if tool is None or part.project.path not in context.covered or not part.here or part.changed:
        return None
    last = part.here[0]
    paths = usable_names(path for path, _ in context.looks.own.lines if is_source(path) and part.holds(path))
    if not paths or len(paths) > MOST_PATHS or not last.check.green:
        return None
    whole = next((run for run in part.runs if run.full), None)
    number = sum(len(lines) for path, lines in context.looks.own.lines if path in paths)
    return Offer(
        f"Find the changed lines of {listing(paths)} that no test runs",
        f"The tests pass ({result_words(last.check)} at {moment(last.ran_at, context.local)}); nobody measured the "
        f"{count(number, 'changed line')} yet.",
        subject=branch_of(git),
        facts={"mark": context.looks.own.mark},
        parameters={
            "paths": paths,
            "whole": whole is not None and whole.check.seconds <= SHORT_SUITE,
        },
        evidence_at=last.ran_at,
        about=" ".join(paths),
    )


def is_source(path: str) -> bool:
    """Whether coverage can tell anything of a file: Python, and neither a test nor for building."""
    name = PurePosixPath(path).name
    is_test = name.startswith("test_") or name.endswith("_test.py") or {"tests", "test"} & set(path.split("/"))
    return path.endswith(".py") and not is_test and name not in ("conftest.py", "setup.py", "noxfile.py")


def _facts_of(found: Sequence[Mention]) -> dict[str, list[str]]:
    return {"mentions": sorted(f"{one.path} {one.old}" for one in found)}


def _newest(context: WorkspaceContext) -> datetime | None:
    """When your changes were last added to."""
    git = context.git
    moments = [file.modified_at for file in git.files if file.modified_at] if git else []
    return max(moments, default=git.recent[0].at if git and git.recent else None)


def last_of(context: WorkspaceContext, flow: str) -> SessionView | None:
    """The newest session of a flow here that is over."""
    return next((one for one in context.sessions if one.flow == flow and one.state.over), None)


def _written(context: WorkspaceContext, files: Iterable[str]) -> datetime | None:
    """When the first of these files was written; for what is committed, when HEAD was."""
    git, names = context.git, set(files)
    assert git is not None
    at = oldest(file.modified_at for file in git.files if file.path in names)
    return at or (git.recent[0].at if git.recent else None)


def _words(kind: str) -> str:
    return _SAYS.get(kind, f"`{kind}`")
