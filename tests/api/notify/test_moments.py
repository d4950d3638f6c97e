"""What a fact means to somebody who is not there (SPEC 10.2)."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from engine.api.notify.matrix import Happening
from engine.api.notify.moments import moment
from engine.model import CheckResult

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)


def ended(state: str, check: CheckResult | None) -> Any:
    payload = {"state": state, "summary": "41 tests ran", "prediction_id": "pred_a", "cost": 0}
    fact = SimpleNamespace(kind="SessionEnded", at=NOW, subject="sess_a", payload=payload, id=1, workspace="")
    session = SimpleNamespace(check=check, error="no such tool", prompt="run the tests", channel="koji-core")
    return moment(fact, lambda one: None, lambda one: session, NOW)  # type: ignore[arg-type,return-value]


def check(failed: int) -> CheckResult:
    return CheckResult(
        tool="pytest", passed=41, failed=failed, errors=0, skipped=0, seconds=1.0, failing=("test_a",) * failed
    )


@pytest.mark.parametrize(
    ("state", "failed", "happening", "words"),
    [
        ("succeeded", 0, Happening.COMPLETED, "Done: 41 tests ran"),
        ("succeeded", 1, Happening.COMPLETED, "Tests failed: 41 tests ran"),
        ("failed", 0, Happening.FAILED, "Failed: no such tool"),
    ],
)
def test_what_is_told_of_an_end(state: str, failed: int, happening: Happening, words: str) -> None:
    told = ended(state, check(failed))
    assert (told.happening, told.words, told.channel) == (happening, words, "koji-core")


def test_of_what_was_cancelled_nothing_is_told() -> None:
    assert ended("cancelled", None) is None
