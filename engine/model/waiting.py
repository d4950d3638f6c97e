"""The operator's queue, and the permissions that sessions ask for (SPEC 9.3)."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from engine.frozen import frozen


@frozen
class Waiting:
    """One entry of the operator's queue (SPEC 9.3): what waits, since when, and where a key leads."""

    kind: str  # "change_set", "permission", "bubble", "candidate", "interrupted", "fact", "learning", "notification"
    id: str
    title: str
    since: datetime
    session_id: str | None = None
    text: str = ""
    """Words of others that would guide agents, whole; "" for everything else."""

    hostile: str = ""
    """The objection of the content filter to `text`, "" for none."""


class PermissionAnswer(StrEnum):
    """What a person says to a request (SPEC 9.3)."""

    ALLOW_ONCE = "allow-once"
    ALLOW_SESSION = "allow-session"
    DENY_ONCE = "deny-once"
    DENY_SESSION = "deny-session"

    @property
    def allows(self) -> bool:
        """True when it may be done."""
        return self in (PermissionAnswer.ALLOW_ONCE, PermissionAnswer.ALLOW_SESSION)

    @property
    def lasts(self) -> bool:
        """True when it holds for the rest of the session."""
        return self in (PermissionAnswer.ALLOW_SESSION, PermissionAnswer.DENY_SESSION)


@frozen
class PermissionRequest:
    """Something a session wants to do and a person must look at. `detail` is what exactly (a command, a diff, a URL);
    `reason` why it is asked. `answer` is None while it waits; `withdrawn` when its session ended before."""

    id: str
    session_id: str
    agent: str
    workspace: str
    tool: str
    title: str
    detail: str
    reason: str
    asked_at: datetime
    answered_at: datetime | None = None
    answer: PermissionAnswer | None = None
    withdrawn: bool = False
    by: str = ""
