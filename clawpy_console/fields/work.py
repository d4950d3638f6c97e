"""Work in words, for screens and verbs, from before it runs to after: what a card would change, how a session stands,
what stops all work or soon will, and what was done while you were away.

`make_hold_field` and `make_absence_fields` make fields; the other functions make the words and signs of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clawpy_console import formats
from clawpy_console.fields import SIGNS, WORDS, Document, Field, Fields, Label
from clawpy_console.formats import one_line
from engine.model import PROBLEM_FOUND, describe_outcome, label_outcome
from engine.wording import failures

# Before it runs


def explain_cannot_run(flow: str | None) -> str:
    """Said of a card that nothing can run."""
    return "This cannot run yet." if flow else "No model or agent can run this yet."


def describe_changes(changes: str, *, check_only: bool, without_sandbox: bool) -> str:
    """The changes that a card may make: its own `changes`, except that nothing which runs without a sandbox is called
    read-only."""
    return "only checks, without a sandbox" if check_only and without_sandbox else changes


# Sessions


SESSION_SIGNS = SIGNS["session"]
"""Sign and tone of each state and outcome of a session."""

TEST_RUNS = (None, "run_tests")
"""The flows whose outcome is the number of tests that failed; None is an agent's work. Other flows use tests only as a
means."""


def make_outcome_label(state: str, result: str | None, flow: str | None, failed: int, errors: int) -> Label:
    """How a session stands. Its tests `failed`, or had `errors`."""
    if state == "succeeded" and result == "failed":
        sign, tone = SESSION_SIGNS[PROBLEM_FOUND]
        return Label(sign, tone, failures(failed, errors) if flow in TEST_RUNS and failed + errors else PROBLEM_FOUND)
    sign, tone = SESSION_SIGNS[state]
    return Label(sign, tone, label_outcome(state))


def describe_origin(mode: str) -> str:
    """`by itself: ` before the prompt of a session that nobody approved, "" for others."""
    return "by itself: " if mode == "autonomous" else ""


def describe_open_comments(sent: Sequence[bool]) -> str:
    """How many comments on changes that land have no answer, whether each was `sent` or not; "" for none."""
    numbers = {"not sent": sent.count(False), "not answered": sent.count(True)}
    return ", ".join(
        f"{formats.count(number, 'comment')} of yours {words}" for words, number in numbers.items() if number
    )


# Stops, pauses and caps


HOLD_NAMES = WORDS["hold"]
"""The names of stops and pauses, by the word of each."""

SWITCH_ON = "`clawpy config set crossPollEnabled true`"
"""The command that ends the hold `config`, in place of `resume`."""


def choose_cost_tone(used: int, cap: int) -> str:
    """The tone of costs that have `used` so much of a cap, both in micro-dollars: "wants" from 80 % of the cap on,
    "wrong" from the cap on, "" below. A cap of 0 is reached before anything costs money."""
    if used >= cap:
        return "wrong"
    return "wants" if used >= cap * 0.8 else ""


def make_hold_field(word: str, reason: str, since: str, how: str, remaining: str = "") -> Field:
    """A stop, a month stop or a pause: `how` to resume, and the `remaining` time where it ends by itself. `since` is ""
    where that is not known."""
    end = f", over in {remaining}" if remaining else ""
    begin = f"Since {since}: " if since else ""
    text = f"{SWITCH_ON if word == 'config' else how} to resume{end}. {begin}{one_line(reason)}"
    return Field(f"■ {HOLD_NAMES[word]}", text, "wrong" if word == "stop" else "wants")


# While you were away


def make_absence_fields(document: Document) -> Fields:
    """Sessions, blocks, decisions, learnings and costs; no fields when nothing happened."""
    ran, blocked = document["ran"], document["blocked"]
    approved, dismissed = document["approved"], document["rejected"]
    counts = document["learnt"]
    learned = ", ".join(formats.count(counts[key], *forms) for key, forms in LEARNED_FORMS.items() if counts[key])
    if not (ran or blocked or approved or dismissed or learned):
        return
    problems = sum(describe_outcome(session["state"], session["result"]) == PROBLEM_FOUND for session in ran)
    unfinished = sum(session["state"] not in ("succeeded", "discarded") for session in ran)
    numbers = {"found a problem": problems, "did not finish": unfinished}
    yield Field("done", ", ".join([formats.count(len(ran), "session"), *_count_exceptions(numbers)]))
    if blocked:
        yield Field("blocked", f"{len(blocked)} by the rails")
    by_itself, decisions = document["approvedByItself"], document["decisions"]
    yield Field("approved", ", ".join([f"{approved}", *_count_exceptions({"by itself": by_itself})]))
    yield Field("dismissed", f"{dismissed}")
    basis = f", from {formats.count(decisions, 'decision')}" if decisions else ""
    yield Field("learned", f"{learned or 'nothing new'}{basis}")
    if document["spent"]:
        yield Field("spent", f"${document['spent']:.2f}")


LEARNED_FORMS = WORDS["learned"]
"""The kinds of things that were learned, by key in the document, in words for one and for several."""


def _count_exceptions(numbers: Mapping[str, int]) -> list[str]:
    """`2 could not run` for each of these that there is."""
    return [f"{number} {words}" for words, number in numbers.items() if number]
