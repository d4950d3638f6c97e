"""What was remembered and learned as fields, for the screens and for verbs: memories (SPEC 4), candidates with their
effect, evidence and lift (SPEC 5), learnings with their sources (SPEC 6).

Each function takes a document that a verb prints as JSON, or a part of it: `recall`, `forget`, `candidates`,
`learnings`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from clawpy_console import formats
from clawpy_console.fields import (
    LABELS,
    SIGNS,
    TONES,
    WORDS,
    Document,
    Field,
    Fields,
    draw_bar,
    format_instant,
    heading,
    make_change_fields,
    make_text_fields,
    text_line,
)
from clawpy_console.formats import crop, list_first, one_line, percentage_points, workspace_name


class KindName(NamedTuple):
    """What a kind of candidate or learning is called."""

    short: str
    """For a column of a list."""
    full: str


# Memories


MAX_RECALLED_CHARS = 300
"""Maximum number of characters of a recalled memory that are shown."""


def make_memory_fields(memory: Document) -> Fields:
    """A memory that was recalled: score, layer and text, then its source and the reason why it was found."""
    excerpt = crop(one_line(memory["text"]), MAX_RECALLED_CHARS)
    yield text_line(f"{memory['score']:.2f}  {memory['layer']}  {excerpt}")
    origin = " · ".join(
        part for part in (memory["speaker"], (memory["timestamp"] or "")[:10], memory["source"]) if part
    )
    yield text_line(f"  {origin or memory['id']}; {one_line(memory['reason'])}", "grey")


MAX_PLACES = 6
"""Maximum number of places of a text to forget that are shown."""


def make_forgetting_fields(report: Document) -> Fields:
    """The places where forgetting removes a text, by store, and what stays."""
    total = sum(report["counts"].values())
    counts = " · ".join(f"{count:,} in {store}" for store, count in report["counts"].items())
    yield text_line(f"{formats.count(total, 'place')}: {counts}")
    if not report["forgotten"]:
        places = report["places"][:MAX_PLACES]
        for place in places:
            yield text_line(f"▸ {place['store']}: {crop(one_line(place['text']), 120)}", "grey")
        if (more := total - len(places)) > 0:
            yield text_line(f"and {more:,} more", "faint")
    yield from (text_line(f"stays: {one_line(remainder)}", "grey") for remainder in report["left"])
    if not report["forgotten"]:
        yield text_line("Empty entries stay, so that graphs and chains stay complete. This cannot be undone.")


# Candidates


EVIDENCE_TITLES = WORDS["evidence"]
"""The fields of a candidate that hold ids of records, each with its title."""


CANDIDATE_STATUS = LABELS["candidate"]
"""The label of each status of a candidate."""

CANDIDATE_TYPES = {name: KindName(*names) for name, names in WORDS["candidate"].items()}
"""The name of each type of candidate."""

DECIDED_BY = WORDS["decided_by"]
"""Who decided about a candidate, in words."""

STEP_SIGNS = SIGNS["step"]
"""Sign and tone of each step in the history of a candidate."""


def make_candidate_fields(document: Document, now: datetime) -> Fields:
    """The details of a candidate without its records."""
    candidate = document["candidate"]
    label = CANDIDATE_STATUS[candidate["status"]]
    decided_by = candidate["decidedBy"]
    by = f" by {DECIDED_BY.get(decided_by, decided_by)}" if decided_by else ""
    yield text_line(one_line(candidate["title"]), "title")
    yield text_line(f"{label.sign} {label.words}{by} {format_instant(candidate['changedAt'], now)}", label.tone)
    yield Field("changes", f"{CANDIDATE_TYPES[candidate['type']].full}, for {describe_candidate_scope(candidate)}")
    yield Field("seen in", f"{workspace_name(candidate['scopeId'])}: {_describe_record_kind(candidate)}")
    score = candidate["score"]
    yield Field("score", f"{draw_bar(score / 100)} {score:.0f} of 100; {describe_evidence(candidate)}")
    if candidate["reason"]:
        yield Field("reason", one_line(candidate["reason"]))
    if document["lift"] or candidate["status"] == "promoted":
        yield heading("lift")
        yield from _make_lift_fields(document["lift"])
    for overlay in document["overlays"]:
        until = f" to {format_instant(overlay['until'], now)}" if overlay["until"] else ""
        yield Field("active", f"{'from' if until else 'since'} {format_instant(overlay['since'], now)}{until}")
    yield heading("effect: now (-) and with it (+)")
    yield from _make_effect_fields(document["preview"])
    yield heading("history")
    yield from _make_history_fields(document["stages"], now)


def _make_history_fields(stages: Iterable[Document], now: datetime) -> Fields:
    """The steps of a candidate, those that are done and those ahead; a decision that is due stands out."""
    for step in stages:
        sign, tone = ("▲", "wants") if (step["name"], step["state"]) == ("review", "now") else STEP_SIGNS[step["state"]]
        text = f"{format_instant(step['at'], now):>9}  {one_line(step['words'])}".rstrip()
        yield Field(f"{sign} {step['name']}", text, tone)


def _describe_record_kind(document: Document) -> str:
    """The kind of the records that a label stands for, in words: "human approval" for `human_approval/fact:…`."""
    return str(document["sourceLabel"]).partition("/")[0].replace("_", " ")


def describe_candidate_scope(document: Document) -> str:
    """The runs that a candidate changes."""
    runs = f"{document['runKind']} runs" if document["runKind"] else "all runs"
    place = f" in {workspace_name(document['workspace'])}" if document["workspace"] else ""
    return f"{document['targetAgent'] or 'every agent'}, {runs}{place}"


def describe_evidence(candidate: Document) -> str:
    """The number of records for a candidate and against it."""
    supporting = len({*candidate["draftedFrom"], *candidate["corroboratedBy"]})
    return f"evidence for: {supporting}, against: {len(candidate['against'])}"


VERDICT_TONES = TONES["lift"]
"""The tones of verdicts on a lift; others are grey."""


def _make_lift_fields(lift: Document | None) -> Fields:
    """The lift of a candidate: runs with it, runs without it, and the interval of the difference."""
    if lift is None:
        yield text_line("Not measured yet: no run has tried it.", "grey")
        return
    yield Field("verdict", lift["verdict"], VERDICT_TONES.get(lift["verdict"], "grey"))
    yield _make_runs_field("with it", lift["withGood"], lift["withRuns"])
    yield _make_runs_field("without it", lift["withoutGood"], lift["withoutRuns"])
    if lift["withRuns"] and lift["withoutRuns"]:
        interval = f"80 % interval {percentage_points(lift['low'])} to {percentage_points(lift['high'])}"
        yield Field("difference", f"{percentage_points(lift['difference'])} points, {interval}")


def _make_runs_field(name: str, good: int, runs: int) -> Field:
    """How many of so many runs went well."""
    share = good / runs if runs else 0.0
    percent = f", {share:.0%}" if runs else ""
    return Field(name, f"{draw_bar(share)} {good} of {formats.count(runs, 'run')} went well{percent}")


def _make_effect_fields(preview: Document, *, removed: bool = False) -> Fields:
    """The lines that a candidate changes; with `removed`, those that rolling it back changes."""
    before = preview["before"]
    after = preview["after"]
    lines = list(make_change_fields(after, before) if removed else make_change_fields(before, after))
    yield from lines or [text_line("It changes nothing right now.", "wants")]


def make_candidate_decision_fields(document: Document, move: str) -> Fields:
    """The effect of a decision; `move` is a value of `CandidateMove`."""
    if move == "reject":
        yield text_line("Nothing changes in how agents act.")
        yield text_line("It is proposed again only if new evidence outweighs your decision.", "grey")
        return
    if move == "roll back":
        yield text_line("Its changes are removed:")
    else:
        yield text_line(f"It becomes active for {describe_candidate_scope(document['candidate'])}:")
    yield from _make_effect_fields(document["preview"], removed=move == "roll back")


MONEY_DETAILS = frozenset({"cost", "spent", "budget"})
"""Details of a record that are micro-dollars."""


def make_candidate_record_fields(record: Document, now: datetime) -> Fields:
    """One record: what happened, its score, and the reason for it."""
    yield text_line(
        f"{_describe_record_kind(record)}: {record['score']:.0f} of 100, {format_instant(record['createdAt'], now)}"
    )
    yield text_line(one_line(record["reason"]), "grey")
    parts = [record["targetAgent"]] if record["targetAgent"] else []
    parts += [workspace_name(record["workspace"])] if record["workspace"] not in ("", ".") else []
    parts += [f"session {record['session']}"] if record["session"] else []
    for name, value in record["details"].items():
        text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        text = formats.money(value) if name in MONEY_DETAILS and isinstance(value, int) else one_line(text)
        parts += [f"{name.replace('_', ' ')} {crop(text, 120)}"] if text else []
    yield text_line(" · ".join(parts), "faint")


# Learnings


def describe_scope(scope: str, scope_id: str, workspace: str, task: str = "") -> str:
    """The scope of a learning in words; a session is named by its `task`, where that is known."""
    match scope:
        case "global":
            return "all projects"
        case "project":
            return f"project {workspace_name(workspace) or scope_id}"
        case "session":
            return f"session {one_line(task or scope_id)}"
    return f"{scope} {one_line(f'{scope_id}: {task}' if task else scope_id)}"


def describe_learning_scope(document: Document) -> str:
    """The scope of a learning in words."""
    task = document["task"] if document["scope"] == "session" else ""
    return describe_scope(document["scope"], document["scopeId"], document["workspace"], task)


def make_learning_title(learning: Document) -> str:
    """A learning in one line."""
    return make_title_or_excerpt(learning["title"], learning["text"])


def make_title_or_excerpt(title: str, text: str) -> str:
    """The title of a learning in one line, else the beginning of its text."""
    return one_line(title or text[:200]) or "forgotten"


LEARNING_KINDS = {name: KindName(*names) for name, names in WORDS["learning"].items()}
"""The name of each kind of learning."""

LEARNING_STATUS = LABELS["learning"]
"""The label of each status of a learning."""


def make_learning_fields(learning: Document, now: datetime) -> Fields:
    """The details of a learning without its links."""
    label = LEARNING_STATUS[learning["status"]]
    title = make_learning_title(learning)
    if not one_line(learning["text"]).startswith(title.rstrip("…. ")):  # else the text repeats it
        yield text_line(title, "title")
    yield text_line(f"{label.sign} {label.words}, {describe_learning_scope(learning)}, {learning['type']}", label.tone)
    if learning["review"]:
        yield text_line(f"▲ check it: {one_line(learning['review'])}", "wants")
    if learning["because"]:
        yield Field("because", one_line(learning["because"]), "wants")
    yield from make_text_fields(learning["text"])
    yield heading("evidence")
    yield Field("confidence", f"{draw_bar(learning['confidence'])} {learning['confidence']:.2f}")
    importance = f"{draw_bar(learning['importance'])} {learning['importance']:.2f}  {'; '.join(learning['reasons'])}"
    yield Field("importance", importance.rstrip())
    yield Field("kind", LEARNING_KINDS[learning["kind"]].full)
    yield from _make_origin_fields(learning, now)
    yield Field("reached", formats.count(learning["prompts"], "prompt") if learning["prompts"] else "no prompt yet")
    yield Field("file", learning["path"], "faint")


def _make_origin_fields(learning: Document, now: datetime) -> Fields:
    """When and where a learning was found, how often it was seen again, and what it was promoted from."""
    by = f" by {learning['targetAgent']}" if learning["targetAgent"] else ""
    about = "how agents work together" if learning["domain"] == "team" else "the work itself"
    since = format_instant(learning["createdAt"], now) or "at an unknown time"
    yield Field("found", f"{since}{by}, {learning['phase'] or 'written by hand'}, about {about}")
    if learning["task"]:
        yield Field("in session", one_line(learning["task"]))
    if learning["reinforcementCount"]:
        last = f", last {format_instant(learning['lastReinforced'], now)}" if learning["lastReinforced"] else ""
        yield Field("repeated", f"by {formats.count(learning['reinforcementCount'], 'session')}{last}")
    if learning["promotedAt"]:
        count = formats.count(len(learning["promotedFrom"]), "entry", "entries")
        yield Field("promoted", f"{format_instant(learning['promotedAt'], now)}, from {count}")
    if learning["gone"]:
        yield Field("missing", f"{formats.count(len(learning['gone']), 'source')} no longer in any file", "wants")


MAX_AFFECTED = 8
"""Maximum number of learnings that a retraction lists."""


def make_retraction_fields(learning: Document) -> Fields:
    """The effect of retracting a learning."""
    yield text_line(make_learning_title(learning), "title")
    yield text_line("No prompt will contain it. It stays in its file, marked as retracted, with your reason.")
    active = [entry for entry in learning["became"] if entry["status"] == "active"]
    if not active:
        yield text_line("Nothing valid was promoted from it.", "grey")
        return
    yield text_line(f"{formats.count(len(active), 'learning')} promoted from it will wait for your decision:", "wants")
    affected = [f"▸ {describe_learning_scope(entry)}: {make_learning_title(entry)}" for entry in active]
    yield from map(text_line, list_first(affected, MAX_AFFECTED))


MAX_PREVIEW_LINES = 12
"""Maximum number of lines of a learning that a promotion shows."""


def make_promotion_fields(learning: Document) -> Fields:
    """The effect of applying a learning in all projects."""
    yield text_line(make_learning_title(learning), "title")
    yield from (text_line(line) for line in learning["text"].split("\n")[:MAX_PREVIEW_LINES])
    explanation = "If you confirm, a copy goes to the learnings of all projects and into their prompts."
    yield text_line(
        f"It applies in {describe_learning_scope(learning)} now. {explanation} You can retract the copy.", "grey"
    )
