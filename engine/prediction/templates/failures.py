"""Cards about tests that fail: which commit or landing broke them, what they have in common, a fix that is known."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from engine.model import SessionState, SessionView, Tier
from engine.model.text import moment, plain
from engine.prediction.context import Part, WorkspaceContext, result_words
from engine.prediction.templates.offers import (
    MAX_PATHS,
    Offer,
    and_others,
    ended_sessions,
    is_usable,
    short_test,
    template,
    usable_failures,
)
from engine.storage.validation_runs import ValidationRun, flipped_tests, verdict_on

RECENT_LANDING = timedelta(days=7)

MAX_FIXED = 5
"""Maximum number of tests named that a known fix may mend."""


@template
def bisect(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """HEAD fails a test that passed at an older commit, or, where no such run is known, perhaps at the last tag."""
    git = context.repository
    if not git.head or part.tool is None or not part.tool.runs_single_tests:
        return
    red = next((run for run in part.runs if run.head == git.head and run.clean), None)
    if red is None:
        return
    unfit = {test for test, _ in flipped_tests(part.runs)} | _last_bisect(context, part)
    failing = [test for test in usable_failures(red) if test not in unfit]
    older = part.runs[part.runs.index(red) + 1 :]
    for test in failing:
        for run in older:
            if run.clean and run.head in context.ancestors and verdict_on(run, test):
                yield _bisect_offer(context, part, red, test, run.head, moment(run.ran_at, context.local))
                return
    if failing and git.commits_since_tag and git.tag and is_usable(git.tag):
        yield _bisect_offer(context, part, red, failing[0], git.tag, "")


def _bisect_offer(
    context: WorkspaceContext, part: Part, red: ValidationRun, test: str, good: str, passed_at: str
) -> Offer:
    git, name = context.repository, short_test(test)
    last = git.recent[0]
    others = and_others(red.check.failing, ", with ")
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
        parameters={"test": test, "good": good, "bad": git.head},
        evidence_at=since,
        tier=None if passed_at else Tier.BLOCKS,  # whether it passed there is a guess
        about=test,
    )


def _last_bisect(context: WorkspaceContext, part: Part) -> set[str]:
    """The tests of which a bisect up to this very HEAD has said what broke them; to ask again would tell nothing."""
    bisects = ended_sessions(context, part.project.path, "bisect")
    done = {session.id for session in bisects if session.state is SessionState.SUCCEEDED}
    answers = (run for run in part.runs if run.session_id in done and run.head == context.repository.head)
    return {test for run in answers for test in run.check.failing}


@template
def undo_landing(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """Tests passed, then a change of ours was landed, and they fail since, on the same commit."""
    git, last = context.repository, part.runs[0] if part.runs else None
    if last is None or last.check.green or last.head != git.head:
        return
    landing = next((item for item in context.landings if item.decided_at and item.decided_at <= last.ran_at), None)
    if landing is None or landing.decided_at is None or context.now - landing.decided_at > RECENT_LANDING:
        return
    before = [
        run
        for run in part.runs
        if run.ran_at <= landing.decided_at and run.session_id != landing.session_id and run.head == last.head
    ]
    unfit = {test for test, _ in flipped_tests(part.runs)}
    broken = []
    for test in usable_failures(last):
        before_landing = next((verdict for run in before if (verdict := verdict_on(run, test)) is not None), None)
        if before_landing and test not in unfit:
            broken.append(test)
    if not broken:
        return
    passed = max(run.ran_at for run in before if verdict_on(run, broken[0]))
    name, others = short_test(broken[0]), and_others(broken, noun="other test")
    yield Offer(
        f"Undo the landing of “{plain(landing.title, 50)}”, which broke `{name}`{others}",
        f"`{name}` passed at {moment(passed, context.local)}, the change was landed at "
        f"{moment(landing.decided_at, context.local)}, and it has failed since.",
        subject=landing.id,
        facts={"change_set": landing.id, "tests": broken[:MAX_PATHS]},
        parameters={"change_set": landing.id},
        evidence_at=last.ran_at,
        about=f"{landing.title} {name}",
    )


@template
def rehearse_revert(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """A bisect named the commit that broke a test, HEAD still has it, and nothing says that the test passes again."""
    git = context.repository
    if not git.head:
        return
    for session in ended_sessions(context, part.project.path, "rehearse_revert", "bisect"):
        reverted = session.flow == "rehearse_revert" and session.state is SessionState.SUCCEEDED
        if reverted and not session.facts.get("conflicts"):
            return  # a newer one than any bisect below
        run = next((run for run in part.runs if run.session_id == session.id), None)
        sha, of = culprit(session)
        if not sha or run is None:
            continue
        newer = part.runs[: part.runs.index(run)]
        tests = usable_failures(run)
        mended = any(verdict_on(other, test) for other in newer for test in tests)
        reverted = any(commit.subject == f'Revert "{of}"' for commit in git.recent if commit.at >= run.ran_at)
        if not tests or mended or reverted or run.head not in {git.head, *context.ancestors}:
            return
        name, subject = short_test(tests[0]), plain(of, 50)
        yield Offer(
            f"Revert “{subject}” in a worktree and run `{name}` and the whole suite",
            f"{sha} broke `{name}`, and nothing has fixed it since. You land the revert or discard it.",
            subject=tests[0],
            parameters={"commit": sha, "test": tests[0]},
            evidence_at=run.ran_at,
            about=f"{name} {subject}",
        )
    return


def culprit(session: SessionView) -> tuple[str, str]:
    """The commit that a bisect found and its subject, "" when it is no bisect or found none."""
    facts = session.facts if session.flow == "bisect" else {}
    return str(facts.get("culprit", ""))[:10], str(facts.get("subject", ""))


@template
def still_red(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """The last run failed and nothing changed since: which of the failures are one and the same?"""
    last = part.here[0] if part.here else None
    if part.tool is None or last is None or last.check.green or part.changed:
        return
    tests = usable_failures(last)[:MAX_PATHS]
    if not tests or not part.tool.runs_single_tests or not last.check.counted:
        return
    narrowed = ended_sessions(context, part.project.path, "narrow_failures")
    if any(session.id == last.session_id or session.created_at > last.ran_at for session in narrowed):
        return
    which = f"`{short_test(tests[0])}`" if len(tests) == 1 else f"the {len(tests)} failing tests"
    yield Offer(
        f"Run {which} alone and group the failures by cause",
        f"{result_words(last.check)} at {moment(last.ran_at, context.local)}, and nothing changed since.",
        subject=" ".join(sorted(tests)),
        facts={"tests": sorted(tests), "tree": last.tree or last.head},
        parameters={"tests": tests},
        evidence_at=last.ran_at,
        about=" ".join(tests),
    )


@template
def apply_fix(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """The last run failed as a test failed once before, and the diff that turned it green then is known."""
    last = part.here[0] if part.here else None
    if part.tool is None or last is None or last.check.green:
        return
    session = next((entry for entry in context.sessions if entry.id == last.session_id), None)
    signatures = session.facts.get("signatures", {}) if session is not None else {}
    since = [
        other for other in ended_sessions(context, part.project.path, "apply_fix") if other.created_at > last.ran_at
    ]
    tried = {item.facts.get("fix") for item in since if item.state is SessionState.SUCCEEDED}
    failing = usable_failures(last)
    for fix in context.fixes:
        tests = [test for test in failing if fix.alike(test, signatures.get(test, ""))][:MAX_FIXED]
        if not tests or fix.id in tried or fix.template.project != part.project.path:
            continue
        name = short_test(tests[0])
        cause = plain(signatures.get(tests[0], "").rpartition(" in ")[0], 60)
        yield Offer(
            f"Apply the fix from {moment(fix.at, context.local)} in a worktree and run `{name}`{and_others(tests)}",
            f"`{name}` fails{f' with “{cause}”' if cause else ''} as it did before “{plain(fix.title, 50)}”, which "
            "fixed it. You land the diff or discard it.",
            subject=" ".join(sorted(tests)),
            facts={"fix": fix.id, "tests": sorted(tests), "run": last.session_id or last.ran_at.isoformat()},
            parameters={"fix": fix.id, "tests": tests, "patch": fix.template.patch},
            evidence_at=last.ran_at,
            about=" ".join(tests),
        )
    return
