"""Cards about your own changes, such as forgotten debugging, stale documentation, lines without a test, and lint.

They come in pairs. The first card shows what is there (`leftovers`, `stale_docs`, `lint`), and once its session has
shown it, the second offers to mend it (`remove_leftovers`, `update_docs`, `fix_lint`) as a diff that waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from engine.execution.runners.toolchains.project_tools import Linter
from engine.git.leftovers import CONFLICT_MARKER, TODO_KINDS, Leftover
from engine.git.stale_mentions import Mention
from engine.git.state import GitState
from engine.model import Tier
from engine.prediction.context import Part, WorkspaceContext, describe_result
from engine.prediction.templates.offers import (
    MAX_PATHS,
    Offer,
    count_others,
    describe_branch,
    find_earliest,
    find_ended_sessions,
    find_head_time,
    find_last_success,
    find_write_time,
    format_midnight,
    is_usable_path,
    select_usable_paths,
    template,
)
from engine.text import plain, shorten_path
from engine.wording import count, join_shortened, moment

MAX_SUBJECT_FINDINGS = 5
"""Maximum number of findings that a subject names."""

SHORT_SUITE_S = 120.0
"""Maximum seconds of a whole suite that is run once more to measure its coverage."""

_LEFTOVER_WORDS = {
    CONFLICT_MARKER: "conflict markers",
    "breakpoint": "a breakpoint",
    "debugger import": "a debugger import",
    "debugger statement": "a debugger statement",
    "debug print": "a debug print",
    ".only": "a test that keeps all others from running (.only)",
    "TODO": "a TODO",
    "FIXME": "a FIXME",
}
"""The words for kinds of leftovers."""


@template
def leftovers(context: WorkspaceContext) -> Iterator[Offer]:
    """You added debugging, a conflict marker or a TODO, and it is still there. The last session that looked for such
    lines has not found them."""
    git, all_leftovers = context.repository, context.inspection.own.leftovers
    last = next(iter(find_ended_sessions(context, "", "look_for_leftovers")), None)
    shown_places = (
        {(row["path"], row["line"], row["kind"]) for row in last.facts.get("findings", ())} if last else set()
    )
    if {(leftover.path, leftover.line, leftover.kind) for leftover in all_leftovers} <= shown_places:
        return
    marked = [leftover for leftover in all_leftovers if leftover.kind == CONFLICT_MARKER]
    shown_leftovers = marked or list(all_leftovers)
    kinds = list(
        dict.fromkeys(_LEFTOVER_WORDS.get(leftover.kind, f"`{leftover.kind}`") for leftover in shown_leftovers)
    )
    places = join_shortened((leftover.place for leftover in shown_leftovers), 3)
    files = {leftover.path for leftover in shown_leftovers}
    is_committed = any(leftover.is_committed for leftover in shown_leftovers)
    state = ("not pushed" if git.has_remote else f"not in {git.base_name}") if is_committed else "not committed"
    summary = " and ".join(kinds[:2]) + (" and more" if len(kinds) > 2 else "")
    yield Offer(
        f"Show what is left in {places}",
        f"You added {summary} in {places}, {state} yet.",
        **_collect_evidence(shown_leftovers, all_leftovers),
        parameters={"today": format_midnight(context.local)},
        evidence_at=find_write_time(git, files),
        tier=Tier.BLOCKS if marked else None,
    )


@template
def remove_leftovers(context: WorkspaceContext) -> Iterator[Offer]:
    """A session showed the debugging that you left. Statements on a line of their own can be removed."""
    removable = [
        leftover
        for leftover in context.inspection.own.leftovers
        if leftover.kind != CONFLICT_MARKER and leftover.kind not in TODO_KINDS and leftover.kind != ".only"
    ]
    paths = select_usable_paths(leftover.path for leftover in removable)
    written = find_write_time(context.repository, paths)
    if not paths or not _was_shown(context, "look_for_leftovers", written):
        return
    are_tested = any(part.tests(path) for part in context.parts for path in paths)
    unusable = join_shortened({leftover.path for leftover in removable}.difference(paths), 3)
    yield Offer(
        f"Remove the debugging from {join_shortened(paths)}{' and run the tests' if are_tested else ''}",
        f"{join_shortened((leftover.place for leftover in removable), 3)}: debugging that you added; only statements "
        f"on a line of their own go.{f' Not from {unusable}: hidden characters are in its name.' if unusable else ''}",
        **_collect_evidence(removable, removable),
        parameters={"paths": paths},
        evidence_at=written,
    )


@template
def stale_docs(context: WorkspaceContext) -> Iterator[Offer]:
    """Documentation still names something that your changes renamed or removed."""
    mentions = context.inspection.own.mentions
    if not mentions:
        return
    names = list(dict.fromkeys(plain(mention.old, 60) for mention in mentions))
    first = mentions[0]
    became = f" (now `{plain(first.new, 60)}`)" if first.new else ""
    more = count_others(mentions, noun="more line")
    yield Offer(
        f"Show the documentation that still names {join_shortened(names, 2, 40)}",
        f"{shorten_path(f'{first.path}:{first.line}')} names `{names[0]}`{became}, which your changes removed{more}.",
        subject=" ".join(sorted(names)[:MAX_SUBJECT_FINDINGS]),
        facts=_make_mention_facts(mentions),
        evidence_at=_find_last_written_at(context.repository),
    )


@template
def update_docs(context: WorkspaceContext) -> Iterator[Offer]:
    """A session showed the stale documentation. Names that were clearly renamed can be corrected."""
    renamed = [mention for mention in context.inspection.own.mentions if mention.new]
    paths = select_usable_paths(mention.path for mention in renamed)
    newest = _find_last_written_at(context.repository)
    if not paths or not _was_shown(context, "look_at_mentions", newest):
        return
    pairs = list(dict.fromkeys(f"{plain(mention.old, 40)} → {plain(mention.new, 40)}" for mention in renamed))
    yield Offer(
        f"Put the new names into {join_shortened(paths)}",
        f"{join_shortened(pairs, 2, 80)}, in {count(len(renamed), 'line')}; what it changes waits as a diff.",
        subject=" ".join(sorted(plain(mention.old, 60) for mention in renamed)[:MAX_SUBJECT_FINDINGS]),
        facts=_make_mention_facts(renamed),
        parameters={"paths": paths},
        evidence_at=newest,
    )


@template
def uncovered_lines(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """Source files changed, the tests pass on exactly these files, and it is not known which lines the tests run."""
    git, tool = context.repository, part.tool
    if tool is None or part.project.path not in context.coverage_folders or not part.tree_runs or part.changed:
        return
    last = part.tree_runs[0]
    paths = select_usable_paths(
        path for path in context.inspection.own.added_lines if _is_source(path) and part.holds(path)
    )
    if not paths or len(paths) > MAX_PATHS or not last.check.green:
        return
    whole = next((run for run in part.runs if run.full), None)
    number = sum(len(lines) for path, lines in context.inspection.own.added_lines.items() if path in paths)
    yield Offer(
        f"Find the changed lines of {join_shortened(paths)} that no test runs",
        f"The tests pass ({describe_result(last.check)} at {moment(last.ran_at, context.local)}); nobody measured the "
        f"{count(number, 'changed line')} yet.",
        subject=describe_branch(git),
        facts={"mark": context.inspection.own.digest},
        parameters={
            "paths": paths,
            "whole": whole is not None and whole.check.seconds <= SHORT_SUITE_S,
        },
        evidence_at=last.ran_at,
    )


@template
def lint(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """Source files are newer than the last lint: uncommitted ones, or if there are none, unpushed ones."""
    git, linters = context.repository, part.project.linters
    if not linters or _lacks_packages(part, linters[0]):
        return
    files = [file for file in git.files if not file.deleted and part.lints(file.path) and is_usable_path(file.path)]
    changed, state = sorted(file.path for file in files), "not committed"
    moments = [file.modified_at for file in files if file.modified_at]
    if not changed and git.recent:
        changed, state = select_usable_paths(path for path in git.own_files if part.lints(path)), "not pushed"
        moments = [git.recent[0].at]
    last = find_last_success(context, part.project.path, "lint")
    if not changed or (last is not None and all(at < last.created_at for at in moments)):
        return
    linter, whole = plain(linters[0].name, 20), len(changed) > MAX_PATHS
    yield Offer(
        f"Lint {f'the whole project{part.within}' if whole else join_shortened(changed)} with {linter}",
        f"{count(len(changed), 'source file')} changed and {state} yet; only new findings are reported.",
        subject=describe_branch(git),
        facts={"paths": changed, "head": git.head, "after": last.id if last else ""},
        parameters={"paths": [] if whole else changed},
        evidence_at=find_earliest(moments),
    )


@template
def fix_lint(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """The last lint had findings, and no session has fixed them since."""
    git, linters = context.repository, part.project.linters
    if not git.head or not linters:
        return
    last = find_last_success(context, part.project.path, "lint")
    findings = sum(last.facts.get("rules", {}).values()) if last else 0
    if last is None or last.ended_at is None or not findings:
        return
    fixed = find_ended_sessions(context, part.project.path, "fix_lint")
    if any(session.created_at > last.ended_at for session in fixed):
        return
    changed = select_usable_paths(file.path for file in git.files if not file.deleted and part.lints(file.path))
    paths = changed if len(changed) <= MAX_PATHS else []
    linter = plain(linters[0].name, 20)
    place = f"in {count(len(paths), 'uncommitted file')}" if paths else "where that is safe"
    yield Offer(
        f"Fix what {linter} found {place}",
        f"{count(findings, 'finding')} at {moment(last.ended_at, context.local)}; what it changes waits as a diff.",
        subject=f"{linter} on {describe_branch(git)}",
        facts={"lint": last.id, "paths": paths},
        parameters={"paths": paths},
        evidence_at=last.ended_at,
    )


def _collect_evidence(shown_leftovers: Sequence[Leftover], all_leftovers: Sequence[Leftover]) -> dict[str, Any]:
    """The subject and the facts of a card, as arguments of `Offer`.

    The subject lists the kinds in `shown_leftovers` with their files, so that dismissing a TODO does not hide a
    breakpoint. The facts list all leftovers, without line numbers, because these change with every line above them.
    """
    kinds = dict.fromkeys(f"{leftover.kind} in {plain(leftover.path, 100)}" for leftover in shown_leftovers)
    lines = sorted(f"{leftover.kind} {leftover.path} {leftover.text_hash}" for leftover in all_leftovers)
    return {"subject": ", ".join([*kinds][:MAX_SUBJECT_FINDINGS]), "facts": {"found": lines}}


def _make_mention_facts(mentions: Sequence[Mention]) -> dict[str, list[str]]:
    """The facts of a card about mentions, without line numbers."""
    return {"mentions": sorted(f"{mention.path} {mention.old}" for mention in mentions)}


def _find_last_written_at(git: GitState) -> datetime | None:
    """When you last changed a file, or else when HEAD was committed."""
    return max((file.modified_at for file in git.files if file.modified_at), default=find_head_time(git))


def _was_shown(context: WorkspaceContext, flow: str, written: datetime | None) -> bool:
    """Whether a session of this flow ran after the time `written`, so that it showed the present state."""
    last = next(iter(find_ended_sessions(context, "", flow)), None)
    return last is not None and (written is None or last.created_at >= written)


def _is_source(path: str) -> bool:
    """Whether coverage of a file is of interest: it is Python, and neither a test nor a script for building."""
    name = PurePosixPath(path).name
    is_test = name.startswith("test_") or name.endswith("_test.py") or {"tests", "test"} & set(path.split("/"))
    return path.endswith(".py") and not is_test and name not in ("conftest.py", "setup.py", "noxfile.py")


def _lacks_packages(part: Part, linter: Linter) -> bool:
    """Whether a linter of node is missing, because it comes with packages that are not installed."""
    of_node = [package for package in part.project.packages if package.language == "node"]
    return linter.row.language == "node" and not all(package.may_be_installed for package in of_node)
