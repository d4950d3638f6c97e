"""The table of change sets, and which of their states may follow which (SPEC 3.9)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, CheckConstraint, Column, Index
from sqlmodel import Field, Session

from engine.execution.session_store import check_of
from engine.model import ChangeSet, ChangeState, DiffComment, FileChange, Refusal
from engine.storage.rows import Row, value_of
from engine.storage.types import utc

NEXT: dict[ChangeState, set[ChangeState]] = {
    ChangeState.WAITING: {ChangeState.LANDED, ChangeState.BRANCHED, ChangeState.DISCARDED},
    ChangeState.LANDED: {ChangeState.UNDONE},
    ChangeState.UNDONE: {ChangeState.LANDED, ChangeState.BRANCHED, ChangeState.DISCARDED},
}
"""What may be asked of a change set by its state. While part of one that waits is landed, that can be undone too."""


class ChangeSetRow(Row, table=True):
    """One change set. `landings` are those that were not undone, the oldest first: the `tree` that its work is then
    landed up to, the `files` of that, the `plan` that wrote them. `written`: what landings and undos wrote (path,
    mtime_ns); `kept`: its refs in the repository are still there."""

    __tablename__ = "change_sets"
    __table_args__ = (
        CheckConstraint(
            "state IN ('waiting', 'landed', 'branched', 'discarded', 'undone')", name="ck_change_sets_state"
        ),
        Index("ix_change_sets_state", "state", "created_at"),
        Index("ix_change_sets_workspace", "workspace", "state", "created_at"),
    )

    id: str = Field(primary_key=True)
    session_id: str = Field(unique=True)
    prediction_id: str = Field(index=True)
    workspace: str
    state: str = ChangeState.WAITING.value
    base_tree: str
    result_tree: str
    files: list[dict[str, Any]] = Field(sa_column=Column(JSON, nullable=False))
    title: str
    check_result: dict[str, Any] | None = Field(default=None, sa_column=Column(JSON))
    created_at: datetime = Field(sa_column=utc())
    decided_at: datetime | None = Field(default=None, sa_column=utc(nullable=True))
    branch: str = ""
    note: str = ""
    landings: list[dict[str, Any]] = Field(
        default_factory=list, sa_column=Column(JSON, nullable=False, server_default="[]")
    )
    written: dict[str, int] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    kept: bool = True
    comments: list[dict[str, Any]] = Field(
        default_factory=list, sa_column=Column(JSON, nullable=False, server_default="[]")
    )

    @property
    def landed_tree(self) -> str:
        """The base with everything of it that is landed: what is left to land is from there to `result_tree`."""
        return self.landings[-1]["tree"] if self.landings else self.base_tree

    @property
    def landed(self) -> int:
        """Files that its landings changed."""
        return len({entry["path"] for one in self.landings for entry in one["plan"]["entries"]})

    def view(self) -> ChangeSet:
        """The row as screens and verbs see it."""
        return value_of(
            self,
            ChangeSet,
            state=ChangeState(self.state),
            files=tuple(FileChange(**file) for file in self.files),
            check=check_of(self.check_result),
            comments=tuple(DiffComment(**comment) for comment in self.comments),
            landings=len(self.landings),
        )


BACK = {
    ChangeState.LANDED: "`clawpy undo {}` undoes it",
    ChangeState.UNDONE: "`clawpy land {}` lands it again",
}
"""What can be done about a change set that is what it was to become."""


def checked(session: Session, change_set_id: str, becoming: ChangeState | None) -> ChangeSetRow:
    row = session.get(ChangeSetRow, change_set_id)
    if row is None:
        raise Refusal("unknown_change_set", f"there is no change set {change_set_id}", "`clawpy work` lists them")
    if becoming is not None and becoming not in NEXT.get(ChangeState(row.state), set()):
        if becoming is ChangeState.UNDONE and row.landings:
            return row
        if becoming == row.state:
            fix = BACK.get(becoming, "`clawpy work` shows it").format(row.id)
            raise Refusal("already_decided", f"{row.id} is {row.state} already", fix)
        told = f"{row.id} is {row.state} and cannot be {becoming.value}"
        fix = "`clawpy work` shows it"
        if becoming is ChangeState.UNDONE and row.state == ChangeState.BRANCHED:
            fix = f"none of your files changed; `git branch -D {row.branch}` deletes the branch"
        raise Refusal("already_decided", told, fix)
    return row
