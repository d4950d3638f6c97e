"""Statements that are asked often: built once, executed without the ORM's detours.

Building a `select` costs more than SQLite needs to answer it. So what is asked on every decision is a module's
constant, with `bindparam`s, and is executed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Executable
from sqlalchemy.engine import Result
from sqlmodel import Session


def ask(session: Session, statement: Executable, values: Mapping[str, Any] | None = None) -> Result[*tuple[Any, ...]]:
    """Execute a prepared statement in the session's transaction; what the session has not written yet is, first."""
    session.flush()
    return session.connection().execute(statement, values)
