"""A past run of the tests, as templates and the reading of stored runs see it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from engine.model import CheckResult
from tests.support import MONDAY_MORNING


@dataclass(frozen=True)
class PastRun:
    """A run of the whole suite an hour ago, in which ten tests passed; fields replace these values."""

    head: str
    failing: tuple[str, ...] = ()
    passed: int = 10
    durations: tuple[tuple[str, float], ...] = ()
    tree: str = ""
    clean: bool = True
    full: bool = True
    ran_at: datetime = MONDAY_MORNING - timedelta(hours=1)
    session_id: str = "s"
    project: str = ""
    changed: bool = False

    @property
    def check(self) -> CheckResult:
        return CheckResult("pytest", self.passed, len(self.failing), failing=self.failing, durations=self.durations)
