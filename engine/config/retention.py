"""Settings of retention (SPEC 4.2): for how many days the rows of a table are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, Field

from engine.config.agents import Section

MAX_DAYS = 36_500
"""Days; whoever wants more wants for ever, and says 0."""


def _at_least(least: int, why: str) -> tuple[Callable[[int], int], str]:
    """A check of a number of days and what it accepts, in words."""

    def check(value: int) -> int:
        if value and not least <= value <= MAX_DAYS:
            raise ValueError(f"{value} is not accepted; expected 0 (keep forever) or {least} to {MAX_DAYS} days: {why}")
        return value

    return check, f"0 (keep forever) or days from {least} to {MAX_DAYS}"


_EVENTS, _EVENTS_WORDS = _at_least(35, "agents' work of the last 30 days is analysed")
_RECORDS, _RECORDS_WORDS = _at_least(90, "candidates are drafted from the last 90 days")
_RUNS, _RUNS_WORDS = _at_least(35, "recent test failures are needed")
_COSTS, _COSTS_WORDS = _at_least(35, "the monthly caps are computed from them")
_TRIGGERS, _TRIGGERS_WORDS = _at_least(35, "the rails need their recent blocks")


EventDays = Annotated[int, AfterValidator(_EVENTS)]
RecordDays = Annotated[int, AfterValidator(_RECORDS)]
RunDays = Annotated[int, AfterValidator(_RUNS)]
CostDays = Annotated[int, AfterValidator(_COSTS)]
TriggerDays = Annotated[int, AfterValidator(_TRIGGERS)]


class RetentionSettings(Section):
    """`[retention]`: days that rows are kept, by table; 0 is for ever. Sums by day are kept always.

    What the program still needs is kept however old it is: see `engine.wiring.retention`.
    """

    memory_events: Annotated[EventDays, Field(description=_EVENTS_WORDS)] = 0
    learning_records: Annotated[RecordDays, Field(description=_RECORDS_WORDS)] = 180
    validation_runs: Annotated[RunDays, Field(description=_RUNS_WORDS)] = 0
    cost_entries: Annotated[CostDays, Field(description=_COSTS_WORDS)] = 0
    crosspoll_log: Annotated[TriggerDays, Field(description=_TRIGGERS_WORDS)] = 0


class WorkspaceRetention(Section):
    """`[workspaces."/path".retention]`: the same for one workspace. What is not named is as in `[retention]`."""

    memory_events: Annotated[EventDays | None, Field(description=_EVENTS_WORDS)] = None
    learning_records: Annotated[RecordDays | None, Field(description=_RECORDS_WORDS)] = None
    validation_runs: Annotated[RunDays | None, Field(description=_RUNS_WORDS)] = None
    cost_entries: Annotated[CostDays | None, Field(description=_COSTS_WORDS)] = None
    crosspoll_log: Annotated[TriggerDays | None, Field(description=_TRIGGERS_WORDS)] = None
