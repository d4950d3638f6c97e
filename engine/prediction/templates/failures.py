"""Cards about tests that fail, and about what they need to run: packages, lock files, and space on the disk.

The first half asks whether the tests can run at all: `update_lock` comes before `prepare_environment`. The second asks
why they fail. `still_red` groups the failures, `bisect` finds the commit that broke a test, and then `rehearse_revert`
takes it back; `undo_landing` does so if a landing did it, and `apply_fix` offers what helped before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path, PurePosixPath

from engine.execution.runners.toolchains.detection import PackageSetup
from engine.execution.runners.toolchains.installing import Installation, find_installations, find_lock_updates
from engine.git.patch import unquote_name
from engine.model import SessionState, SessionView, Tier
from engine.prediction.context import Part, WorkspaceContext, describe_result
from engine.prediction.templates.offers import (
    LONG_AGO,
    MAX_PATHS,
    Offer,
    count_others,
    find_ended_sessions,
    find_last_success,
    find_write_time,
    is_usable,
    select_usable_failures,
    shorten_test,
    template,
)
from engine.storage.validation_runs import (
    ValidationRun,
    find_test_that_failed_alone,
    find_unreliable_tests,
    read_verdict_on,
)
from engine.text import plain
from engine.wording import moment

_TEST_FLOWS = ("run_tests", "check_clean_head", "bisect", "hunt_flakes", "narrow_failures")
"""Flows that run tests."""


@template
def prepare_environment(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """The tests of the project lack a tool or a package. The card blocks you if you ran the tests or changed a file of
    the project. In a project that you only read, it is upkeep."""
    if any(lock.folder == part.project.path for lock in context.locks):
        return  # `update_lock` comes first
    git, missing_tool = context.repository, part.project.missing_tool
    failed_session = _find_session_lacking_packages(context, part)
    missing = missing_tool if failed_session is None else failed_session.error
    installation = _choose_installation(context, part, missing) if missing else None
    if installation is None or _runs_program(installation, missing_tool):
        return
    changed_file = next((file for file in git.files if part.holds(file.path)), None)
    is_touched = changed_file is not None or any(part.holds(path) for path in git.own_files)
    if failed_session is not None:
        reason = f"could not run: {plain(failed_session.error.partition(' (')[0], 80)}"
        at = failed_session.ended_at
    else:
        reason = f"need {plain(missing_tool, 30)}, which is not installed"
        at = LONG_AGO if changed_file is None else changed_file.modified_at
    yield Offer(
        f"Install the packages{part.within}: {plain(installation.command, 80)}",
        f"The tests of {plain(part.project.path, 40) or 'this project'} {reason}. {installation.summary}.",
        subject="packages",
        facts={"command": installation.command_lines},  # a command that did not help once is not offered again
        parameters={"command": installation.command_lines},
        evidence_at=at,
        tier=Tier.BLOCKS if failed_session is not None or is_touched else Tier.UPKEEP,
    )


def _choose_installation(context: WorkspaceContext, part: Part, lacking: str) -> Installation | None:
    """The installation that brings what is `lacking`, or else the first that can be offered; None if there is none."""
    top = Path(context.workspace)
    installations = [
        installation
        for installation in _select_usable(find_installations(top, _collect_packages(context), part.project.path))
        if not installation.find_own_environment(top)  # the flow refuses these
    ]
    bringing = [installation for installation in installations if _provides(installation, lacking)]
    return next(iter(bringing or installations), None)


def _provides(installation: Installation, lacking: str) -> bool:
    """Whether the installation makes the missing folder of packages, is the command that the error names, reaches the
    host that it names, or runs the missing program."""
    folders = {PurePosixPath(place).name for place in (*installation.created_folders, *installation.updated_folders)}
    reaches_host = any(host in lacking for host in installation.packages.hosts)
    return lacking in folders or installation.command in lacking or reaches_host or _runs_program(installation, lacking)


def _runs_program(installation: Installation, program: str) -> bool:
    return any(command[0] == program for command in installation.commands)


def _find_session_lacking_packages(context: WorkspaceContext, part: Part) -> SessionView | None:
    """The newest session that ran the tests, if they lacked a package or a host that has packages, and nothing was
    installed since."""
    unreachable = [f"{host} could not be reached: there" for setup in part.project.packages for host in setup.hosts]
    for session in find_ended_sessions(context, part.project.path, "prepare_environment", *_TEST_FLOWS):
        if session.flow in _TEST_FLOWS:
            lacked = any(sign in session.error for sign in ("is not installed", *unreachable))
            return session if lacked and session.state is SessionState.CANNOT_RUN else None
        if session.state is SessionState.SUCCEEDED:
            return None
    return None


@template
def update_lock(context: WorkspaceContext) -> Iterator[Offer]:
    """A lock file does not agree with its manifest."""
    parts = {part.project.path: part for part in context.parts}
    for mismatch in (lock for lock in context.locks if lock.folder in parts):
        updates = _select_usable(
            find_lock_updates(Path(context.workspace), _collect_packages(context), mismatch.folder)
        )
        update = next((update for update in updates if update.packages.lock == mismatch.lock_path), None)
        if update is None:
            continue
        manifest = f"{mismatch.folder}/{mismatch.manifest}".removeprefix("/")
        more = f", and {mismatch.unnamed_count} more" if mismatch.unnamed_count else ""
        yield Offer(
            f"Bring {plain(mismatch.lock_path, 50)} in step: {plain(update.command, 60)}",
            f"{plain(mismatch.differences[0], 120)}{more}. {update.summary}.",
            subject=mismatch.lock_path,
            facts={"differences": mismatch.differences, "lock": mismatch.lock_path},
            parameters={"command": update.command_lines, **parts[mismatch.folder].parameters},
            evidence_at=find_write_time(context.repository, {manifest}),
        )


@template
def keep_first_lock(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """An installation wrote the first lock file of the project, which was discarded with what else it wrote."""
    installed = find_last_success(context, part.project.path, "prepare_environment")
    lock = installed.facts.get("first_lock") if installed is not None else None
    if installed is None or not lock or any(setup.lock for setup in part.project.packages):
        return
    updates = find_lock_updates(Path(context.workspace), _collect_packages(context), part.project.path)
    for update in _select_usable([update for update in updates if update.packages.lock == lock]):
        yield Offer(
            f"Make {plain(lock, 50)}: {plain(update.command, 60)}",
            f"The installation wrote it, and the project has no lock file yet. {update.summary}.",
            subject=lock,
            facts={"lock": lock},
            parameters={"command": update.command_lines},
            evidence_at=installed.ended_at,
            tier=Tier.CHECK,
            kind="update_lock",
        )


def _collect_packages(context: WorkspaceContext) -> dict[str, tuple[PackageSetup, ...]]:
    """The packages of each project, by its path."""
    return {part.project.path: part.project.packages for part in context.parts}


def _select_usable(candidates: Sequence[Installation]) -> list[Installation]:
    """The installations whose commands may become a parameter."""
    return [installation for installation in candidates if all(map(is_usable, installation.command_lines))]


MIN_FREE_BYTES = 100_000_000
"""Bytes that could be freed, below which there is no card."""

MAX_FREE_RATIO = 10
"""There is no card if the disk has more than this many times as many free bytes as could be freed."""


@template
def reclaim_space(context: WorkspaceContext) -> Iterator[Offer]:
    """The disk with the home is nearly full, and clawpy can free a good share of what is left."""
    disk = context.disk
    if disk is None or disk.ours < MIN_FREE_BYTES or disk.ours * MAX_FREE_RATIO < disk.free:
        return
    free, ours = _format_gigabytes(disk.free), _format_gigabytes(disk.ours)
    yield Offer(
        f"Remove {ours} of old worktrees and caches of clawpy",
        f"Only {free} of {_format_gigabytes(disk.total)} is free on this disk. Undecided work is kept.",
        subject="disk",
        facts={"urgent": disk.urgent},
        evidence_at=disk.since,
        tier=Tier.AT_RISK if disk.urgent else Tier.BLOCKS,
    )


def _format_gigabytes(size: int) -> str:
    """`0.4 GB`, `120 GB`."""
    return f"{size / 1_000_000_000:.{1 if size < 10_000_000_000 else 0}f} GB"


RECENT_LANDING = timedelta(days=7)
"""Maximum age of a landing that a card offers to undo."""

MAX_FIXED_TESTS = 5
"""Maximum number of tests that are named for a known fix."""


@template
def bisect(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """A test fails at HEAD and passed at an older commit.

    If no run is known in which it passed, the last tag is taken as that commit; without a tag, the commit that last
    changed the file of the test.
    """
    git = context.repository
    if not git.head or part.tool is None or not part.tool.runs_single_tests:
        return
    failed_run = part.find_failed_run(git.head)
    if failed_run is None or not failed_run.check.counted:
        return
    unfit = {test for test, _ in find_unreliable_tests(part.runs)} | _find_bisected_tests(context, part)
    failing = [test for test in select_usable_failures(failed_run) if test not in unfit]
    older = [run for run in part.runs[part.runs.index(failed_run) + 1 :] if run.clean and run.head in context.ancestors]
    passing = next(((test, run) for test in failing for run in older if read_verdict_on(run, test)), None)
    if passing is not None:
        test, run = passing
        yield _make_bisect_offer(context, part, failed_run, test, run.head, moment(run.ran_at, context.local))
        return
    if failing and git.commits_since_tag and git.tag and is_usable(git.tag):
        yield _make_bisect_offer(context, part, failed_run, failing[0], git.tag, "")
        return
    written = next((test for test in failing if test in part.test_written_in), None)
    if written is not None:
        yield _make_bisect_offer(context, part, failed_run, written, part.test_written_in[written], "")


def _make_bisect_offer(
    context: WorkspaceContext, part: Part, failed_run: ValidationRun, test: str, good: str, passed_at: str
) -> Offer:
    """The offer of a bisect from the commit `good` to HEAD, at which tests failed in `failed_run`. `passed_at` is when
    the test passed at `good`, "" if no such run is known."""
    git, name = context.repository, shorten_test(test)
    last = git.recent[0]
    others = count_others(failed_run.check.failing, ", with ")
    since = min(run.ran_at for run in part.runs if run.head == git.head and run.clean and test in run.check.failing)
    if not passed_at and good == part.test_written_in.get(test):
        prompt = f"Find what broke `{name}`: look back to {good[:7]}"
        reason = f"It fails at HEAD{others}. No passing run is known; {good[:7]} last changed it, and may have passed."
    elif not passed_at:
        prompt = f"Find what broke `{name}`: look back to {plain(good, 30)}"
        reason = f"It fails at HEAD{others}. No passing run of it is known; {plain(good, 30)} may have passed."
    elif last.parents[:1] == (good,):
        prompt = f"Confirm that “{plain(last.subject, 50)}” broke `{name}`"
        reason = f"It passed one commit before ({passed_at}) and has failed since{others}."
    else:
        prompt = f"Find the commit that broke `{name}`"
        reason = f"It passed at {good[:7]} ({passed_at}) and fails at HEAD{others}."
    return Offer(
        prompt,
        reason,
        subject=test,
        parameters={"test": test, "good": good, "bad": git.head},
        evidence_at=since,
        tier=None if passed_at else Tier.BLOCKS,  # whether it passed there is a guess
    )


def _find_bisected_tests(context: WorkspaceContext, part: Part) -> set[str]:
    """The tests for which a bisect from this HEAD has already named a commit. Another bisect would say the same."""
    bisects = find_ended_sessions(context, part.project.path, "bisect")
    done = {session.id for session in bisects if session.state is SessionState.SUCCEEDED}
    answers = (run for run in part.runs if run.session_id in done and run.head == context.repository.head)
    return {test for run in answers for test in run.check.failing}


@template
def undo_landing(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """Tests passed, then changes of a session were landed, and on the same commit the tests have failed since.

    The landing is only blamed if nothing else can be the cause: the run that passed saw the files just before it, and
    the last run those just after it. Otherwise `check_clean_head` comes first.
    """
    git, last = context.repository, part.runs[0] if part.runs else None
    if last is None or last.check.green or last.head != git.head:
        return
    earlier = (
        landing
        for landing in context.landings
        if landing.change.decided_at and landing.change.decided_at <= last.ran_at
    )
    landing = next(earlier, None)
    if landing is None or not context.saw_tree(last, landing.tree_after):
        return
    change, landed_at = landing.change, landing.change.decided_at
    if landed_at is None or context.now - landed_at > RECENT_LANDING:
        return
    before = [
        run
        for run in part.runs
        if run.head == last.head and run.ran_at <= landed_at and context.saw_tree(run, landing.tree_before)
    ]
    unreliable = {test for test, _ in find_unreliable_tests(part.runs)}
    broken = [
        test for test in select_usable_failures(last) if test not in unreliable and _find_newest_verdict(before, test)
    ]
    if not broken:
        return
    passed = max(run.ran_at for run in before if read_verdict_on(run, broken[0]))
    name, others = shorten_test(broken[0]), count_others(broken, noun="other test")
    yield Offer(
        f"Undo the landing of “{plain(change.title, 50)}”, which broke `{name}`{others}",
        f"`{name}` passed at {moment(passed, context.local)}, the change was landed at "
        f"{moment(landed_at, context.local)}, and it has failed since. Between these runs, git sees no other change.",
        subject=change.id,
        facts={"change_set": change.id, "tests": broken[:MAX_PATHS]},
        parameters={"change_set": change.id},
        evidence_at=last.ran_at,
    )


def _find_newest_verdict(runs: Sequence[ValidationRun], test: str) -> bool | None:
    """Whether a test passed in the newest of these runs that says so, None if none does."""
    return next((verdict for run in runs if (verdict := read_verdict_on(run, test)) is not None), None)


@template
def rehearse_revert(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """A bisect named the commit that broke a test. HEAD still has it, and no later run shows that the test passes."""
    git = context.repository
    if not git.head:
        return
    for session in find_ended_sessions(context, part.project.path, "rehearse_revert", "bisect"):
        reverted = session.flow == "rehearse_revert" and session.state is SessionState.SUCCEEDED
        if reverted and not session.facts.get("conflicts"):
            return  # the revert is newer than the bisects that follow
        run = next((run for run in part.runs if run.session_id == session.id), None)
        sha, commit_subject = find_culprit(session)
        if not sha or run is None:
            continue
        tests = select_usable_failures(run)
        is_in_history = run.head in {git.head, *context.ancestors}
        if not tests or not is_in_history or _is_repaired(context, part, run, commit_subject):
            return
        name, subject = shorten_test(tests[0]), plain(commit_subject, 50)
        parameters = {"commit": sha, "test": tests[0]}
        yield Offer(
            f"Revert “{subject}” in a worktree and run `{name}` and the whole suite",
            f"{sha} broke `{name}`, and nothing has fixed it since. You land the revert or discard it.",
            subject=tests[0],
            facts=parameters,
            parameters=parameters,
            evidence_at=run.ran_at,
        )


def _is_repaired(context: WorkspaceContext, part: Part, bisect_run: ValidationRun, commit_subject: str) -> bool:
    """Whether a test that a bisect was about passes again, or the commit that it found was reverted since."""
    newer = part.runs[: part.runs.index(bisect_run)]
    if any(read_verdict_on(run, test) for run in newer for test in select_usable_failures(bisect_run)):
        return True
    later = [commit for commit in context.repository.recent if commit.at >= bisect_run.ran_at]
    return any(commit.subject == f'Revert "{commit_subject}"' for commit in later)


def find_culprit(session: SessionView) -> tuple[str, str]:
    """The commit that a bisect found, and its subject. Both are "" if the session is no bisect or found none."""
    facts = session.facts if session.flow == "bisect" else {}
    return str(facts.get("culprit", ""))[:10], str(facts.get("subject", ""))


def _collect_bisected_tests(context: WorkspaceContext, part: Part) -> set[str]:
    """The tests of which a bisect named the commit that broke them, and which did not pass on your files since."""
    tests: set[str] = set()
    for session in find_ended_sessions(context, part.project.path, "bisect"):
        run = next((run for run in part.runs if run.session_id == session.id), None)
        if run is not None and find_culprit(session)[0]:
            newer = [other for other in part.tree_runs if other.ran_at > run.ran_at]
            tests.update(
                test for test in select_usable_failures(run) if not any(read_verdict_on(other, test) for other in newer)
            )
    return tests


@template
def still_red(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """The last run failed, and nothing changed since. The card offers to group the failures by cause. A single failing
    test is run without the others, once; if it was alone already, that would be the same run. If only a bisect ran it
    alone, and found no commit, nothing else would be offered for it."""
    last = part.last_tree_run
    if part.tool is None or last is None or last.check.green or part.changed:
        return
    tests = select_usable_failures(last)[:MAX_PATHS]
    if not tests or not part.tool.runs_single_tests or not last.check.counted:
        return
    narrowed = find_ended_sessions(context, part.project.path, "narrow_failures")
    if any(session.id == last.session_id or session.created_at > last.ran_at for session in narrowed):
        return
    if _collect_bisected_tests(context, part).issuperset(tests):
        return  # each failed without the others, at the commit that broke it
    prompt = f"Run the {len(tests)} failing tests alone and group the failures by cause"
    if len(tests) == 1:
        if _failed_alone(context, part, last, tests[0]) or part.passes_without_changes(context.repository.head):
            return  # it would be the same run, or the answer is known
        prompt = f"Run `{shorten_test(tests[0])}` alone: does it fail without the other tests?"
    yield Offer(
        prompt,
        f"{describe_result(last.check)} at {moment(last.ran_at, context.local)}, and nothing changed since.",
        subject=" ".join(sorted(tests)),
        facts={"tests": sorted(tests), "tree": last.tree or last.head},
        parameters={"tests": tests},
        evidence_at=last.ran_at,
    )


def _failed_alone(context: WorkspaceContext, part: Part, last: ValidationRun, test: str) -> bool:
    """Whether a test failed alone on the files of the last run. A run of a bisect that found no commit does not
    count."""
    bisects = find_ended_sessions(context, part.project.path, "bisect")
    undecided = {session.id for session in bisects if not find_culprit(session)[0]}
    return any(
        run.tree == last.tree and find_test_that_failed_alone(run) == test and run.session_id not in undecided
        for run in part.tree_runs
    )


@template
def apply_fix(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """A test failed in the last run in the same way as once before, and the diff that fixed it then is known."""
    last = part.last_tree_run
    if part.tool is None or last is None or last.check.green:
        return
    session = next((session for session in context.sessions if session.id == last.session_id), None)
    signatures = session.facts.get("signatures", {}) if session is not None else {}
    tried = {
        session.facts.get("fix")
        for session in find_ended_sessions(context, part.project.path, "apply_fix")
        if session.created_at > last.ran_at and session.state is SessionState.SUCCEEDED
    }
    failing = select_usable_failures(last)
    for fix in context.fixes:
        tests = [test for test in failing if fix.has_same_cause(test, signatures.get(test, ""))][:MAX_FIXED_TESTS]
        if not tests or fix.id in tried or fix.template.project != part.project.path:
            continue
        if not _parse_patched_files(fix.template.patch).isdisjoint(file.path for file in part.changed):
            continue  # you may have fixed it; `rerun_failing` comes first
        name, title = shorten_test(tests[0]), plain(fix.title.partition(" in a worktree ")[0], 50)
        cause = plain(signatures.get(tests[0], "").rpartition(" in ")[0], 60)
        yield Offer(
            f"Apply “{title}” again in a worktree and run `{name}`{count_others(tests)}",
            f"`{name}` fails{f' with “{cause}”' if cause else ''} as it did before this change, which fixed it at "
            f"{moment(fix.at, context.local)}. You land the diff or discard it.",
            subject=" ".join(sorted(tests)),
            facts={"fix": fix.id, "tests": sorted(tests), "run": last.session_id or last.ran_at.isoformat()},
            parameters={"fix": fix.id, "tests": tests, "patch": fix.template.patch},
            evidence_at=last.ran_at,
        )


def _parse_patched_files(patch: str) -> set[str]:
    """The paths of the files that a diff of git changes."""
    names = re.findall(r"^(?:---|\+\+\+) (.+?)\t?$", patch, re.MULTILINE)
    return {unquote_name(name).partition("/")[2] for name in names}
