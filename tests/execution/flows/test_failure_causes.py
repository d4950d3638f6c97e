"""The cause that the output of a test names, and which failures have the same cause."""

from __future__ import annotations

import pytest

from engine.execution.runners.flows.failure_causes import Cause, cause_of
from tests.support.helpers import read_table

ROWS = read_table(__file__)


@pytest.mark.parametrize("row", ROWS["cause"])
def test_the_cause_is_read_from_the_output(row: dict[str, str]) -> None:
    assert cause_of(row["output"], "/repo") == Cause(row["error"], row["message"], row["place"])


@pytest.mark.parametrize(("error", "message", "place", "signature"), ROWS["signature"])
def test_the_signature_is_the_error_with_its_file_or_with_the_test_of_an_assertion(
    error: str, message: str, place: str, signature: str
) -> None:
    assert Cause(error, message, place).signature_of("tests/test_cart.py::test_a") == signature


def test_failures_that_differ_by_chance_and_by_line_have_one_signature() -> None:
    def text(line: int, price: int) -> str:
        return (
            f"tests/t.py:3: in test_a\n    f()\nsrc/b.py:{line}: in f\n    g()\nE   ValueError: {price} is too much\n"
        )

    assert len({cause_of(text(line, 3 * line), "/repo").signature_of("tests/t.py::test_a") for line in (7, 12)}) == 1
