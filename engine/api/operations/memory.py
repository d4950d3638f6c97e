"""Operations on memory: recall, remember, note, suggest, drafts, forget (SPEC 4, 10.4).

`note` and `suggest` are for agents that work elsewhere. These act under their own name, never as the operator, so their
cards wait like any other card. `remember` reads lines of JSON. A line that cannot be read is reported with its number;
the other lines are stored. These memories never expire.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from engine.api.documents import Document, document
from engine.api.operations.operation import (
    ACCEPT_WHOLE_FLOAT,
    NonEmptyText,
    Text,
    match_prefix,
    operation,
    require,
)
from engine.clock import in_utc
from engine.frozen import frozen
from engine.memory.store import check_memory
from engine.model import NewMemory, Recall, RecallQuery, Refusal, Retention, sanitise
from engine.model.base import find_or_none
from engine.model.text import one_line

if TYPE_CHECKING:
    from engine.services import Services


RECALL_DEADLINE_S = 20.0
"""Seconds that a layer has. It is longer than for prompts: a person waits for the answer, and the first question loads
the embedding model."""

MAX_LISTED_DRAFTS = 200
"""Maximum number of drafts that are listed, oldest first."""

MAX_NAME_CHARS = 60
MAX_REASON_CHARS = 500

_RESERVED_NAMES = """
    admin administrator alfred api automation autonomy boss butler ceo chief clawpy clawpyconsole console customer
    engine gateway human lucius me moderator myself nightly operator owner root safety self system theoperator theowner
    theuser twin user you
"""
RESERVED_NAMES = frozenset(_RESERVED_NAMES.split())
"""Names that no agent may use: names of the operator, the engine, and of others with their authority."""

_LETTER_BY_LOOKALIKE = str.maketrans("013457$@|!", "oieastsaii")

MaxResults = Annotated[int, ACCEPT_WHOLE_FLOAT, Field(ge=1, le=1_000)]

_TIME_FORMATS = (
    "%Y/%m/%d %H:%M",
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d",
    "%I:%M %p on %d %B, %Y",
    "%d %B, %Y",
    "%d %B %Y",
    "%B %d, %Y",
)

_WEEKDAY = re.compile(r"\s*\([A-Za-z]{3,9}\)")

MILLISECONDS = 10**11
"""A number above this is milliseconds since 1970; as seconds it would be after the year 5000."""


@frozen
class RejectedLine:
    """A line that was skipped, or `stored` without a part of it, with the reason in words."""

    line: int
    message: str
    stored: bool = False


@operation()
def recall(
    engine: Services,
    query: NonEmptyText,
    k: MaxResults = 10,
    agent: Text | None = None,
    workspaces: Sequence[str] = (),
    settle: Annotated[float, Field(ge=0, le=30)] = 5.0,
) -> Document:
    """The `k` best memories for `query`, after up to `settle` seconds for vectors that are still being made."""
    missing, problem = engine.memory.missing()
    if missing and not problem and settle:
        engine.memory.settle(settle)
    workspace = workspaces[0] if len(workspaces) == 1 else None
    question = RecallQuery(query, k=k, workspace=workspace, agent=agent)
    result: Recall = engine.memory.recall(question, deadline=RECALL_DEADLINE_S)
    return {"results": document(result.items), "leftOut": list(result.left_out)}


@operation()
def remember(
    engine: Services,
    lines: Sequence[str] = (),
    first: Annotated[int, ACCEPT_WHOLE_FLOAT, Field(ge=1, le=10**12)] = 1,
    source: Text = "",
    settle: Annotated[float, Field(ge=0, le=30)] = 0,
) -> Document:
    """Store `lines`, of which the first has the number `first` in `source`; then wait up to `settle` seconds for
    vectors. What is acknowledged is on disk.

    `remembered` are new, `known` were stored before; `bad` lines are skipped, or `kept` without what was wrong.
    """
    items, bad = read_lines(list(lines), first=first, source=source)
    new = engine.memory.remember(items).new if items else 0
    settled = engine.memory.settle(settle, indexed=True) if settle else False
    missing, problem = engine.memory.missing()
    return {
        "remembered": new,
        "known": len(items) - new,
        "bad": [{"line": line.line, "message": line.message, "kept": line.stored} for line in bad],
        "settled": settled,
        "missing": missing,
        "index": engine.memory.index.state.state,
        "trouble": problem,
    }


@operation()
def note(
    engine: Services,
    text: NonEmptyText,
    by: NonEmptyText,
    kind: Literal["fact", "decision", "correction", "note"] = "fact",
    workspace: Text = "",
) -> Document:
    """Store `text` as said `by` an agent, without what looks like a secret. A note lasts a day, other kinds until they
    are forgotten."""
    name = agent_name(by)
    memory = NewMemory(text, kind=kind, speaker=name, workspace=workspace, source=f"mcp:{name}")
    stored = engine.memory.remember([memory])
    return {"id": stored.ids[0], "new": bool(stored.new), "by": name}


@operation()
def suggest(
    engine: Services,
    text: NonEmptyText,
    by: NonEmptyText,
    workspace: NonEmptyText,
    reason: Text = "",
    channel: Text | None = None,
) -> Document:
    """Make a card with `text`, suggested `by` an agent; the same text again returns the pending card."""
    name, words = agent_name(by), sanitise(text).strip()
    for card in engine.cards.pending(include_snoozed=True):
        if (card.assignment.prompt, card.assignment.workspace) == (words, workspace):
            return {"predictions": [document(card)], "new": False}
    why = one_line(reason)[:MAX_REASON_CHARS]
    reasoning = f"suggested by {name}" + (f": {why}" if why else "")
    card = engine.cards.propose(text, workspace=workspace, channel=channel, reasoning=reasoning)
    return {"predictions": [document(card)], "new": True}


@operation(marks_presence=True)
def drafts(
    engine: Services, action: Literal["list", "promote", "dismiss"] = "list", id: Text = "", edit: Text = ""
) -> Document:
    """List drafts of facts; keep one as a fact, with the text of `edit` if given; or dismiss one for good."""
    service = engine.knowledge.drafts
    waiting = service.waiting(MAX_LISTED_DRAFTS)
    if action == "list":
        return {"drafts": document(waiting)}
    # A decided draft is found by its whole id, so that a repeated verb reports the decision.
    decided_ids = [id] if find_or_none(service.get, require("id", id)) is not None else []
    draft_id = match_prefix(
        id, [*decided_ids, *(draft.id for draft in waiting)], what="draft", see="clawpy drafts list"
    )
    if action == "dismiss":
        return {"drafts": [document(service.reject(draft_id))]}
    fact = service.promote(draft_id, edit=edit)
    return {"drafts": [document(service.get(draft_id))], "fact": document(fact)}


@operation(marks_presence=True)
def forget(engine: Services, what: NonEmptyText, yes: bool = False) -> Document:
    """Preview what forgetting an id or words would delete; with `yes` delete it, which cannot be undone.

    Raises `Refusal`: `nothing_found`, and as `Forgetting.forget`.
    """
    preview = engine.knowledge.forgetting.preview(what)
    if not preview.total:
        message = f"nothing contains “{sanitise(what)[:80]}”"
        raise Refusal("nothing_found", message, "give the full id of an entry, or its exact words")
    counts, remaining = preview.counts, preview.left
    if yes:
        report = engine.knowledge.forgetting.forget(preview.wanted)
        counts, remaining = report.counts, report.left
    return {
        "forgotten": yes,
        "wanted": list(preview.wanted),
        "counts": dict(counts),
        "places": [{"store": place.store, "id": place.id, "text": place.excerpt} for place in preview.places],
        "left": list(remaining),
    }


def agent_name(given_name: str) -> str:
    """The name of an agent, on one line.

    Raises `Refusal`: `bad_arguments` for an empty name, `not_its_name` for a reserved name in any spelling.
    """
    from engine.safety.content.shell import fold  # imported here, because it loads the whole content filter

    name = one_line(given_name)[:MAX_NAME_CHARS]
    if not name:
        raise Refusal("bad_arguments", "an agent needs a name", "for example claude-code")
    plain = unicodedata.normalize("NFKD", fold(name)).casefold()
    letters = "".join(filter(str.isalnum, plain))
    spoken = "".join(filter(str.isalnum, plain.translate(_LETTER_BY_LOOKALIKE)))
    bare = {letters, letters.rstrip("0123456789"), spoken, spoken.replace("i", "l")}
    if bare & RESERVED_NAMES or not any(letter.isalnum() for letter in name):
        raise Refusal("not_its_name", f"no agent may be named {name!r}", "use its own name, for example claude-code")
    return name


def read_lines(lines: Sequence[str], *, first: int, source: str) -> tuple[list[NewMemory], list[RejectedLine]]:
    """The memories in the lines of a file, and the rejected lines. `first` is the number of the first line, `source`
    the name of the file. Empty lines are skipped."""
    items, rejected = [], []
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        try:
            memory, note = _parse_line(line, f"{source}:{number}" if source else "")
            items.append(check_memory(memory))
            if note:
                rejected.append(RejectedLine(number, note, stored=True))
        except (Refusal, ValueError, RecursionError) as error:
            message = error.message if isinstance(error, Refusal) else str(error) or "nested too deeply"
            rejected.append(RejectedLine(number, message[:300]))
    return items, rejected


def _parse_line(line: str, source: str) -> tuple[NewMemory, str]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        where = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
        raise ValueError(f"not JSON: {where}") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("text"), str):
        raise ValueError('each line must be an object with "text"')
    note = ""
    try:
        at = parse_time(fields.get("timestamp"))
    except ValueError as error:
        at, note = None, f"{error}; stored without its time"
    speaker, session, agent, ref = (_string_field(fields, name) for name in ("speaker", "session", "agent", "id"))
    text, retention = fields["text"], Retention.FOREVER
    memory = NewMemory(
        text, speaker=speaker, at=at, session=session, agent=agent, source=source, retention=retention, ref=ref
    )
    return memory, note


def _string_field(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f'"{name}" must be a string')
    return str(value)


def parse_time(value: Any) -> datetime | None:
    """Read a time in a common format: ISO 8601, seconds or milliseconds since 1970, mail dates, and a few more. A time
    without a zone is in UTC. Raises ValueError."""
    if value is None or value == "":
        return None
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if abs(value) > MILLISECONDS else value, UTC)
        if isinstance(value, str):
            at = _parse_time(value.strip())
            return in_utc(at)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"{str(value)[:60]!r} is not a time") from error
    raise ValueError(f"{str(value)[:60]!r} is not a time")


def _parse_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    without_weekday = _WEEKDAY.sub("", text)
    for time_format in _TIME_FORMATS:
        try:
            return datetime.strptime(without_weekday, time_format)  # noqa: DTZ007 (the zone is added by the caller)
        except ValueError:
            continue
    return parsedate_to_datetime(text)
