"""Operations on sessions: work, land, comment, branch, discard, xray, reply, permissions (SPEC 3.9, 9.3, 9.4, 9.6).

An id may be that of the session, of its card or of its changes; see `find_target`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from engine.api.documents import Document, document
from engine.api.operations import (
    ACCEPT_WHOLE_FLOAT,
    SHOWN_TRANSCRIPT_LINES,
    Limit,
    NonEmptyText,
    Target,
    Text,
    find_target,
    make_document_with_transcript,
    match_prefix,
    operation,
    quiet_operation,
    require_argument,
)
from engine.model import (
    ChangeSet,
    ChangeState,
    FilePart,
    ModelCall,
    PermissionAnswer,
    PermissionRequest,
    PromptPart,
    Refusal,
    SessionState,
    SessionView,
)

if TYPE_CHECKING:
    from engine.services import Services

MAX_SEARCHED_ROWS = 1000
"""Number of the newest sessions, and of the newest changes, among which those of some workspaces are searched."""

MAX_SEARCHED_REQUESTS = 1000
"""Number of the latest permission requests among which the beginning of an id is searched."""


@quiet_operation
def work(
    engine: Services,
    id: Text | None = None,
    workspaces: Sequence[str] = (),
    limit: Limit = 20,
    lines: Annotated[int, Field(ge=0, le=2000), ACCEPT_WHOLE_FLOAT] = SHOWN_TRANSCRIPT_LINES,
    diff: bool = False,
    shown: bool = False,
) -> Document:
    """List sessions and waiting changes; with an id one session, with the end of its transcript.

    `elsewhere` counts the sessions of workspaces that were not asked for. With `shown` a person looks at the answer, so
    the card of a session that ran by itself counts as reviewed.
    """
    if id is None:
        return _list_work(engine, workspaces, limit)
    target = _find_target_of_work(engine, id)
    if shown and target.card is not None:
        engine.cards.mark_reviewed(target.card.id)
    reply = make_document_with_transcript(engine, target, lines)
    if diff and target.change_set is not None:
        reply["diff"] = document(engine.changes.read_diff(target.change_set.id))
    return reply


@operation
def land(
    engine: Services, id: NonEmptyText, only: Sequence[Any] = (), without: Sequence[NonEmptyText] = ()
) -> Document:
    """Write a change set into the working tree: all of it or nothing, or `only` some of its files, or some of their
    hunks, or all that can be landed `without` some files."""
    target = _find_target_of_work(engine, id)
    parts = [_parse_file_part(part) for part in only]
    if without:
        if parts:
            raise Refusal("bad_arguments", "`only` and `without` exclude each other", "give one of them")
        parts = _select_parts_without(engine.changes.get(target.change_set_id), without)
    engine.changes.land(target.change_set_id, parts)
    engine.card_store.follow_landings()  # a cycle would do this, but an engine for one operation has none
    return find_target(engine, target.change_set_id).document()


@operation
def branch(engine: Services, id: NonEmptyText) -> Document:
    """Commit a change set to a new branch."""
    target = _find_target_of_work(engine, id)
    engine.changes.branch(target.change_set_id)
    engine.card_store.follow_landings()
    return find_target(engine, target.change_set_id).document()


@operation
def discard(engine: Services, id: NonEmptyText, yes: bool = False) -> Document:
    """Preview which changes would be deleted; with `yes` delete them, which cannot be undone. An interrupted session
    that left no changes is acknowledged at once."""
    target = _find_target_of_work(engine, id)
    interrupted = target.session if target.session and target.session.state is SessionState.INTERRUPTED else None
    if interrupted is not None and target.change_set is None:
        engine.acknowledge(interrupted.id)
        return target.document() | {"discarded": True}
    if not yes:
        engine.changes.load_row(target.change_set_id, ChangeState.DISCARDED)  # refuses what cannot be discarded
        return target.document() | {"discarded": False}
    if interrupted is not None:
        engine.acknowledge(interrupted.id)
    engine.changes.discard(target.change_set_id)
    engine.card_store.follow_landings()
    return find_target(engine, target.change_set_id).document() | {"discarded": True}


@operation
def comment(
    engine: Services,
    id: NonEmptyText,
    file: Text | None = None,
    line: Annotated[int, Field(ge=0, le=10_000_000), ACCEPT_WHOLE_FLOAT] = 0,
    text: Text | None = None,
    old: bool = False,
    remove: Annotated[int, Field(ge=1, le=1_000_000), ACCEPT_WHOLE_FLOAT] | None = None,
    send: bool = False,
) -> Document:
    """Comment on a line of a change set, remove a comment, or send the unsent ones to the agent as a card that
    continues its session; without any of these, show the comments."""
    target, comments = _find_target_of_work(engine, id), engine.changes.comments
    change_id = target.change_set_id
    if file is not None and text is not None:
        comments.add(change_id, file, line, text, old=old)
    if remove:
        comments.remove(change_id, remove)
    reply = find_target(engine, change_id).document()
    if send:
        session = target.session
        assert session is not None  # it has a change set
        if session.flow is not None:
            raise Refusal(
                "no_agent", f"{session.id} was not made by an agent, so its comments stay as notes", "`clawpy propose`"
            )
        message, numbers = comments.make_unsent_message(change_id)
        card = engine.cards.propose(message, workspace=session.workspace, continues=session.id)
        reply |= {"continues": document(card), "changeSet": document(comments.mark_sent(change_id, numbers))}
    return reply


@quiet_operation
def xray(engine: Services, id: NonEmptyText, call: Any = None) -> Document:
    """The model calls of a session, or of a night as `nightly:2026-01-05`; with `call` (a number from 1, or an id) its
    prompt, each line with its source, its trust and the objection of the content filter."""
    session = None
    if not id.startswith("nightly:"):
        session = find_target(engine, id).session
        if session is None:
            raise Refusal("no_session", "this card has not run yet", "approve it first: clawpy approve ID")
        id = session.id
    calls = engine.calls.list_for_session(id)
    reply: Document = {"id": id, "session": document(session), "calls": document(calls)}
    if call is None:
        return reply
    chosen_call = _find_call(calls, call, id)
    parts = engine.calls.read_prompt(chosen_call.id)
    prompt = [
        _make_prompt_part(part, objections)
        for part, objections in zip(parts, engine.find_objections(parts), strict=True)
    ]
    return reply | {"call": document(chosen_call), "prompt": prompt, "reply": engine.calls.read_reply(chosen_call.id)}


@operation
def reply(engine: Services, id: NonEmptyText, text: NonEmptyText) -> Document:
    """Send a message to a running session."""
    target = _find_target_of_work(engine, id)
    if target.session is None:
        raise Refusal("no_session", "this card has not run yet", f"clawpy approve {target.card_id} runs it")
    engine.sessions.reply(target.session.id, text)
    return {"session": document(engine.sessions.get(target.session.id))}


@operation
def permissions(
    engine: Services,
    action: Literal["list", "allow", "deny"] = "list",
    id: Text = "",
    session: bool = False,
    all: bool = False,
    limit: Limit = 50,
) -> Document:
    """List open requests (with `all` the latest), or answer one: once, or with `session` as long as the session
    runs."""
    if action == "list":
        requests = engine.permissions.list_newest(limit) if all else engine.permissions.list_waiting()
        return {"permissions": [_make_permission_document(engine, request) for request in requests]}
    requests = [*engine.permissions.list_waiting(), *engine.permissions.list_newest(MAX_SEARCHED_REQUESTS)]
    request_id = match_prefix(
        require_argument("id", id),
        [request.id for request in requests],
        what="permission request",
        see="clawpy permissions list",
    )
    answer = PermissionAnswer(f"{action}-{'session' if session else 'once'}")
    return {"permissions": [_make_permission_document(engine, engine.permissions.answer(request_id, answer))]}


def _find_target_of_work(engine: Services, given_id: str) -> Target:
    """The session, change set or card with this id, or with an id that begins so."""
    return find_target(engine, given_id, see="clawpy work")


def _list_work(engine: Services, workspaces: Sequence[str], limit: int) -> Document:
    """The sessions and waiting changes of the workspaces, of all when none is named."""

    def is_here(item: SessionView | ChangeSet) -> bool:
        return not workspaces or item.workspace in workspaces

    fetched = MAX_SEARCHED_ROWS if workspaces else limit
    sessions = engine.sessions.list_newest(limit=fetched)
    undecided_changes = engine.changes.list_undecided(limit=fetched)
    elsewhere = Counter(session.workspace for session in sessions if not is_here(session))
    return {
        "sessions": document([*filter(is_here, sessions)][:limit]),
        "changeSets": document([*filter(is_here, undecided_changes)][:limit]),
        "elsewhere": dict(elsewhere.most_common()),
    }


def _parse_file_part(part: object) -> FilePart:
    """`{"path": "cart.py", "hunks": [1, 3]}`, or the path alone."""
    if isinstance(part, str):
        return FilePart(part)
    path, hunks = (part.get("path"), part.get("hunks") or []) if isinstance(part, dict) else (None, None)
    if not isinstance(path, str) or not isinstance(hunks, list) or not all(type(hunk) is int for hunk in hunks):
        raise Refusal("bad_arguments", "only: a path, or a path with hunks", '{"path": "cart.py", "hunks": [1, 3]}')
    return FilePart(path, tuple(hunks))


def _select_parts_without(change: ChangeSet, without: Sequence[str]) -> list[FilePart]:
    """The files that can be landed, except for those in `without`. Raises `Refusal` `unknown_file`, and
    `nothing_to_land` if no file is left."""
    paths = [file.path for file in change.files]
    if unknown := [path for path in without if path not in paths]:
        raise Refusal("unknown_file", f"{unknown[0]} is not among the changes that wait", f"`clawpy work {change.id}`")
    parts = [FilePart(file.path) for file in change.landable_files if file.path not in without]
    if not parts:
        raise Refusal("nothing_to_land", "no other file can be landed", f"`clawpy work {change.id}` lists them")
    return parts


def _make_prompt_part(part: PromptPart, objections: Sequence[str]) -> Document:
    lines = [
        {
            "text": line.text,
            "source": line.source.kind.value,
            "ref": line.source.ref,
            "label": line.source.label,
            "trust": line.source.standing,
            "hostile": hostile,
        }
        for line, hostile in zip(part.lines, objections, strict=True)
    ]
    return {"name": part.name, "role": part.role, "tokens": part.tokens, "lines": lines}


def _find_call(calls: list[ModelCall], requested: object, session_id: str) -> ModelCall:
    """The call with this id or number. Raises `Refusal` `unknown_call`."""
    wanted = str(requested).lstrip("0")
    for number, call in enumerate(calls, 1):
        if wanted in (call.id, str(number)):
            return call
    number_made = f"it made {len(calls)}" if calls else "it made no model calls: a flow runs without a model"
    raise Refusal(
        "unknown_call", f"{session_id} has no such call; {number_made}", "count from 1: clawpy xray ID --call 1"
    )


def _make_permission_document(engine: Services, request: PermissionRequest) -> Document:
    until = request.answered_at or engine.clock.now()
    return {**document(request), "waitedSeconds": round((until - request.asked_at).total_seconds(), 1)}
