"""The settings of retention: for how many days the rows of each table are kept (SPEC 4.2)."""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from engine.config.section import Section
from engine.frozen import frozen

MAX_DAYS = 36_500
"""Most days that a setting accepts. 0 keeps rows forever."""


@frozen
class Minimum:
    """The fewest days for which the rows of a table may be kept, and the reason."""

    days: int
    reason: str


MINIMUM_OF_TABLE = {
    "memory_events": Minimum(35, "agents' work of the last 30 days is analysed"),
    "learning_records": Minimum(90, "candidates are drafted from the last 90 days"),
    "validation_runs": Minimum(35, "recent test failures are needed"),
    "cost_entries": Minimum(35, "the monthly caps are computed from them"),
    "crosspoll_log": Minimum(35, "the rails need their recent blocks"),
}


def _days(table: str, default: int | None) -> Any:
    """The field with the days of one table."""
    days = MINIMUM_OF_TABLE[table].days
    return Field(default, description=f"0 (keep forever) or days from {days} to {MAX_DAYS}")


class _Days(Section):
    """Days by table. Each is 0, or at least the minimum of its table."""

    @field_validator("*")
    @classmethod
    def _check(cls, value: int | None, info: ValidationInfo) -> int | None:
        minimum = MINIMUM_OF_TABLE[info.field_name or ""]
        if value and not minimum.days <= value <= MAX_DAYS:
            accepted = f"0 (keep forever) or {minimum.days} to {MAX_DAYS} days: {minimum.reason}"
            raise ValueError(f"{value} is not accepted; expected {accepted}")
        return value


class RetentionSettings(_Days):
    """`[retention]`: for how many days the rows of each table are kept; 0 is forever. Sums by day are always kept.

    Rows that the program still needs are kept, whatever their age: see `engine.retention`.
    """

    memory_events: int = _days("memory_events", 0)
    learning_records: int = _days("learning_records", 180)
    validation_runs: int = _days("validation_runs", 0)
    cost_entries: int = _days("cost_entries", 0)
    crosspoll_log: int = _days("crosspoll_log", 0)


class WorkspaceRetention(_Days):
    """`[workspaces."/path".retention]`: the same for one workspace. None: as in `[retention]`."""

    memory_events: int | None = _days("memory_events", None)
    learning_records: int | None = _days("learning_records", None)
    validation_runs: int | None = _days("validation_runs", None)
    cost_entries: int | None = _days("cost_entries", None)
    crosspoll_log: int | None = _days("crosspoll_log", None)
