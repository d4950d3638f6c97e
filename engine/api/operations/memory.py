"""Operations on memory: recall, remember, note, drafts, forget (SPEC 4, 10.4).

Agents that work elsewhere use `note` under their own names, never as the operator. A name that claims authority is
refused: `parse_agent_name` reads `0wner`, `ＯＷＮＥＲ` and `owner1` as `owner`.

`remember` reads lines of JSON. A line that cannot be read is reported with its number; the other lines are stored.
Memories that it stores never expire.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from engine.api.documents import Document, document
from engine.api.operations import (
    ACCEPT_WHOLE_FLOAT,
    Limit,
    NonEmptyText,
    Text,
    match_prefix,
    operation,
    quiet_operation,
    require_argument,
)
from engine.memory.importing import read_json_lines
from engine.model import ForgetPreview, ForgetReport, NewMemory, Recall, RecallQuery, Refusal, find_or_none
from engine.text import fold_text, one_line, sanitise

if TYPE_CHECKING:
    from engine.services import Services

RECALL_DEADLINE_S = 20.0
"""Seconds that a layer has. It is longer than for prompts: a person waits for the answer, and the first question loads
the embedding model."""

MAX_LISTED_DRAFTS = 200
"""Maximum number of drafts that are listed, oldest first."""


@quiet_operation
def recall(
    engine: Services,
    query: NonEmptyText,
    k: Limit = 10,
    agent: Text | None = None,
    workspaces: Sequence[str] = (),
    settle: Annotated[float, Field(ge=0, le=30)] = 5.0,
) -> Document:
    """The `k` best memories for `query`, of one workspace, or of all if none or several are named. First waits up to
    `settle` seconds for vectors that are still being made. `agent` may be retired."""
    if agent and agent not in [view.id for view in engine.agents.list_retired()]:
        engine.agents.get(agent)
    missing, problem = engine.memory.count_missing_vectors()
    if missing and not problem and settle:
        engine.memory.settle(settle)
    workspace = workspaces[0] if len(workspaces) == 1 else None
    question = RecallQuery(query, k=k, workspace=workspace, agent=agent)
    result: Recall = engine.memory.recall(question, deadline=RECALL_DEADLINE_S)
    return {"results": document(result.items), "leftOut": list(result.left_out)}


@quiet_operation
def remember(
    engine: Services,
    lines: Sequence[str] = (),
    first: Annotated[int, Field(ge=1, le=10**12), ACCEPT_WHOLE_FLOAT] = 1,
    source: Text = "",
    settle: Annotated[float, Field(ge=0, le=30)] = 0,
) -> Document:
    """Store `lines`, of which the first has the number `first` in `source`; then wait up to `settle` seconds for
    vectors. What is acknowledged is on disk.

    `remembered` are new, `known` were stored before; `bad` lines are skipped, or `kept` without their time.
    """
    items, problems = read_json_lines(list(lines), first=first, source=source)
    new_count = engine.memory.remember(items).new if items else 0
    settled = engine.memory.settle(settle, indexed=True) if settle else False
    missing, trouble = engine.memory.count_missing_vectors()
    return {
        "remembered": new_count,
        "known": len(items) - new_count,
        "bad": [problem._asdict() for problem in problems],
        "settled": settled,
        "missing": missing,
        "index": engine.memory.index.state.phase,
        "trouble": trouble,
    }


@quiet_operation
def note(
    engine: Services,
    text: NonEmptyText,
    by: NonEmptyText,
    kind: Literal["fact", "decision", "correction", "note"] = "fact",
    workspace: Text = "",
) -> Document:
    """Store `text` as said `by` an agent, without what looks like a secret. A note lasts a day, other kinds until they
    are forgotten."""
    name = parse_agent_name(by)
    memory = NewMemory(text, kind=kind, speaker=name, workspace=workspace, source=f"mcp:{name}")
    stored = engine.memory.remember([memory])
    return {"id": stored.ids[0], "new": bool(stored.new), "by": name}


@operation
def drafts(
    engine: Services, action: Literal["list", "promote", "dismiss"] = "list", id: Text = "", edit: Text = ""
) -> Document:
    """List drafts of facts; keep one as a fact, with the text of `edit` if given; or dismiss one for good."""
    service = engine.knowledge.drafts
    waiting_drafts = service.list_waiting(MAX_LISTED_DRAFTS)
    if action == "list":
        return {"drafts": document(waiting_drafts)}
    # A decided draft is found by its whole id, so that a repeated verb reports the decision.
    decided_ids = [id] if find_or_none(service.get, require_argument("id", id)) is not None else []
    draft_id = match_prefix(
        id, [*decided_ids, *(draft.id for draft in waiting_drafts)], what="draft", see="clawpy drafts list"
    )
    if action == "dismiss":
        return {"drafts": [document(service.reject(draft_id))]}
    fact = service.promote(draft_id, edit=edit)
    return {"drafts": [document(service.get(draft_id))], "fact": document(fact)}


@operation
def forget(engine: Services, what: NonEmptyText, yes: bool = False) -> Document:
    """Preview what forgetting an id or words would delete; with `yes` delete it, which cannot be undone.

    Raises `Refusal`: `nothing_found`, and as `Forgetting.forget`.
    """
    preview = engine.knowledge.forgetting.preview(what)
    if not preview.total:
        message = f"nothing contains “{sanitise(what)[:80]}”"
        raise Refusal("nothing_found", message, "give the full id of an entry, or its exact words")
    report: ForgetPreview | ForgetReport = preview
    if yes:
        report = engine.knowledge.forgetting.forget(preview.wanted)
    return {
        "forgotten": yes,
        "wanted": list(preview.wanted),
        "counts": dict(report.counts),
        "places": document(preview.places),
        "left": list(report.left),
    }


MAX_NAME_CHARS = 60
"""Maximum length of an agent's name; the rest is cut off."""

_RESERVED_NAMES = """
    admin administrator alfred api automation autonomy boss butler ceo chief clawpy clawpyconsole console customer
    engine gateway human lucius me moderator myself nightly operator owner root safety self system theoperator theowner
    theuser twin user you
"""
RESERVED_NAMES = frozenset(_RESERVED_NAMES.split())
"""Names that no agent may use: names of the operator, the engine, and of others with their authority."""

_LETTER_BY_LOOKALIKE = str.maketrans("013457$@|!", "oieastsaii")


def parse_agent_name(given_name: str) -> str:
    """The name of an agent, on one line.

    Raises `Refusal`: `bad_arguments` for an empty name, `not_its_name` for a reserved name in any spelling, and for a
    name without letters and digits.
    """
    name = one_line(given_name)[:MAX_NAME_CHARS]
    if not name:
        raise Refusal("bad_arguments", "an agent needs a name", "for example claude-code")
    if not any(map(str.isalnum, name)) or not RESERVED_NAMES.isdisjoint(_list_lookalike_spellings(name)):
        raise Refusal("not_its_name", f"no agent may be named {name!r}", "use its own name, for example claude-code")
    return name


def _list_lookalike_spellings(name: str) -> list[str]:
    """The words that a person may read in a name, without signs and accents: as it is spelt, and with letters in place
    of digits and signs that look like them (`0per@tor` as `operator`, `a1fred` as `aifred` and `alfred`). Each stands
    also without the number at its end."""
    plain = unicodedata.normalize("NFKD", fold_text(name)).casefold()
    spellings = (plain, re.sub(r"[\W\d_]+\Z", "", plain))
    lookalikes = [text.translate(_LETTER_BY_LOOKALIKE) for text in spellings]
    readings = (*spellings, *lookalikes, *(text.replace("i", "l") for text in lookalikes))
    return ["".join(filter(str.isalnum, text)) for text in readings]
