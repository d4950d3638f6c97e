"""A candidate as fields, for the screen and for `clawpy candidates`: its effect, evidence and lift (SPEC 5)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from clawpy_console import formats
from clawpy_console.fields import Document, Field, bar, change_fields, heading, when
from clawpy_console.formats import crop, one_line, workspace_name

STATUS = {
    "review": ("▲", "wants", "needs your decision"),
    "promoted": ("●", "accent", "active"),
    "drafted": ("○", "grey", "needs more evidence"),
    "rejected": ("✗", "faint", "rejected"),
    "rolled_back": ("▼", "grey", "rolled back"),
}
"""Sign, tone and words of each status."""

TYPES = {
    "prompt_fragment": ("prompt", "guidance in prompts"), "fix_template": ("fix", "fix for a failing test"),
    "routing_hint": ("model", "choice of a model"), "validator_policy_tweak": ("retries", "lower limit for retries"),
    "flow_offload": ("flow", "flow without a model"),
}  # fmt: skip
"""The short name of each type for a list, and its full name."""

EVIDENCE = {"draftedFrom": "drafted from", "corroboratedBy": "evidence for", "against": "evidence against"}
"""The fields of a candidate that hold ids of records, each with its title."""

DECIDED_BY = {"operator": "you", "autonomy": "the engine", "api": "the gateway"}
VERDICT_TONES = {"helps": "good", "harms": "wrong"}
STEP_SIGNS = {"done": ("✓", "grey"), "now": ("◐", "accent"), "ahead": ("○", "faint"), "failed": ("✗", "wrong")}
MONEY_DETAILS = frozenset({"cost", "spent", "budget"})
"""Details of a record that are micro-dollars."""


def points(share: float) -> str:
    """A difference of shares in percentage points, with its sign: `+24`, `±0`."""
    value = round(share * 100)
    return f"{value:+d}" if value else "±0"


def candidate_fields(document: Document, now: datetime) -> Iterator[Field]:
    """The details of a candidate without its records."""
    proposal = document["candidate"]
    sign, tone, label = STATUS[proposal["status"]]
    by = f" by {DECIDED_BY.get(proposal['decidedBy'], proposal['decidedBy'])}" if proposal["decidedBy"] else ""
    yield Field("", one_line(proposal["title"]), "title")
    yield Field("", f"{sign} {label}{by} {when(proposal['changedAt'], now)}", tone)
    yield Field("changes", f"{TYPES[proposal['type']][1]}, for {scope_words(proposal)}")
    yield Field("seen in", f"{workspace_name(proposal['scopeId'])}: {one_line(proposal['sourceLabel'])}")
    yield Field("score", f"{bar(proposal['score'] / 100)} {proposal['score']:.0f} of 100; {evidence_words(proposal)}")
    if proposal["reason"]:
        yield Field("reason", one_line(proposal["reason"]))
    if document["lift"] or proposal["status"] == "promoted":
        yield heading("lift")
        yield from lift_fields(document["lift"])
    for overlay in document["overlays"]:
        until = f" to {when(overlay['until'], now)}" if overlay["until"] else ""
        yield Field("active", f"{'from' if until else 'since'} {when(overlay['since'], now)}{until}")
    yield heading("effect: now (-) and with it (+)")
    yield from effect_fields(document["preview"])
    yield heading("history")
    for step in document["stations"]:
        sign, tone = ("▲", "wants") if (step["name"], step["state"]) == ("review", "now") else STEP_SIGNS[step["state"]]
        text = f"{when(step['at'], now):>9}  {one_line(step['words'])}".rstrip()
        yield Field(f"{sign} {step['name']}", text, tone)


def scope_words(document: Document) -> str:
    """The runs that a candidate changes."""
    runs = f"{document['runKind']} runs" if document["runKind"] else "all runs"
    place = f" in {workspace_name(document['workspace'])}" if document["workspace"] else ""
    return f"{document['targetAgent'] or 'every agent'}, {runs}{place}"


def evidence_words(candidate: Document) -> str:
    """The number of records for a candidate and against it."""
    supporting = len({*candidate["draftedFrom"], *candidate["corroboratedBy"]})
    return f"evidence for: {supporting}, against: {len(candidate['against'])}"


def lift_fields(measured: Document | None) -> Iterator[Field]:
    """The lift of a candidate: runs with it, runs without it, and the interval of the difference."""
    if measured is None:
        yield Field("", "Not measured yet: no run has tried it.", "grey")
        return
    yield Field("verdict", measured["verdict"], VERDICT_TONES.get(measured["verdict"], "grey"))
    for name, good, runs in (("with it", "withGood", "withRuns"), ("without it", "withoutGood", "withoutRuns")):
        share = measured[good] / measured[runs] if measured[runs] else 0.0
        percent = f", {share:.0%}" if measured[runs] else ""
        yield Field(name, f"{bar(share)} {measured[good]} of {formats.count(measured[runs], 'run')} went well{percent}")
    if measured["withRuns"] and measured["withoutRuns"]:
        interval = f"80 % interval {points(measured['low'])} to {points(measured['high'])}"
        yield Field("difference", f"{points(measured['difference'])} points, {interval}")


def effect_fields(preview: Document, *, removed: bool = False) -> Iterator[Field]:
    """The lines that a candidate changes; with `removed`, those that rolling it back changes."""
    before, after = preview["before"], preview["after"]
    lines = list(change_fields(after, before) if removed else change_fields(before, after))
    yield from lines or [Field("", "It changes nothing right now.", "wants")]


def decision_fields(document: Document, move: str) -> Iterator[Field]:
    """The effect of a decision; `move` is a value of `CandidateMove`."""
    if move == "reject":
        yield Field("", "Nothing changes in how agents act.")
        yield Field("", "It is proposed again only if new evidence outweighs your decision.", "grey")
        return
    if move == "roll back":
        yield Field("", "Its changes are removed:")
    else:
        yield Field("", f"It becomes active for {scope_words(document['candidate'])}:")
    yield from effect_fields(document["preview"], removed=move == "roll back")


def record_fields(record: Document, now: datetime) -> Iterator[Field]:
    """One record: what happened, its score, and the reason for it."""
    yield Field("", f"{record['sourceLabel']}: {record['score']:.0f} of 100, {when(record['createdAt'], now)}")
    yield Field("", one_line(record["reason"]), "grey")
    parts = [record["targetAgent"]] if record["targetAgent"] else []
    parts += [workspace_name(record["workspace"])] if record["workspace"] not in ("", ".") else []
    parts += [f"session {record['session']}"] if record["session"] else []
    for name, value in record["details"].items():
        text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        text = formats.money(value) if name in MONEY_DETAILS and isinstance(value, int) else one_line(text)
        parts += [f"{name.replace('_', ' ')} {crop(text, 120)}"] if text else []
    yield Field("", " · ".join(parts), "faint")
