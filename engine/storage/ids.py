"""Ids by their beginning: `pred_4k…`, or `4k…` without the word before the underscore (SPEC 9.8)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, func, or_
from sqlmodel import Session, select

SOME = 20
"""Who asks for a beginning wants the one id, or a few to say that it is not enough."""


def beginning(session: Session, column: Any, wanted: str) -> list[str]:
    """Up to `SOME` ids of this column that begin so, of all there ever were. Letters count in either case here."""
    if not wanted:
        return []
    bare = func.substr(column, func.instr(column, "_") + 1)
    begins: ColumnElement[bool] = or_(
        column.startswith(wanted, autoescape=True), bare.startswith(wanted, autoescape=True)
    )
    return list(session.exec(select(column).where(begins).order_by(column).limit(SOME)))
