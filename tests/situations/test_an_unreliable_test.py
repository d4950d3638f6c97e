"""A test fails now and then, on the same files."""

from __future__ import annotations

import pytest

from tests.situations.conftest import Situation

EVERY_THIRD = """\
from pathlib import Path

import pytest


def test_total():
    counter = Path("counter")
    runs = int(counter.read_text()) + 1 if counter.exists() else 1
    counter.write_text(str(runs))
    assert runs % 3
"""


@pytest.mark.long
def test_it_is_put_into_quarantine_until_a_day(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit("Luck", {"tests/test_cart.py": EVERY_THIRD, ".gitignore": "counter\n.venv\n"}, days_ago=2)
    hunt = monday.propose('hunt_flakes {"tests": ["tests/test_cart.py::test_total"], "times": 3}')
    done = monday.approve(hunt)
    assert done.summary.startswith("1 flaky: tests/test_cart.py::test_total ("), done.summary

    card = monday.card("quarantine")
    assert card.assignment.prompt == "Skip test_total until 19 January"
    skipped = monday.approve(card)
    assert skipped.summary.startswith("1 test skipped until 2026-01-19; its file: "), skipped.summary
    monday.land(skipped)
    landed = monday.path.joinpath("tests/test_cart.py").read_text()
    assert 'reason="flaky: failed' in landed
    assert landed.startswith(
        "from datetime import date\nfrom pathlib import Path\n\nimport pytest\n\n\n@pytest.mark.skipif("
    )
    monday.commit("Quarantine")
    assert {"hunt_flakes", "quarantine"}.isdisjoint(monday.kinds())

    monday.advance(days=14)
    again = monday.card("hunt_flakes")
    assert again.reasoning == "Its quarantine ended on 19 January; if it is steady, take the skip away."
