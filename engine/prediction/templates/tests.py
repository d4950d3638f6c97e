"""What the project's own tests ask for: what they lack, run them, find what broke them, look at what stays red."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from engine.execution.runners.flows.failure_causes import TEST_FILE
from engine.execution.runners.toolchains.detection import Packages
from engine.execution.runners.toolchains.installing import Installation, installations, lock_updates
from engine.execution.runners.toolchains.project_tools import Toolchain
from engine.memory.validation_runs import PastRun, flipped_tests, seconds_of, verdict_on
from engine.model import Proposal, SessionState, SessionView, Tier
from engine.model.text import count, listing, moment, plain
from engine.prediction.context import Part, WorkspaceContext, result_words
from engine.prediction.templates.offers import (
    LONG_AGO,
    MOST_PATHS,
    Offer,
    branch_of,
    earliest,
    ended_sessions,
    is_usable,
    make_proposal,
    newest_commit,
    template,
    usable_names,
)

_TESTING = ("run_tests", "check_clean_head", "bisect", "hunt_flakes", "narrow_failures")


@template
def prepare_environment(context: WorkspaceContext, part: Part) -> Offer | None:
    """Its tests lack a tool or a package. That blocks you where they were tried or where you changed something; in a
    repository that you only look at it is upkeep."""
    git, where = context.repository, plain(part.project.path, 40) or "this project"
    if any(lock.folder == part.project.path for lock in context.locks):
        return None  # first the lock file: `update_lock`
    tried = _session_lacking_packages(context, part)
    at: datetime | None = LONG_AGO
    if tried is not None:
        reason, at = f"The tests of {where} could not run: {plain(tried.error.partition(' (')[0], 80)}", tried.ended_at
    elif part.project.lacks:
        reason = f"The tests of {where} need {plain(part.project.lacks, 30)}, which is not installed"
    else:
        return None
    changed_file = next((file for file in git.files if part.holds(file.path)), None)
    if tried is None and changed_file is not None:
        at = changed_file.modified_at
    blocks = tried is not None or changed_file is not None or any(part.holds(path) for path in git.own_files)
    usable_installations = _with_usable_commands(
        installations(Path(context.workspace), _packages(context), part.project.path)
    )
    if not usable_installations:
        return None
    installation = usable_installations[0]
    return Offer(
        f"Install the packages{part.within}: {plain(installation.command, 80)}",
        f"{reason}. {installation.words}.",
        subject="packages",
        facts={"command": installation.lines},  # what it could not bring it will not bring the next time
        parameters={"command": installation.lines},
        evidence_at=at,
        tier=Tier.BLOCKS if blocks else Tier.UPKEEP,
        about=f"install packages {part.project.path}",
    )


def _session_lacking_packages(context: WorkspaceContext, part: Part) -> SessionView | None:
    """The newest session that tried its tests, when these lacked a package and nothing was installed since."""
    for session in ended_sessions(context, part.project.path, "prepare_environment", *_TESTING):
        if session.flow in _TESTING:
            lacked = session.state is SessionState.CANNOT_RUN and "is not installed" in session.error
            return session if lacked else None
        if session.state is SessionState.SUCCEEDED:
            return None
    return None


def update_lock(context: WorkspaceContext, part: Part) -> list[Proposal]:
    """A lock file says something else than its manifest."""
    git = context.repository
    offers = []
    for mismatch in (lock for lock in context.locks if lock.folder == part.project.path):
        updates = _with_usable_commands(lock_updates(Path(context.workspace), _packages(context), part.project.path))
        update = next((item for item in updates if item.lock == mismatch.lock_path), None)
        if update is None:
            continue
        manifest = f"{mismatch.folder}/{mismatch.manifest}".removeprefix("/")
        changed = [file.modified_at for file in git.files if file.path == manifest and file.modified_at]
        more = f", and {mismatch.more} more" if mismatch.more else ""
        offers.append(
            Offer(
                f"Bring {plain(mismatch.lock_path, 50)} in step: {plain(update.command, 60)}",
                f"{plain(mismatch.differences[0], 120)}{more}. {update.words}.",
                subject=mismatch.lock_path,
                facts={"differences": mismatch.differences, "lock": mismatch.lock_path},
                parameters={"command": update.lines, **part.parameters},
                evidence_at=min(changed, default=newest_commit(git)),
            )
        )
    return [make_proposal(context, "update_lock", offer) for offer in offers]


def _packages(context: WorkspaceContext) -> dict[str, tuple[Packages, ...]]:
    return {part.project.path: part.project.packages for part in context.parts}


def _with_usable_commands(candidates: Sequence[Installation]) -> list[Installation]:
    """Those whose commands may become a parameter."""
    return [item for item in candidates if all(is_usable(line) for line in item.lines)]


TIMES = 20
DAY = timedelta(days=1)
QUARANTINE = timedelta(days=14)
RECENT_LANDING = timedelta(days=7)
FLIPPED = 5  # so many unreliable tests are hunted at once


@template
def run_tests(context: WorkspaceContext, part: Part) -> Offer | None:
    """The tests of what changed since the last run; where no run is known, of what is not pushed or not committed; else
    the whole suite, once."""
    git, tool = context.repository, part.tool
    if tool is None or part.project.lacks or not (git.head or git.files):
        return None
    if not part.here:
        return _first_run(context, part, tool)
    changed = [file for file in part.changed if not file.gone and part.tests(file.path) and is_usable(file.path)]
    if not changed:
        return None
    last = part.here[0]
    when = moment(last.ran_at, context.local)
    return _run_offer(
        context,
        part,
        [file.path for file in changed],
        f"{listing((file.path for file in changed), 3)} changed since {when} ({result_words(last.check)}).",
        facts={"run": last.session_id or last.ran_at.isoformat()},
        evidence_at=earliest(file.at for file in changed) or newest_commit(git),
    )


def _first_run(context: WorkspaceContext, part: Part, tool: Toolchain) -> Offer | None:
    git = context.repository
    files = [file for file in git.files if not file.deleted and part.tests(file.path)]
    uncommitted = usable_names(file.path for file in files)
    unpushed = usable_names(path for path in git.own_files if part.tests(path))
    for paths, reason, at in (
        (uncommitted, "Not committed yet", earliest(file.modified_at for file in files)),
        (unpushed, "Not pushed yet" if git.upstream else "On this branch alone", newest_commit(git)),
    ):
        if paths:
            reason = f"{reason}: {listing(paths, 3)}. No test run is known here."
            return _run_offer(context, part, paths, reason, facts={}, evidence_at=at)
    return Offer(
        f"Run the test suite{part.within} once with {plain(tool.title, 30)}",
        "No test run is known here. Later runs are compared with it.",
        subject="first run",
        facts={"tool": tool.name, "where": tool.where},
        parameters={"paths": []},
        evidence_at=LONG_AGO,
        kind="first_run",
    )


def _run_offer(
    context: WorkspaceContext,
    part: Part,
    paths: Sequence[str],
    reason: str,
    *,
    facts: Mapping[str, Any],
    evidence_at: datetime | None,
) -> Offer:
    git, whole = context.repository, len(paths) > MOST_PATHS
    return Offer(
        f"Run the whole suite{part.within}: {count(len(paths), 'file')} changed"
        if whole
        else f"Run the tests of {listing(paths)}",
        reason,
        subject=f"changes on {branch_of(git)}",
        facts={"paths": list(paths), "head": git.head, **facts},
        parameters={"paths": [] if whole else list(paths)},
        evidence_at=evidence_at,
        about=" ".join(paths),
    )


@template
def failing_ci(context: WorkspaceContext) -> Offer | None:
    """A check of this branch fails on the server, and the whole suite has not seen HEAD here."""
    git = context.repository
    part = next((item for item in context.parts if item.tool), None)
    if part is None or context.github is None:
        return None
    checks = [check.name for check in context.github.failing if check.branch == git.branch]
    if not checks or any(run.head == git.head and run.full for run in part.runs):
        return None
    return Offer(
        f"Run the whole suite here: CI fails on {plain(git.branch, 30)}",
        f"The check “{plain(checks[0], 40)}” failed on the server.",
        subject=branch_of(git),
        facts={"ci": sorted(checks), "head": git.head},
        parameters={"paths": [], **part.parameters},
        evidence_at=newest_commit(git),
    )


def short_test(test: str) -> str:
    """The name of a test: `test_cart` for `tests/test_cart.py::TestCart::test_cart`, in at most 40 characters. A dotted
    name that is longer is known by its last part."""
    name = test.rpartition("::")[2] or test
    if len(name) > 40 and name.replace(".", "").isidentifier():
        name = name.rpartition(".")[2]
    return plain(name, 40)


@template
def bisect(context: WorkspaceContext, part: Part) -> Offer | None:
    """HEAD fails a test that passed at an older commit, or, where no such run is known, perhaps at the last tag."""
    git = context.repository
    if not git.head or part.tool is None or not part.tool.exact:
        return None
    red = next((run for run in part.runs if run.head == git.head and run.clean), None)
    if red is None:
        return None
    unfit = {test for test, _ in flipped_tests(part.runs)} | _bisected(context, part)
    failing = [test for test in red.check.failing if test not in unfit and is_usable(test)]
    older = part.runs[part.runs.index(red) + 1 :]
    for test in failing:
        for run in older:
            if run.clean and run.head in context.ancestors and verdict_on(run, test):
                return _bisect_offer(context, part, red, test, run.head, moment(run.ran_at, context.local))
    if failing and git.commits_since_tag and git.tag and is_usable(git.tag):
        return _bisect_offer(context, part, red, failing[0], git.tag, "")
    return None


def _bisect_offer(context: WorkspaceContext, part: Part, red: PastRun, test: str, good: str, passed_at: str) -> Offer:
    git, name = context.repository, short_test(test)
    last = git.recent[0]
    others = f", with {count(len(red.check.failing) - 1, 'other')}" if len(red.check.failing) > 1 else ""
    since = min(run.ran_at for run in part.runs if run.head == git.head and run.clean and test in run.check.failing)
    if not passed_at:
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
        facts={"test": test, "good": good, "bad": git.head},
        parameters={"test": test, "good": good, "bad": git.head},
        evidence_at=since,
        tier=None if passed_at else Tier.BLOCKS,  # whether it passed there is a guess
        about=test,
    )


def _bisected(context: WorkspaceContext, part: Part) -> set[str]:
    """The tests of which a bisect up to this very HEAD has said what broke them; to ask again would tell nothing."""
    bisects = ended_sessions(context, part.project.path, "bisect")
    done = {session.id for session in bisects if session.state is SessionState.SUCCEEDED}
    answers = (run for run in part.runs if run.session_id in done and run.head == context.repository.head)
    return {test for run in answers for test in run.check.failing}


@template
def undo_landing(context: WorkspaceContext, part: Part) -> Offer | None:
    """Tests passed, then a change of ours was landed, and they fail since, on the same commit."""
    git, last = context.repository, part.runs[0] if part.runs else None
    if last is None or last.check.green or last.head != git.head:
        return None
    landing = next((item for item in context.landings if item.decided_at and item.decided_at <= last.ran_at), None)
    if landing is None or landing.decided_at is None or context.now - landing.decided_at > RECENT_LANDING:
        return None
    before = [
        run
        for run in part.runs
        if run.ran_at <= landing.decided_at and run.session_id != landing.session_id and run.head == last.head
    ]
    unfit = {test for test, _ in flipped_tests(part.runs)}
    broken = []
    for test in last.check.failing:
        before_landing = next((verdict for run in before if (verdict := verdict_on(run, test)) is not None), None)
        if before_landing and is_usable(test) and test not in unfit:
            broken.append(test)
    if not broken:
        return None
    passed = max(run.ran_at for run in before if verdict_on(run, broken[0]))
    name = short_test(broken[0])
    others = f" and {count(len(broken) - 1, 'other test')}" if len(broken) > 1 else ""
    return Offer(
        f"Undo the landing of “{plain(landing.title, 50)}”, which broke `{name}`{others}",
        f"`{name}` passed at {moment(passed, context.local)}, the change was landed at "
        f"{moment(landing.decided_at, context.local)}, and it has failed since.",
        subject=landing.id,
        facts={"change_set": landing.id, "tests": broken[:MOST_PATHS]},
        parameters={"change_set": landing.id},
        evidence_at=last.ran_at,
        about=f"{landing.title} {name}",
    )


@template
def rehearse_revert(context: WorkspaceContext, part: Part) -> Offer | None:
    """A bisect named the commit that broke a test, HEAD still has it, and nothing says that the test passes again."""
    git = context.repository
    if not git.head:
        return None
    for session in ended_sessions(context, part.project.path, "rehearse_revert", "bisect"):
        if session.flow == "rehearse_revert" and session.state is SessionState.SUCCEEDED:
            return None  # a newer one than any bisect below
        run = next((run for run in part.runs if run.session_id == session.id), None)
        sha, of = culprit(session)
        if not sha or run is None:
            continue
        newer = part.runs[: part.runs.index(run)]
        tests = [test for test in run.check.failing if is_usable(test)]
        mended = any(verdict_on(other, test) for other in newer for test in tests)
        reverted = any(commit.subject == f'Revert "{of}"' for commit in git.recent if commit.at >= run.ran_at)
        if not tests or mended or reverted or run.head not in {git.head, *context.ancestors}:
            return None
        name, subject = short_test(tests[0]), plain(of, 50)
        return Offer(
            f"Revert “{subject}” in a worktree and run `{name}` and the whole suite",
            f"{sha} broke `{name}`, and nothing has fixed it since. You land the revert or discard it.",
            subject=tests[0],
            facts={"commit": sha, "test": tests[0]},
            parameters={"commit": sha, "test": tests[0]},
            evidence_at=run.ran_at,
            about=f"{name} {subject}",
        )
    return None


def culprit(session: SessionView) -> tuple[str, str]:
    """The commit that a bisect found and its subject, "" when it is no bisect or found none."""
    facts = session.facts if session.flow == "bisect" else {}
    return str(facts.get("culprit", ""))[:10], str(facts.get("subject", ""))


@template
def still_red(context: WorkspaceContext, part: Part) -> Offer | None:
    """The last run failed and nothing changed since: which of the failures are one and the same?"""
    last = part.here[0] if part.here else None
    if part.tool is None or last is None or last.check.green or part.changed:
        return None
    tests = [test for test in last.check.failing if is_usable(test)][:MOST_PATHS]
    if not tests or not part.tool.exact or not last.check.counted:
        return None
    narrowed = ended_sessions(context, part.project.path, "narrow_failures")
    if any(session.id == last.session_id or session.created_at > last.ran_at for session in narrowed):
        return None
    which = f"`{short_test(tests[0])}`" if len(tests) == 1 else f"the {len(tests)} failing tests"
    return Offer(
        f"Run {which} alone and group the failures by cause",
        f"{result_words(last.check)} at {moment(last.ran_at, context.local)}, and nothing changed since.",
        subject=" ".join(sorted(tests)),
        facts={"tests": sorted(tests), "tree": last.tree or last.head},
        parameters={"tests": tests},
        evidence_at=last.ran_at,
        about=" ".join(tests),
    )


@template
def apply_fix(context: WorkspaceContext, part: Part) -> Offer | None:
    """The last run failed as a test failed once before, and the diff that turned it green then is known."""
    last = part.here[0] if part.here else None
    if part.tool is None or last is None or last.check.green:
        return None
    session = next((entry for entry in context.sessions if entry.id == last.session_id), None)
    signatures = session.facts.get("signatures", {}) if session is not None else {}
    judged = (SessionState.SUCCEEDED, SessionState.FAILED)
    since = [
        other for other in ended_sessions(context, part.project.path, "apply_fix") if other.created_at > last.ran_at
    ]
    tried = {item.facts.get("fix") for item in since if item.state in judged}
    failing = [test for test in last.check.failing if is_usable(test)]
    for fix in context.fixes:
        tests = [test for test in failing if fix.alike(test, signatures.get(test, ""))][:FLIPPED]
        if not tests or fix.id in tried or fix.template.project != part.project.path:
            continue
        name, others = short_test(tests[0]), f" and {count(len(tests) - 1, 'other')}" if len(tests) > 1 else ""
        cause = plain(signatures.get(tests[0], "").rpartition(" in ")[0], 60)
        return Offer(
            f"Apply the fix from {moment(fix.at, context.local)} in a worktree and run `{name}`{others}",
            f"`{name}` fails{f' with “{cause}”' if cause else ''} as it did before “{plain(fix.title, 50)}”, which "
            "fixed it. You land the diff or discard it.",
            subject=" ".join(sorted(tests)),
            facts={"fix": fix.id, "tests": sorted(tests), "run": last.session_id or last.ran_at.isoformat()},
            parameters={"fix": fix.id, "tests": tests, "patch": fix.template.patch},
            evidence_at=last.ran_at,
            about=" ".join(tests),
        )
    return None


@template
def rerun_failing(context: WorkspaceContext, part: Part) -> Offer | None:
    """The last run failed and something changed since: the same tests again."""
    if part.tool is None or not part.here:
        return None
    last = part.here[0]
    failing = [test for test in last.check.failing if is_usable(test)]
    if last.check.green or not failing:
        return None
    deleted = {part.project.within(file.path) for file in part.changed if file.gone}
    some = part.tool.exact and last.check.counted and len(failing) <= MOST_PATHS
    some = some and deleted.isdisjoint(test.partition("::")[0] for test in failing)
    if some and not part.changed:
        return None  # `still_red` says more
    which = f"`{short_test(failing[0])}`" if len(failing) == 1 else f"the {len(failing)} failed tests"
    changed = f"; {listing(file.path for file in part.changed)} changed since" if part.changed else ""
    return Offer(
        f"Run {which} again" if some else f"Run the whole suite{part.within} again",
        f"{result_words(last.check)} at {moment(last.ran_at, context.local)}{changed}.",
        subject="what failed last",
        facts={
            "run": last.session_id or last.ran_at.isoformat(),
            "changed": [item.path for item in part.changed],
        },
        parameters=({"tests": failing} if some else {"paths": []}),
        evidence_at=last.ran_at,
    )


@template
def hunt_flakes(context: WorkspaceContext, part: Part) -> Offer | None:
    """Tests that failed and passed on the same files, or whose quarantine is over."""
    if part.tool is None or not part.tool.exact:
        return None
    today = context.local.date()
    quarantined = _quarantined(context, part)
    resting = {test for test, until in quarantined if until > today}
    over = [(test, until) for test, until in quarantined if until <= today and is_usable(test)][:FLIPPED]
    flipped = [
        (test, tree)
        for test, tree in flipped_tests(part.runs)
        if is_usable(test) and without_parameters(test) not in resting
    ]
    facts: dict[str, Any]
    if over:
        days = ", ".join(dict.fromkeys(f"{until.day} {until:%B}" for _, until in over))
        tests, which = [test for test, _ in over], "it is steady" if len(over) == 1 else "they are steady"
        reason = f"{'Its' if len(over) == 1 else 'Their'} quarantine ended on {days}; if {which}, take the skip away."
        facts, at = {"until": [until.isoformat() for _, until in over]}, None
    elif flipped and part.runs:
        tests, facts = [test for test, _ in flipped[:FLIPPED]], {"tree": flipped[0][1]}
        reason = "Two runs of the same files disagree about " + ("it." if len(tests) == 1 else "them.")
        at = part.runs[0].ran_at
    else:
        return None
    names = listing((short_test(test) for test in tests), 2, 40)
    return Offer(
        f"Run {names} {TIMES} times: unreliable?",
        reason,
        subject=" ".join(sorted(tests)),
        facts={"tests": sorted(tests), **facts},
        parameters={"tests": tests, "times": TIMES},
        evidence_at=at,
        about=" ".join(tests),
    )


def without_parameters(test: str) -> str:
    """A test of pytest without its parameters: `t.py::test_a` for `t.py::test_a[1-2]`."""
    return test.partition("[")[0]


def _quarantined(context: WorkspaceContext, part: Part) -> list[tuple[str, date]]:
    """The tests of a project that are in quarantine, as its tool names them, and until when."""
    entries = [
        (part.project.within(item.test), item.until) for item in context.inspection.quarantined if part.holds(item.test)
    ]
    return [(test, until) for test, until in entries if test is not None]


@template
def quarantine(context: WorkspaceContext, part: Part) -> Offer | None:
    """A hunt found tests unreliable: skip them for two weeks, and say so again when these are over."""
    if part.tool is None:
        return None
    hunts = ended_sessions(context, part.project.path, "hunt_flakes")
    last = next((hunt for hunt in hunts if hunt.state is SessionState.SUCCEEDED), None)
    today = context.local.date()
    resting = {test for test, until in _quarantined(context, part) if until > today}
    results = last.facts.get("tests", ()) if last is not None else ()
    flaky = [
        result
        for result in results
        if result["verdict"] == "flaky"
        and ".py::" in result["test"]
        and is_usable(result["test"])
        and without_parameters(result["test"]) not in resting
    ]
    if last is None or not flaky:
        return None
    until, tests = today + QUARANTINE, [item["test"] for item in flaky[:FLIPPED]]
    failed, times = flaky[0]["failed"], flaky[0]["runs"]
    names = listing((short_test(test) for test in tests), 2, 40)
    return Offer(
        f"Skip {names} until {until.day} {until:%B}",
        f"{short_test(tests[0])} failed {failed} of {times} times; a card comes back when the two weeks are over.",
        subject=" ".join(sorted(tests)),
        facts={"hunt": last.id},
        parameters={
            "tests": tests,
            "until": until.isoformat(),
            "why": f"flaky: failed {failed} of {times}",
        },
        evidence_at=last.ended_at,
        about=" ".join(tests),
    )


SLOWER, SLOWER_SECONDS, MEASURED_RUNS = 2.0, 1.0, 5


@template
def slower_tests(context: WorkspaceContext, part: Part) -> Offer | None:
    """A test took at least twice as long, and a second longer, in both of the last two green runs as it usually did."""
    tool = part.tool
    runs = [run for run in part.runs if run.check.green and run.check.durations]
    if tool is None or not tool.exact or len(runs) < MEASURED_RUNS:
        return None
    slow: list[tuple[float, float, str, str]] = []
    for test, _ in runs[0].check.durations:
        now = [seconds for run in runs[:2] if (seconds := seconds_of(run, test)) is not None]
        earlier = [(seconds, run) for run in runs[2:] if (seconds := seconds_of(run, test)) is not None]
        if len(now) < 2 or len(earlier) < MEASURED_RUNS - 2 or not is_usable(test):
            continue
        usual = median(seconds for seconds, _ in earlier)
        fast = [
            run.head
            for seconds, run in earlier
            if run.clean and seconds <= usual * 1.5 and run.head in context.ancestors
        ]
        if fast and min(now) >= SLOWER * usual and min(now) - usual >= SLOWER_SECONDS:
            slow.append((min(now) - usual, usual, test, fast[0]))
    if not slow:
        return None
    more, usual, test, fast_head = max(slow)
    return Offer(
        f"Time `{short_test(test)}` at HEAD and at {fast_head[:7]}",
        f"`{short_test(test)}` took {usual + more:.1f} s in the last two runs, and {usual:.1f} s before.",
        subject=test,
        facts={"test": test, "fast": fast_head, "head": context.repository.head},
        parameters={"tests": [test], "fast": fast_head},
        evidence_at=runs[1].ran_at,
        about=test,
    )


@template
def check_clean_head(context: WorkspaceContext, part: Part) -> Offer | None:
    """You committed, and a new source file beside that is in no commit: does HEAD pass without it?"""
    git = context.repository
    has_own_commits = git.own_files or any(
        git.is_mine(commit) and context.now - commit.at < DAY for commit in git.recent[:1]
    )
    if not has_own_commits or part.tool is None or part.project.lacks:
        return None
    tried = ended_sessions(context, part.project.path, "run_tests", "check_clean_head")[:1]
    if any(item.state is SessionState.CANNOT_RUN for item in tried):
        return None  # until what they lack is there, they lack it at HEAD, too
    if any(run.head == git.head and run.clean and run.full for run in part.runs):
        return None
    new = [file for file in git.untracked if part.tests(file.path) and not TEST_FILE.search(file.path)]
    files = usable_names(file.path for file in new)
    if not files:
        return None
    return Offer(
        f"Does HEAD pass without {listing(files)}?",
        f"{'It is' if len(files) == 1 else 'They are'} in no commit: others get "
        f"{plain(git.branch, 30) or 'HEAD'} without {'it' if len(files) == 1 else 'them'}.",
        subject=branch_of(git),
        facts={"head": git.head, "files": files},
        parameters={"files": files[: 4 * MOST_PATHS]},
        evidence_at=earliest(file.modified_at for file in new),
        about=" ".join(files),
    )
