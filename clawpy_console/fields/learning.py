"""A learning as fields, for the screen and for `clawpy learnings`: its text, its evidence, its sources (SPEC 6)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from clawpy_console import formats
from clawpy_console.fields import Document, Field, bar, heading, text_fields, when
from clawpy_console.formats import one_line, workspace_name

KINDS = {
    "institutional": ("how", "how things are done here"), "task": ("task", "about a piece of work"),
    "proxy": ("you", "about you; it is never promoted"),
}  # fmt: skip
"""The short name of each kind for a list, and its full name."""

MAX_AFFECTED = 8
"""Maximum number of learnings that a retraction lists."""

MAX_PREVIEW_LINES = 12
"""Maximum number of lines of a learning that a promotion shows."""

STATUS = {
    "active": ("●", "grey", "valid"), "retired": ("✗", "faint", "retracted"),
    "compacted": ("·", "faint", "merged into another"),
}  # fmt: skip
"""Sign, tone and words of each status."""


def scope_title(name: str, scope_id: str, workspace: str, task: str = "") -> str:
    """The scope of a learning in words; a session is named by its `task`, where that is known."""
    match name:
        case "global":
            return "all projects"
        case "project":
            return f"project {workspace_name(workspace) or scope_id}"
        case "session":
            return f"session {one_line(task or scope_id)}"
    return f"{name} {one_line(f'{scope_id}: {task}' if task else scope_id)}"


def scope_words(document: Document) -> str:
    """The scope of a learning in words."""
    task = document["task"] if document["scope"] == "session" else ""
    return scope_title(document["scope"], document["scopeId"], document["workspace"], task)


def title(learning: Document) -> str:
    """A learning in one line."""
    return one_line(learning["title"] or learning["text"][:200]) or "forgotten"


def learning_fields(learned: Document, now: datetime) -> Iterator[Field]:
    """The details of a learning without its links."""
    sign, tone, label = STATUS[learned["status"]]
    if not one_line(learned["text"]).startswith(title(learned).rstrip("…. ")):  # else the text repeats it
        yield Field("", title(learned), "title")
    yield Field("", f"{sign} {label}, {scope_words(learned)}, {learned['type']}", tone)
    if learned["review"]:
        yield Field("", f"▲ check it: {one_line(learned['review'])}", "wants")
    if learned["because"]:
        yield Field("because", one_line(learned["because"]), "wants")
    yield from text_fields(learned["text"])
    yield heading("evidence")
    yield Field("confidence", f"{bar(learned['confidence'])} {learned['confidence']:.2f}")
    yield Field(
        "importance",
        f"{bar(learned['importance'])} {learned['importance']:.2f}  {'; '.join(learned['reasons'])}".rstrip(),
    )
    yield Field("kind", KINDS[learned["kind"]][1])
    by = f" by {learned['targetAgent']}" if learned["targetAgent"] else ""
    about = "how agents work together" if learned["domain"] == "team" else "the work itself"
    since = when(learned["createdAt"], now) or "at an unknown time"
    yield Field("found", f"{since}{by}, {learned['phase'] or 'written by hand'}, about {about}")
    if learned["task"]:
        yield Field("in session", one_line(learned["task"]))
    if learned["reinforcementCount"]:
        last = f", last {when(learned['lastReinforced'], now)}" if learned["lastReinforced"] else ""
        yield Field("repeated", f"by {formats.count(learned['reinforcementCount'], 'session')}{last}")
    if learned["promotedAt"]:
        count = formats.count(len(learned["promotedFrom"]), "entry", "entries")
        yield Field("promoted", f"{when(learned['promotedAt'], now)}, from {count}")
    if learned["gone"]:
        yield Field("missing", f"{formats.count(len(learned['gone']), 'source')} no longer in any file", "wants")
    yield Field("reached", formats.count(learned["prompts"], "prompt") if learned["prompts"] else "no prompt yet")
    yield Field("file", learned["path"], "faint")


def retraction_fields(learning: Document) -> Iterator[Field]:
    """The effect of retracting a learning."""
    yield Field("", title(learning), "title")
    yield Field("", "No prompt will contain it. It stays in its file, marked as retracted, with your reason.")
    active = [entry for entry in learning["became"] if entry["status"] == "active"]
    if not active:
        yield Field("", "Nothing valid was promoted from it.", "grey")
        return
    yield Field("", f"{formats.count(len(active), 'learning')} promoted from it will wait for your decision:", "wants")
    for entry in active[:MAX_AFFECTED]:
        yield Field("", f"▸ {scope_words(entry)}: {title(entry)}")
    if len(active) > MAX_AFFECTED:
        yield Field("", f"  and {len(active) - MAX_AFFECTED:,} more", "faint")


def promotion_fields(learning: Document) -> Iterator[Field]:
    """The effect of applying a learning in all projects."""
    yield Field("", title(learning), "title")
    yield from (Field("", line) for line in learning["text"].split("\n")[:MAX_PREVIEW_LINES])
    explanation = "If you confirm, a copy goes to the learnings of all projects and into their prompts."
    yield Field("", f"It applies in {scope_words(learning)} now. {explanation} You can retract the copy.", "grey")
