"""A learning in words, for the screen and for `clawpy learnings`: what it says, how sure that is, where it came from
(SPEC 6)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from clawpy_console import words
from clawpy_console.fields import Document, Field, bar, text, when

KINDS = {
    "institutional": ("how", "how things are done here"), "task": ("task", "about a piece of work"),
    "proxy": ("you", "about you; it is never promoted"),
}  # fmt: skip
"""What a kind is called in a list, and by itself."""

STATUS = {
    "active": ("●", "grey", "valid"), "retired": ("✗", "faint", "retracted"),
    "compacted": ("·", "faint", "merged into another"),
}  # fmt: skip
"""Sign, tone and words of each status."""


def scope(name: str, scope_id: str, workspace: str, task: str = "") -> str:
    """Where a learning is valid: a session by its `task` where that is known, a team by its leader."""
    match name:
        case "global":
            return "all projects"
        case "project":
            return f"project {words.name(workspace) or scope_id}"
        case "session":
            return f"session {words.one_line(task or scope_id)}"
    return f"{name} {words.one_line(f'{scope_id}: {task}' if task else scope_id)}"


def where(one: Document) -> str:
    """Where a learning is valid."""
    return scope(one["scope"], one["scopeId"], one["workspace"], one["task"] if one["scope"] == "session" else "")


def title(one: Document) -> str:
    """What stands for a learning in a line."""
    return words.one_line(one["title"] or one["text"][:200]) or "forgotten"


def learning(one: Document, now: datetime) -> Iterator[Field]:
    """All about one learning but the entries and prompts that it is linked with."""
    sign, tone, said = STATUS[one["status"]]
    if not words.one_line(one["text"]).startswith(title(one).rstrip("…. ")):  # else the text says it
        yield Field("", title(one), "title")
    yield Field("", f"{sign} {said}, {where(one)}, {one['type']}", tone)
    if one["review"]:
        yield Field("", f"▲ check it: {words.one_line(one['review'])}", "wants")
    if one["because"]:
        yield Field("because", words.one_line(one["because"]), "wants")
    yield from text(one["text"])
    yield Field("", "evidence", "heading")
    yield Field("confidence", f"{bar(one['confidence'])} {one['confidence']:.2f}")
    yield Field("importance", f"{bar(one['importance'])} {one['importance']:.2f}  {'; '.join(one['reasons'])}".rstrip())
    yield Field("kind", KINDS[one["kind"]][1])
    by = f" by {one['targetAgent']}" if one["targetAgent"] else ""
    about = "how agents work together" if one["domain"] == "team" else "the work itself"
    found = when(one["createdAt"], now) or "at an unknown time"
    yield Field("found", f"{found}{by}, {one['phase'] or 'written by hand'}, about {about}")
    if one["task"]:
        yield Field("in session", words.one_line(one["task"]))
    if one["reinforcementCount"]:
        last = f", last {when(one['lastReinforced'], now)}" if one["lastReinforced"] else ""
        yield Field("repeated", f"by {words.count(one['reinforcementCount'], 'session')}{last}")
    if one["promotedAt"]:
        count = words.count(len(one["promotedFrom"]), "entry", "entries")
        yield Field("promoted", f"{when(one['promotedAt'], now)}, from {count}")
    if one["gone"]:
        yield Field("missing", f"{words.count(len(one['gone']), 'source')} no longer in any file", "wants")
    yield Field("reached", words.count(one["prompts"], "prompt") if one["prompts"] else "no prompt yet")
    yield Field("file", one["path"], "faint")


def retraction(one: Document) -> Iterator[Field]:
    """What retracting changes, before it is done."""
    yield Field("", title(one), "title")
    yield Field("", "No prompt will contain it. It stays in its file, marked as retracted, with your reason.")
    held = [entry for entry in one["became"] if entry["status"] == "active"]
    if not held:
        yield Field("", "Nothing valid was promoted from it.", "grey")
        return
    yield Field("", f"{words.count(len(held), 'learning')} promoted from it will wait for your decision:", "wants")
    for entry in held[:8]:
        yield Field("", f"▸ {where(entry)}: {title(entry)}")
    if len(held) > 8:
        yield Field("", f"  and {len(held) - 8:,} more", "faint")


def promotion(one: Document) -> Iterator[Field]:
    """What applying it everywhere changes, before it is done."""
    yield Field("", title(one), "title")
    yield from (Field("", line) for line in one["text"].split("\n")[:12])
    copied = "If you confirm, a copy goes to the learnings of all projects and into their prompts."
    yield Field("", f"It applies in {where(one)} now. {copied} You can retract the copy.", "grey")
