"""A breakpoint, a `console.log` or conflict markers in what nobody else has yet are shown, and removed (SPEC 2.11,
3.9)."""

import pytest

from engine.model import PROBLEM_FOUND, Tier, Verdict
from tests.situations.situation import RIGHT_TOTAL, Situation

TOTAL_WITH_BREAKPOINT = "def total(prices):\n    breakpoint()\n    return sum(prices)\n"


@pytest.mark.long
def test_an_uncommitted_breakpoint_is_named(shop: Situation):
    shop.run_tests()
    shop.write("cart.py", TOTAL_WITH_BREAKPOINT, days_ago=0.01)

    card = shop.predict_top_card("leftovers", Tier.CHECK, "Show what is left in cart.py:2")
    assert card.reasoning == "You added a breakpoint in cart.py:2, not committed yet."

    session = shop.approve(card)
    assert session.outcome == PROBLEM_FOUND, "it ran to its end"
    assert session.summary == "1 breakpoint: cart.py:2"
    assert "breakpoint()" in shop.read_transcript(session)

    removed = shop.approve(shop.predict_top_card("remove_leftovers"))
    assert removed.summary.startswith("1 line removed from cart.py; the one test passed"), removed
    assert removed.change_set_id
    assert shop.path.joinpath("cart.py").read_text() == TOTAL_WITH_BREAKPOINT, "it waits as a diff"
    assert {"leftovers", "remove_leftovers"}.isdisjoint(shop.predict_kinds())


@pytest.mark.long
def test_what_a_prompt_of_your_own_has_shown_is_not_offered(shop: Situation):
    shop.write("cart.py", TOTAL_WITH_BREAKPOINT, days_ago=0.01)
    assert "leftovers" in shop.predict_kinds()
    shop.approve(shop.propose("look_for_leftovers"))
    assert "leftovers" not in shop.predict_kinds()
    shop.write("tests/test_cart.py", "breakpoint()\n")
    assert shop.predict_card("leftovers").assignment.prompt == "Show what is left in cart.py:2 and tests/test_cart.py:1"


@pytest.mark.long
def test_a_prompt_of_your_own_looks_for_the_todos_of_today_as_a_card_does(shop: Situation):
    assert shop.approve(shop.propose("look_for_leftovers")).summary.endswith(", no TODOs of today")
    shop.write("cart.py", "# TODO: round it\n", days_ago=0.01)
    assert shop.approve(shop.propose("look_for_leftovers")).summary == "1 TODO: cart.py:1"
    assert "leftovers" not in shop.predict_kinds()


@pytest.mark.long
def test_a_breakpoint_is_named_where_the_name_of_its_file_reads_like_a_command(shop: Situation):
    shop.run_tests()
    shop.write("x; rm -rf ~/conf.py", TOTAL_WITH_BREAKPOINT, days_ago=0.01)
    assert "run_tests" in shop.predict_kinds()
    session = shop.approve(shop.predict_card("leftovers"))
    assert session.summary == "1 breakpoint: x; rm -rf ~/conf.py:2"
    assert {"remove_leftovers", "run_tests"} <= {card.kind for card in shop.predict_cards()}

    removed = shop.approve(shop.propose('remove_leftovers {"paths": ["x; rm -rf ~/conf.py"]}'))
    assert removed.summary.startswith("1 line removed from x; rm -rf ~/conf.py"), removed
    blocked = shop.propose("rm -rf ~")
    assert {verdict.rail: verdict.verdict for verdict in blocked.verdicts}["content"] is Verdict.BLOCK


@pytest.mark.long
def test_debugging_is_removed_where_there_are_no_tests(situation: Situation):
    situation.commit("Cart", {"cart.py": RIGHT_TOTAL}, days_ago=1)
    for path in ("cart.py", "-odd.py", "two\nlines.py"):
        situation.write(path, TOTAL_WITH_BREAKPOINT, days_ago=0.01)
    situation.approve(situation.predict_card("leftovers"))
    card = situation.predict_card("remove_leftovers", prompt="Remove the debugging from -odd.py and cart.py")
    assert "Not from two lines.py: hidden characters are in its name." in card.reasoning
    assert situation.approve(card).summary == "2 lines removed from -odd.py and cart.py; no tests ran"


@pytest.mark.long
def test_landed_changes_whose_tests_passed_are_tested(shop: Situation):
    shop.write("cart.py", f"import os\n\n\n{TOTAL_WITH_BREAKPOINT}", days_ago=0.01)
    removed = shop.approve(shop.propose("remove_leftovers paths=cart.py"))
    shop.advance(minutes=1)
    shop.land(removed)
    shop.write("cart.py", shop.path.joinpath("cart.py").read_text())  # dates it by the clock of the situation
    assert {"run_tests", "first_run"}.isdisjoint(shop.predict_kinds()), "they ran on these very files"

    shop.advance(minutes=1)
    shop.write("cart.py", RIGHT_TOTAL)
    assert "1 passed" in shop.predict_card("run_tests").reasoning


@pytest.mark.long
def test_a_harmless_change_is_not_blamed_for_a_test_that_failed_before(shop: Situation):
    shop.commit("A wish", {"tests/test_cart.py": "def test_wish():\n    import cart\n    assert cart.total([]) == 1\n"})
    shop.write("cart.py", TOTAL_WITH_BREAKPOINT, days_ago=0.01)
    removed = shop.approve(shop.propose("remove_leftovers paths=cart.py"))
    assert removed.summary.endswith("::test_wish; it failed before as well, nothing new fails")
    assert (removed.outcome, removed.check.green) == ("succeeded", False)


def test_an_unpushed_console_log_is_named(pushed: Situation):
    pushed.checkout("-b", "cart")
    pushed.commit("Wäre es größer?", {"src/größe äö.ts": "export const a = 1;\n  console.log(a);\n"}, days_ago=0.1)
    pushed.commit("More", {"b.txt": "b\n"}, days_ago=0.05)

    card = pushed.predict_top_card("leftovers")
    assert card.reasoning == "You added `console.log` in src/größe äö.ts:2, not pushed yet."


def test_staged_conflict_markers_block_others_and_are_not_removed(shop: Situation):
    shop.write("rates.py", "<<<<<<< HEAD\na = 1\n=======\na = 2\n>>>>>>> theirs\n", days_ago=0.01)
    shop.git("add", "rates.py")
    session = shop.approve(shop.predict_top_card("leftovers", Tier.BLOCKS))
    assert session.summary == "1 conflict marker: rates.py:1"
    assert "Next: resolve rates.py:1 in your editor" in shop.read_transcript(session)
    assert "remove_leftovers" not in shop.predict_kinds()
