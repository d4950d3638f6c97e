"""A breakpoint, a `console.log`, conflict markers or a TODO of today in what nobody else has yet."""

from __future__ import annotations

import pytest

from engine.model import PROBLEM_FOUND, Tier
from tests.situations.conftest import Situation

CART = "def total(prices):\n    breakpoint()\n    return sum(prices)\n"


@pytest.mark.long
def test_a_breakpoint_that_is_not_committed(monday: Situation) -> None:
    monday.commit_shop()
    monday.run_tests()
    monday.write("cart.py", CART, days_ago=0.01)

    first = monday.first("leftovers", Tier.CHECK)
    assert first.assignment.prompt == "Show what is left in cart.py:2"
    assert first.reasoning == "You added a breakpoint in cart.py:2, not committed yet."

    done = monday.approve(first)
    assert done.outcome == PROBLEM_FOUND, "it ran to its end"
    assert done.summary == "1 leftover (breakpoint): cart.py:2"
    assert "breakpoint()" in monday.transcript(done)

    then = monday.first("remove_leftovers")
    removed = monday.approve(then)
    assert removed.summary.startswith("1 line removed from cart.py; the one test passed"), removed
    assert removed.change_set_id
    assert monday.path.joinpath("cart.py").read_text() == CART, "it waits as a diff"
    assert {"leftovers", "remove_leftovers"}.isdisjoint(monday.kinds())


def test_one_that_was_committed_and_not_pushed(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.checkout("-b", "cart")
    monday.commit("Wäre es größer?", {"src/größe äö.ts": "export const a = 1;\n  console.log(a);\n"}, days_ago=0.1)
    monday.commit("More", {"b.txt": "b\n"}, days_ago=0.05)

    first = monday.first("leftovers")
    assert first.reasoning == "You added `console.log` in src/größe äö.ts:2, not pushed yet."


def test_conflict_markers_block_others(monday: Situation) -> None:
    monday.commit_shop()
    text = "<<<<<<< HEAD\na = 1\n=======\na = 2\n>>>>>>> theirs\n"
    monday.write("rates.py", text, days_ago=0.01)
    monday.git("add", "rates.py")
    first = monday.first("leftovers", Tier.BLOCKS)
    done = monday.approve(first)
    assert done.summary == "1 leftover (conflict marker): rates.py:1"
    assert "Next: resolve rates.py:1 in your editor" in monday.transcript(done)
    assert "remove_leftovers" not in monday.kinds()


@pytest.mark.long
def test_a_todo_counts_on_its_day(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.checkout("-b", "tax")
    monday.commit("Tax", {"tax.py": "# TODO: round\nRATE = 7\n"}, days_ago=3)
    assert "leftovers" not in monday.kinds()
    monday.commit("Tax again", {"tax.py": "# TODO: round\nRATE = 7\n# FIXME: 19?\n"}, days_ago=0.1)
    card = monday.card("leftovers")
    assert card.reasoning == "You added a FIXME in tax.py:3, not pushed yet."


@pytest.mark.long
def test_what_is_no_leftover(monday: Situation) -> None:
    monday.commit_shop()
    monday.run_tests()
    monday.write("cart.py", "def total(prices):\n    # never breakpoint()\n    return sum(prices)\n")
    monday.write("tests/test_x.py", 'CODE = """\nbreakpoint()\n<<<<<<< a\n=======\n>>>>>>> b\n"""\n')
    monday.write("docs/git.md", "# TODO\n```\n<<<<<<< HEAD\n=======\n>>>>>>> b\n```\n")
    monday.write("web/cart.test.js", "console.log('it runs');\n")
    assert "leftovers" not in monday.kinds()
