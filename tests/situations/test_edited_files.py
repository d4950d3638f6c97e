"""An edit leads to its tests, its lint, its documentation, the file that usually changes with it, and the changed lines
that no test runs (SPEC 2.10, 2.11)."""

import pytest

from engine.model import PROBLEM_FOUND, SessionState, Tier
from engine.prediction import FIX_BY_AGENT
from tests.situations.situation import CART_TESTS, RIGHT_TOTAL, SHOP, Situation


def test_a_changed_text_is_no_card(pushed: Situation):
    pushed.record_test_run()
    pushed.write("README.md", "# Shop\n")
    assert pushed.predict_kinds() == []


TEST_OF_EMPTY_CART = "def test_empty_cart():\n    from cart import total\n    assert total([]) == 0\n"


@pytest.mark.long
def test_a_test_that_fails_alone_leads_to_the_whole_suite_and_not_to_the_same_run(shop: Situation):
    shop.write("tests/test_empty.py", TEST_OF_EMPTY_CART.replace("== 0", "== 1"))
    card = shop.predict_top_card("run_tests", Tier.CHECK)
    assert card.assignment.parameters == {"paths": ["tests/test_empty.py"]}, "where no run is known"
    session = shop.approve(card)
    assert session.check.failing == ("tests/test_empty.py::test_empty_cart",)
    assert (
        shop.approve(
            shop.predict_top_card(
                "rerun_failing", Tier.BLOCKS, "Run the whole suite: does more than `test_empty_cart` fail?"
            )
        ).check.passed
        == 1
    )
    assert not {"still_red", "rerun_failing"} & set(shop.predict_kinds()), "it has run alone, and everything has run"


README = "# Shop\n\nCall `total(prices)` of `cart.py`.\n\nThe total is rounded.\n"
RENAMED_TOTAL = {
    name: text.replace("total(", "sum_of(").replace("import total", "import sum_of")
    for name, text in (("cart.py", RIGHT_TOTAL), ("tests/test_cart.py", CART_TESTS))
}
"""The function `total` and its test after a change of its name."""


@pytest.mark.long
def test_documentation_of_a_renamed_function_is_updated(shop: Situation):
    shop.commit("Words", {"README.md": README}, days_ago=20)
    shop.run_tests()
    for name, text in RENAMED_TOTAL.items():
        shop.write(name, text, days_ago=0.01)
    shop.run_tests()

    card = shop.predict_top_card("stale_docs", Tier.CHECK, "Show the documentation that still names total")
    assert card.reasoning == "README.md:3 names `total` (now `sum_of`), which your changes removed."

    session = shop.approve(card)
    assert session.outcome == PROBLEM_FOUND, "it ran to its end"
    assert session.summary == "1 line in 1 file of documentation with outdated names: total"
    assert "README.md:3  total (now sum_of)" in shop.read_transcript(session)

    updated = shop.approve(shop.predict_card("update_docs"))
    assert updated.summary == "1 name updated in README.md"
    assert updated.change_set_id
    assert "stale_docs" not in shop.predict_kinds()
    shop.land(updated)
    assert shop.path.joinpath("README.md").read_text() == README.replace("`total(", "`sum_of(")
    assert {"stale_docs", "update_docs"}.isdisjoint(shop.predict_kinds())


TOTAL_WITH_UNUSED_IMPORT = f"import os\n\n\n{RIGHT_TOTAL}"


@pytest.mark.long
def test_only_new_lint_findings_are_reported_and_fixed(shop: Situation):
    shop.commit("Totals", {"cart.py": TOTAL_WITH_UNUSED_IMPORT}, days_ago=8)
    shop.record_test_run()
    assert "lint" not in shop.predict_kinds(), "what was there before is no news"
    shop.write("cart.py", TOTAL_WITH_UNUSED_IMPORT.replace("import os\n", "import os\nimport sys\n"))
    session = shop.approve(shop.predict_card("lint", Tier.CHECK, "Lint cart.py with ruff"))
    assert session.summary.startswith("ruff: 1 finding in 1 file is new (F401 1)"), "os was unused before"
    assert session.outcome == PROBLEM_FOUND, "it ran to its end"
    assert "fix_lint" in shop.predict_kinds()


def commit_prices_with_rules(situation: Situation):
    """Twelve times commit a price and its rules together, once the price alone. Between, commit other files."""
    situation.commit("The shop", dict.fromkeys(("price.py", "rules.toml", "README.md", "stock.py"), "0\n"), days_ago=60)
    for number in range(12):
        rules = {} if number == 3 else {"rules.toml": f"rate = {number}\n"}
        situation.commit(f"Price {number}", {"price.py": f"{number}a\n"} | rules, days_ago=50 - 2 * number)
        situation.commit(
            f"Stock {number}", {"stock.py": f"{number}\n", "README.md": f"{number}\n"}, days_ago=49 - 2 * number
        )


@pytest.mark.long
def test_a_file_that_usually_changes_too_is_shown(situation: Situation):
    commit_prices_with_rules(situation)
    situation.write("price.py", "new\n", days_ago=0.01)
    card = situation.predict_top_card("changes_together", Tier.CHECK)
    assert card.reasoning == "In 12 of the last 13 commits `rules.toml` changed with `price.py`; not this time."

    session = situation.approve(card)
    assert session.state is SessionState.SUCCEEDED
    assert "“Price 11”" in session.summary
    assert "2 lines of rules.toml" in session.summary


TOTAL_AND_GIFT = (
    "def total(prices):\n    return sum(prices)\n\n\ndef gift(prices):\n    if not prices:\n        return 0\n"
    "    return min(prices)\n"
)
"""`cart.py` with a function that no test runs."""

WITH_COVERAGE = SHOP["pyproject.toml"] + "[tool.coverage.run]\nbranch = true\n"
"""`pyproject.toml` of a project that measures which lines its tests run."""


@pytest.mark.long
def test_new_lines_that_no_test_runs_are_named(shop: Situation):
    shop.commit("Coverage", {"pyproject.toml": WITH_COVERAGE})
    shop.write("cart.py", TOTAL_AND_GIFT, days_ago=0.01)
    assert "uncovered_lines" not in shop.predict_kinds(), "no run yet"
    shop.run_tests()

    session = shop.approve(
        shop.predict_card("uncovered_lines", Tier.CHECK, "Find the changed lines of cart.py that no test runs")
    )
    assert session.state is SessionState.SUCCEEDED, session.error
    assert session.summary.startswith("cart.py 6-8: no test runs these 3 lines; the one test passed"), session.summary
    assert "uncovered_lines" not in shop.predict_kinds(), "it is measured"
    assert not (shop.path / ".coverage").exists()
    shop.assign_coding_agent()
    assert shop.predict_card(FIX_BY_AGENT).assignment.prompt == (
        "Write tests for the changed lines that none runs: `cart.py` 6-8"
    )


@pytest.mark.long
def test_without_coverage_nothing_is_offered(shop: Situation):
    shop.write("cart.py", TOTAL_AND_GIFT, days_ago=0.01)
    shop.run_tests()
    assert "uncovered_lines" not in shop.predict_kinds()
