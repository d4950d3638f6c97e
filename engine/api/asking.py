"""The verb about permissions that sessions wait for (SPEC 9.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.api import wire
from engine.api.arguments import Arguments
from engine.api.find import FAR_BACK, match
from engine.api.wire import Document
from engine.model import PermissionAnswer, PermissionRequest

if TYPE_CHECKING:
    from engine.engine import Engine


def permissions(engine: Engine, arguments: Arguments) -> Document:
    """list what waits (with `all` the latest), allow or deny one: once, or with `session` for the same thing as long as
    the session runs."""
    action = arguments.choice("action", ("list", "allow", "deny"), "list")
    if action == "list":
        limit = int(arguments.number("limit", 50, least=1, most=1000))
        found = engine.permissions.latest(limit) if arguments.flag("all") else engine.permissions.waiting()
        return {"permissions": [_permission(engine, one) for one in found]}
    lasts = arguments.flag("session")
    if action == "allow":
        answer = PermissionAnswer.ALLOW_SESSION if lasts else PermissionAnswer.ALLOW_ONCE
    else:
        answer = PermissionAnswer.DENY_SESSION if lasts else PermissionAnswer.DENY_ONCE
    wanted = match(
        arguments.needed("id"),
        [one.id for one in engine.permissions.waiting()] + [one.id for one in engine.permissions.latest(FAR_BACK)],
        what="permission request",
        see="clawpy permissions list",
    )
    return {"permissions": [_permission(engine, engine.permissions.answer(wanted, answer))]}


def _permission(engine: Engine, one: PermissionRequest) -> Document:
    until = one.answered_at or engine.clock.now()
    return {
        "id": one.id,
        "session": one.session_id,
        "targetAgent": one.agent,
        "workspace": one.workspace,
        "tool": one.tool,
        "title": one.title,
        "detail": one.detail,
        "reason": one.reason,
        "askedAt": wire.instant(one.asked_at),
        "waitedSeconds": round((until - one.asked_at).total_seconds(), 1),
        "answeredAt": wire.instant(one.answered_at),
        "answer": None if one.answer is None else one.answer.value,
        "withdrawn": one.withdrawn,
        "by": one.by,
    }
