"""Signs, tones and words of the states of sessions, rails and holds; the work and the risk of a card in words; the work
while the operator was away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from clawpy_console import formats
from clawpy_console.fields import Document, Field, Label
from clawpy_console.formats import one_line
from engine.model import (
    PROBLEM_FOUND,
    Card,
    GateRuleName,
    RailVerdict,
    Signal,
    Verdict,
    describe_outcome,
    label_outcome,
)
from engine.model.text import failures

# States


VERDICT_SIGNS = {Verdict.ALLOW: ("✓", "grey"), Verdict.ASK: ("▲", "wants"), Verdict.BLOCK: ("✗", "wrong")}
"""Sign and tone of each verdict of a rail."""

CARD_LABELS = {"confirmed": "approved", "rejected": "dismissed", "executed": "finished"}
"""States of cards whose stored name is not a word that you would use."""

DECISION_LABELS = {"original": "edited", "did_himself": "done by you"}
"""The same for your decisions."""

SESSION_SIGNS = {
    "queued": ("○", "faint"), "running": ("◐", "accent"), "succeeded": ("✓", "grey"), "failed": ("✗", "wrong"),
    "cannot_run": ("○", "wants"), "cancelled": ("✗", "grey"), "blocked": ("✗", "wrong"),
    "interrupted": ("✗", "wants"), "discarded": ("✗", "grey"), PROBLEM_FOUND: ("▲", "wants"),
}  # fmt: skip
"""Sign and tone of each state and outcome of a session."""

TEST_RUNS = (None, "run_tests")
"""The flows whose outcome is the number of tests that failed; None is an agent's work. Other flows use tests only as a
means."""


def make_outcome_label(state: str, result: str | None, flow: str | None, failed: int, errors: int) -> Label:
    """How a session stands. Its tests `failed`, or had `errors`."""
    if state == "succeeded" and result == "failed":
        words = failures(failed, errors) if flow in TEST_RUNS and failed + errors else PROBLEM_FOUND
        return Label(*SESSION_SIGNS[PROBLEM_FOUND], words)
    return Label(*SESSION_SIGNS[state], label_outcome(state))


def describe_origin(mode: str) -> str:
    """`by itself: ` before the prompt of a session that nobody approved, "" for others."""
    return "by itself: " if mode == "autonomous" else ""


# Cards

FLOWS_BY_WORK = {
    "tests": (
        "run_tests",
        "check_clean_head",
        "hunt_flakes",
        "narrow_failures",
        "quarantine",
        "time_tests",
        "uncovered_lines",
    ),
    "bisect": ("bisect",),
    "lint": ("lint", "fix_lint"),
    "fix": ("apply_fix",),
    "merge": ("rehearse_merge", "forecast_conflicts", "unfinished_operation"),
    "revert": ("rehearse_revert",),
    "rebase": ("rehearse_autosquash",),
    "undo": ("undo_landing",),
    "branches": ("report_branches", "keep_commits"),
    "review": ("review_unpushed", "look_at_changes", "look_at_pull_request", "look_together", "look_at_stash"),
    "debugging": ("look_for_leftovers", "remove_leftovers"),
    "docs": ("look_at_mentions", "update_docs", "write_agents_md"),
    "release": ("look_at_release", "draft_changelog"),
    "summary": ("summarise_day",),
    "packages": ("prepare_environment", "update_lock"),
    "disk": ("reclaim_space",),
}  # fmt: skip
"""The work of flows in a word, with the flows that do it."""

_WORK_BY_FLOW = {flow: work for work, flows in FLOWS_BY_WORK.items() for flow in flows}


def name_work(card: Card) -> str:
    """The work of a flow in a word, such as `tests`; a learned flow by its name; without a flow the channel."""
    flow = card.assignment.flow
    return _WORK_BY_FLOW.get(flow, flow.replace("_", " ")) if flow else card.assignment.channel


def describe_signal(signal: Signal) -> tuple[str, str]:
    """The name of a signal and its evidence."""
    name = "talk" if signal.name == "conversations" else signal.name
    return name, one_line(signal.error or "; ".join(signal.evidence)) or "nothing"


CHANGES_BY_FLOW = {
    "keep_commits": "makes a branch", "prepare_environment": "installs packages",
    "undo_landing": "undoes a landing", "reclaim_space": "deletes what is not needed any more",
}  # fmt: skip
"""The changes of flows that change something else than files which wait to be landed."""

NO_SANDBOX = "no sandbox on this machine"


def describe_changes(flow: str | None, check_only: bool, without_sandbox: bool) -> str:
    """The changes that a card may make. Nothing that runs without a sandbox is called read-only."""
    if check_only:
        return "only checks, without a sandbox" if without_sandbox else "read-only"
    return CHANGES_BY_FLOW.get(flow or "", "you land the changes")


def describe_open_comments(sent: Sequence[bool]) -> str:
    """How many comments on changes that land have no answer, whether each was `sent` or not; "" for none."""
    numbers = {"not sent": sent.count(False), "not answered": sent.count(True)}
    return ", ".join(
        f"{formats.count(number, 'comment')} of yours {words}" for words, number in numbers.items() if number
    )


def explain_cannot_run(flow: str | None) -> str:
    """Said of a card that nothing can run."""
    return "This cannot run yet." if flow else "No model or agent can run this yet."


def describe_work(card: Card) -> str:
    """The estimated cost of a card, what it changes, what runs it and what undoes it, where anything can run it."""
    if not card.can_run:
        return explain_cannot_run(card.assignment.flow)
    runs = f"runs: {card.assignment.flow or one_line(card.consent_text) or card.assignment.runner}"
    touches = describe_changes(card.assignment.flow, card.check_only, card.without_sandbox)
    parts = [f"est. {formats.money(card.estimate)}"] if card.estimate else []
    parts += [touches, runs]
    session_id = card.assignment.parameters.get("continues")
    if session_id and card.assignment.flow is None:
        parts.append(f"continues {session_id}")
    undo = one_line(card.undo_note)
    parts.append(undo if undo.startswith("nothing to undo") else f"undo: {undo}")
    return " · ".join(parts)


# Risk


def find_approval_risk(card: Card) -> str:
    """Why a card is risky, "" when it is not: no sandbox works here, the content filter asks, or it touches production.

    Approving such a card needs a second, distinct key.
    """
    return "; ".join(filter(None, (NO_SANDBOX if card.needs_confirmation else "", _find_rail_risk(card))))


def _find_rail_risk(card: Card) -> str:
    for verdict in card.verdicts:
        if verdict.rail == "content" and verdict.verdict is Verdict.ASK:
            return one_line(verdict.reason)
        if verdict.applies(GateRuleName.PRODUCTION):
            reasons = (reason for reason in verdict.reasons if "production" in reason)
            return one_line(next(reasons, verdict.reason))
    return ""


def find_blocking_verdict(card: Card) -> RailVerdict | None:
    """The first rail that would block the card now."""
    return next((verdict for verdict in card.verdicts if verdict.verdict is Verdict.BLOCK), None)


# Holds


HOLD_NAMES = {"stop": "stop", "config": "setting", "api": "gateway's switch", "month": "month stop", "pause": "pause"}
"""The names of stops and pauses, by the word of each."""

SWITCH_ON = "`clawpy config set crossPollEnabled true`"
"""The command that ends the hold `config`, in place of `resume`."""


def make_hold_field(word: str, reason: str, since: str, how: str, remaining: str = "") -> Field:
    """A stop, a month stop or a pause: `how` to resume, and the `remaining` time where it ends by itself. `since` is ""
    where that is not known."""
    end = f", over in {remaining}" if remaining else ""
    begin = f"Since {since}: " if since else ""
    text = f"{SWITCH_ON if word == 'config' else how} to resume{end}. {begin}{one_line(reason)}"
    return Field(f"■ {HOLD_NAMES[word]}", text, "wrong" if word == "stop" else "wants")


LEARNED_FORMS: Mapping[str, tuple[str, str]] = {
    "learnings": ("learning promoted", "learnings promoted"),
    "facts": ("fact kept", "facts kept"),
    "proposed": ("candidate to review", "candidates to review"),
    "inForceByItself": ("candidate activated without you", "candidates activated without you"),
}
"""The kinds of things that were learned, by key in the document, in words for one and for several."""


def make_absence_fields(document: Document) -> Iterator[Field]:
    """Sessions, blocks, decisions, learnings and costs; no fields when nothing happened."""
    ran, blocked = document["ran"], document["blocked"]
    approved, dismissed, counts_learned = document["approved"], document["rejected"], document["learnt"]
    learned = [
        formats.count(counts_learned[key], *forms) for key, forms in LEARNED_FORMS.items() if counts_learned[key]
    ]
    if not (ran or blocked or approved or dismissed or learned):
        return
    yield Field("done", _describe_ended_sessions(ran))
    if blocked:
        counts = Counter(entry["rail"] for entry in blocked)
        rails = ", ".join(f"{rail} {count}" for rail, count in counts.most_common())
        yield Field("blocked", f"{len(blocked)} by the rails: {rails}")
    by_itself, decisions = document["approvedByItself"], document["decisions"]
    could_not_run = sum(session["state"] == "cannot_run" and session["mode"] == "approved" for session in ran)
    numbers = {"by itself": by_itself, "could not run": could_not_run}
    yield Field("approved", ", ".join([f"{approved}", *_count_exceptions(numbers)]))
    yield Field("dismissed", f"{dismissed}")
    basis = f", from {formats.count(decisions, 'decision')}" if decisions else ""
    yield Field("learned", f"{', '.join(learned) or 'nothing new'}{basis}")
    if document["spent"]:
        yield Field("spent", f"${document['spent']:.2f}")


def _describe_ended_sessions(sessions: Sequence[Document]) -> str:
    """`3 sessions, 1 found a problem, 1 did not finish`."""
    problems = sum(describe_outcome(session["state"], session["result"]) == PROBLEM_FOUND for session in sessions)
    unfinished = sum(session["state"] not in ("succeeded", "discarded") for session in sessions)
    numbers = {"found a problem": problems, "did not finish": unfinished}
    return ", ".join([formats.count(len(sessions), "session"), *_count_exceptions(numbers)])


def _count_exceptions(numbers: Mapping[str, int]) -> list[str]:
    """`2 could not run` for each of these that there is."""
    return [f"{number} {words}" for words, number in numbers.items() if number]
