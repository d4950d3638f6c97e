"""The settings of retention: for how many days the rows of each table are kept (SPEC 4.2)."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic.fields import FieldInfo

from engine.config.section import Section

MAX_DAYS = 36_500
"""Most days that a setting accepts. 0 keeps rows forever."""


def _days(minimum: int, reason: str) -> FieldInfo:
    """The days that a table accepts: 0, or at least `minimum`, for this `reason`."""

    def check(value: int | None) -> int | None:
        if value and not minimum <= value <= MAX_DAYS:
            raise ValueError(
                f"{value} is not accepted; expected 0 (keep forever) or {minimum} to {MAX_DAYS} days: {reason}"
            )
        return value

    kind: FieldInfo = Field(description=f"0 (keep forever) or days from {minimum} to {MAX_DAYS}")
    kind.metadata.append(AfterValidator(check))
    return kind


EVENT_DAYS = _days(35, "agents' work of the last 30 days is analysed")
RECORD_DAYS = _days(90, "candidates are drafted from the last 90 days")
RUN_DAYS = _days(35, "recent test failures are needed")
COST_DAYS = _days(35, "the monthly caps are computed from them")
TRIGGER_DAYS = _days(35, "the rails need their recent blocks")


class RetentionSettings(Section):
    """`[retention]`: for how many days the rows of each table are kept; 0 is forever. Sums by day are always kept.

    Rows that the program still needs are kept, whatever their age: see `engine.retention`.
    """

    memory_events: Annotated[int, EVENT_DAYS] = 0
    learning_records: Annotated[int, RECORD_DAYS] = 180
    validation_runs: Annotated[int, RUN_DAYS] = 0
    cost_entries: Annotated[int, COST_DAYS] = 0
    crosspoll_log: Annotated[int, TRIGGER_DAYS] = 0


class WorkspaceRetention(Section):
    """`[workspaces."/path".retention]`: the same for one workspace. None: as in `[retention]`."""

    memory_events: Annotated[int | None, EVENT_DAYS] = None
    learning_records: Annotated[int | None, RECORD_DAYS] = None
    validation_runs: Annotated[int | None, RUN_DAYS] = None
    cost_entries: Annotated[int | None, COST_DAYS] = None
    crosspoll_log: Annotated[int | None, TRIGGER_DAYS] = None
