"""Scores for learning records: a formula from 0 to 100 for each of the 15 kinds of SPEC 5.1. Pure.

A score is a sum of parts, each with a reason; the constants are the largest value of a part. From `OPPORTUNITY` points
a record can become a candidate (SPEC 5.3): what an agent could do differently next time reaches it, mere success does
not. `error_kind` and `slug` group errors and edits whose texts differ only in details.
"""

from __future__ import annotations

import re

from engine.config.agents import ACP, MODEL
from engine.frozen import frozen
from engine.model import MICRO, Trust, dollars
from engine.model.text import count, jaccard

OPPORTUNITY = 60.0
"""Minimum score of a record from which a candidate can be drafted."""

FULL_COST = MICRO // 2
"""Cost of healing in micro-dollars that gives all points of its part; the default cap in the settings."""

FULL_BREADTH = 5
"""Number of tests, files or repetitions that gives all points of its part."""


@frozen
class RecordScore:
    """A score from 0 to 100 with its reason in words."""

    score: float
    reason: str


def add_parts(*parts: tuple[float, str]) -> RecordScore:
    """The sum of (points, reason), from 0 to 100, rounded to tenths. The reason leaves out parts without points."""
    total = round(min(100.0, max(0.0, sum(points for points, _ in parts))), 1)
    reason = "; ".join(f"{points:+.1f} {words}" for points, words in parts if abs(points) >= 0.05)
    return RecordScore(total, reason.removeprefix("+"))


def share(amount: float, full: float) -> float:
    """The share of `amount` in `full`, from 0 to 1."""
    return min(1.0, max(0.0, amount / full)) if full > 0 else float(amount > 0)


def failed_tdd(attempts: int, cost: int, failing: int) -> RecordScore:
    """Healing was given up: 45, 10 for each further run up to 30, 15 by its cost, 10 by how much is red."""
    retries = max(0, attempts - 1)
    return add_parts(
        (45.0, "tests still failed"),
        (10.0 * min(3, retries), f"{count(retries, 'attempt')} to fix them"),
        (15.0 * share(cost, FULL_COST), _spent(cost)),
        (10.0 * share(failing, FULL_BREADTH), count(failing, "test")),
    )


def successful_heal(attempts: int, cost: int, failing: int) -> RecordScore:
    """A repair that tests bear out: 60, 20 shared among its tries, 10 by what it cost, 10 by how much it mended."""
    tries = max(1, attempts - 1)
    return add_parts(
        (60.0, "failing tests were fixed"),
        (20.0 / tries, f"at attempt {tries}"),
        (10.0 * share(cost, FULL_COST), _spent(cost)),
        (10.0 * share(failing, FULL_BREADTH), count(failing, "test")),
    )


def repeated_retry(attempts: int, cost: int) -> RecordScore:
    """A try changed nothing: 45, 10 for each try made up to 30, 25 by their cost."""
    tries = max(0, attempts - 1)
    return add_parts(
        (45.0, "another attempt left the same tests failing"),
        (10.0 * min(3, tries), f"{count(tries, 'attempt')} made"),
        (25.0 * share(cost, FULL_COST), _spent(cost)),
    )


def task_conflict(files: int, conflicting: int) -> RecordScore:
    """Two agents changed the same files: 20 and 4 a file while both can land; 50, 25 by the share of files that
    conflict and 4 for each of them, up to 20 each way."""
    if not conflicting:
        return add_parts((20.0, "both can land"), (4.0 * min(FULL_BREADTH, files), f"{count(files, 'file')} in common"))
    return add_parts(
        (50.0, "only one of the two can land"),
        (25.0 * share(conflicting, files), f"{conflicting} of {count(files, 'file')} in common conflict"),
        (4.0 * min(FULL_BREADTH, conflicting), count(conflicting, "conflict")),
    )


def budget_incident(spent: int, budget: int) -> RecordScore:
    """A budget was, or would have been, passed: 50, 10 by how much of it was spent, 40 by how far it was passed."""
    return add_parts(
        (50.0, f"the day's budget of ${dollars(budget):.2f} blocked work"),
        (10.0 * share(spent, budget), f"${dollars(spent):.2f} of it was spent"),
        (40.0 * share(max(0, spent - budget), budget), "it was exceeded"),
    )


def edited_approval(changed: float, added: int) -> RecordScore:
    """The operator edited a prompt before approving it: 50, 40 by the share of words that changed (0 to 1), 10 if words
    were added."""
    return add_parts(
        (50.0, "you edited it before approving it"),
        (40.0 * share(changed, 1.0), f"{changed:.0%} of its words changed"),
        (10.0 * (added > 0), f"{count(added, 'word')} added"),
    )


LASTING_PERMISSION, PERMISSION, APPROVED = 30.0, 25.0, 20.0
"""Points of approvals without an edit, which call for no change."""


def approval(points: float, words: str) -> RecordScore:
    """An approval of what was proposed: see `APPROVED`."""
    return add_parts((points, words))


def landed(files: int) -> RecordScore:
    """A change set was taken: 25, 2 for each file up to 10. Below an opportunity: it is done already."""
    return add_parts((25.0, "changes were landed"), (2.0 * min(FULL_BREADTH, files), count(files, "file")))


def kept_fact(trust: Trust, before: int, words: str) -> RecordScore:
    """A fact that the operator keeps: 65, 10 when the words are the operator's own or were measured, 5 for each fact of
    its category that was kept before, up to four. From 65 on one more of the kind bears it out."""
    return add_parts(
        (65.0, f"you kept {words} as a fact"),
        (10.0 * (trust is not Trust.QUOTED), "in your own words, or measured"),
        (5.0 * min(4, before), _before("a similar fact was kept", before)),
    )


MISUSED, BROKE_OFF, PROGRAM = 50.0, 45.0, 30.0
"""Points of an error: a call that a tool refused, a command that could not run or did not end, a failed model or
program, which guidance cannot change."""

EXPLAINED, RECURRED = 10.0, 5.0
"""Points of an error with an error code, and for each earlier occurrence, up to four."""


@frozen
class ErrorClass:
    """What errors of one sort have in common: points, words for it, a signature, and whether they have an error
    code."""

    points: float
    words: str
    signature: str
    is_explained: bool = False


def agent_error(error: ErrorClass, before: int) -> RecordScore:
    """An error of this class, which came `before` so often to the same agent."""
    return add_parts(
        (error.points, error.words),
        (EXPLAINED * error.is_explained, "the tool said what was wrong"),
        (RECURRED * min(4, before), _before("it happened", before)),
    )


def successful_bubble(confidence: float, importance: float) -> RecordScore:
    """A finding reached a leader: half by how sure, half by how weighty it is (0 to 1 each)."""
    return add_parts(
        (50.0 * share(confidence, 1.0), f"confidence {confidence:.2f}"),
        (50.0 * share(importance, 1.0), f"importance {importance:.2f}"),
    )


def guidance_applied(items: int, leaders: int) -> RecordScore:
    """Guidance was carried: 20, 2 for each thing said up to 20, 5 for each leader up to 15. It stays below an
    opportunity: what was said is a change only when something came of it."""
    return add_parts(
        (20.0, "guidance was in the prompt"),
        (2.0 * min(10, items), count(items, "item")),
        (5.0 * min(3, leaders), f"by {count(leaders, 'leader')}"),
    )


def guidance_noisy(harm: float) -> RecordScore:
    """Guidance goes with worse work: 60, 40 by how much more ends badly with it (half and more in full)."""
    return add_parts(
        (60.0, "work with it fails more often than by chance"), (40.0 * share(harm, 0.5), f"by {harm:.0%} at least")
    )


def stale_guidance(days: int, max_days: int, missing_files: int, sessions: int) -> RecordScore:
    """Guidance outlived its time: 40, 20 by how far it is past it (twice its time in full), 15 when it names files that
    are gone and 2 for each, 2 for each session that carried it up to 20."""
    past = max(0, days - max_days) if max_days else 0
    return add_parts(
        (40.0, "it is past its age limit"),
        (20.0 * share(past, max_days) if past else 0.0, f"{count(days, 'day')} old; the limit is {max_days}"),
        (
            15.0 * (missing_files > 0) + 2.0 * min(FULL_BREADTH, missing_files),
            f"{count(missing_files, 'file')} it names no longer exist",
        ),
        (2.0 * min(10, sessions), f"{count(sessions, 'session')} used it recently"),
    )


def teaching_refresh(taught: int, unchanged: int) -> RecordScore:
    """Souls were taught: 10, 40 by the share that was rewritten. Below an opportunity: it is done already."""
    return add_parts(
        (10.0, "guidance was written into soul.md"), (40.0 * share(taught, taught + unchanged), count(taught, "soul"))
    )


def cloud_sync_failure(unsent: int, before: int) -> RecordScore:
    """What machines share could not be exchanged: 40, 2 for each row unsent up to 30, 5 for each outage before up to
    30."""
    return add_parts(
        (40.0, "the shared database could not be reached"),
        (2.0 * min(15, unsent), f"{unsent} unsent"),
        (5.0 * min(6, before), f"{count(before, 'outage')} before"),
    )


def recall_hit(before: int) -> RecordScore:
    """What another machine found out served here: 45, 5 for each time that it did before, up to eight."""
    return add_parts(
        (45.0, "another machine's finding was useful"), (5.0 * min(8, before), _before("it was useful", before))
    )


def tool_sequence(calls: int, z: float, share_of_runs: float) -> RecordScore:
    """Commands that recur: 40, 20 by how far beyond chance (z of 10 in full), 20 by the share of sessions that have
    them, 4 for each step."""
    return add_parts(
        (40.0, "the same steps recur"),
        (20.0 * share(z, 10.0), f"{z:.1f} standard deviations beyond chance"),
        (20.0 * share(share_of_runs, 1.0), f"in {share_of_runs:.0%} of the sessions"),
        (4.0 * calls, count(calls, "step")),
    )


def _before(words: str, number: int) -> str:
    return f"{words} once before" if number == 1 else f"{words} {number} times before"


def _spent(cost: int) -> str:
    return f"${dollars(cost):.2f} spent on it"


STOP_WORDS = frozenset(
    ["the", "and", "with", "for", "also", "please", "that", "this", "then", "into", "from", "its", "all", "too", "but"]
)

_CODE = re.compile(r"^([a-z][a-z_]{2,40}): ")
_VARIES = re.compile(r"(?:[\w.~-]*/)+[\w.-]*|\S*\d\S*|[`'\"“”‘’][^`'\"“”‘’]*[`'\"“”‘’]")


def classify_error(tool: str, message: str) -> ErrorClass:
    """The class of an error of a tool."""
    if tool == "exec":
        return ErrorClass(BROKE_OFF, "a command could not run or did not finish", slug(message))
    if coded := _CODE.match(message):
        return ErrorClass(MISUSED, f"{tool} refused the call", coded[1], is_explained=True)
    if tool == MODEL or tool.startswith(ACP):
        return ErrorClass(PROGRAM, "a model or program failed", slug(message))
    return ErrorClass(MISUSED, f"a call of {tool} was wrong", slug(message))


def slug(text: str) -> str:
    """The constant words of a text, without names, paths and numbers, joined by hyphens."""
    plain = _VARIES.sub(" ", text.lower())
    words = [word for word in re.findall(r"[a-z]{3,}", plain) if word not in STOP_WORDS]
    return "-".join(words[:6])[:60]


def difference(original: str, edited: str) -> float:
    """The share of words that are in only one of two texts, from 0 to 1."""
    return 1.0 - jaccard(original.lower().split(), edited.lower().split())
