"""Work that is not committed: debugging, documentation, lint, a test beside it, and work that lies about for days."""

from __future__ import annotations

import pytest

from engine.model import PROBLEM_FOUND, SessionState, Tier, Verdict
from tests.situations.conftest import SHOP, Situation

# What you committed may need what you did not commit.


@pytest.mark.long
def test_head_does_not_pass_without_the_uncommitted_file(monday: Situation) -> None:
    monday.commit_shop()
    monday.record_test_run()
    monday.commit("Prices have a module", {"cart.py": "from prices import add\ntotal = add\n"}, days_ago=0)
    monday.write("prices.py", "def add(prices):\n    return sum(prices)\n")
    card = monday.card("check_clean_head")
    assert card.tier is Tier.CHECK
    assert card.assignment.prompt == "Does HEAD pass without prices.py?"
    assert card.reasoning == "It is in no commit: others get main without it."
    done = monday.approve(card)
    assert not done.check.green
    assert "pass with the uncommitted files" in done.summary or "error" in done.summary


def test_the_question_about_head_counts_all_files_that_are_left_out(monday: Situation) -> None:
    monday.commit_shop()
    monday.record_test_run()
    monday.commit("Prices have a module", {"cart.py": "from prices import add\ntotal = add\n"}, days_ago=0)
    monday.write("prices.py", "def add(prices):\n    return sum(prices)\n")
    monday.write("README.md", "# Shop with prices\n")
    card = monday.card("check_clean_head")
    assert card.assignment.prompt == "Does HEAD pass without your 2 uncommitted files?"
    assert card.reasoning == "prices.py is in no commit: others get main without it."


# The tests failed, and you changed something since: the failed ones again.


BROKEN = "def total(prices):\n    return max(prices)\n"
MENDED = "def total(prices):\n    return sum(prices)\n"


@pytest.mark.long
def test_failed_tests_run_again_after_a_change(monday: Situation) -> None:
    monday.commit_shop()
    monday.write("cart.py", BROKEN)
    monday.record_test_run("tests/test_cart.py::test_total", passed=0)
    monday.write("cart.py", MENDED + "\n", days_ago=-0.01)
    first = monday.first("rerun_failing", Tier.BLOCKS)
    assert first.assignment.prompt == "Run `test_total` again"
    assert "run_tests" not in monday.kinds(), "these are the same files"
    done = monday.approve(first)
    assert done.check.green
    assert "rerun_failing" not in monday.kinds()


# A test fails now and then, on the same files.


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
def test_an_unreliable_test_is_skipped_until_a_day(monday: Situation) -> None:
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


# A small edit in a repository that you work in leads to its tests, and to nothing trivial beside them.


def test_a_changed_text_is_no_card(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.record_test_run()
    monday.write("README.md", "# Shop\n")
    assert monday.kinds() == []


def test_one_edited_module_leads_to_its_tests_and_its_lint(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.record_test_run()
    monday.write("cart.py", "def total(prices):\n    return sum(prices) + 0\n")
    assert monday.kinds() == ["run_tests", "lint"]


@pytest.mark.long
def test_a_check_of_head_is_no_run_on_your_own_files(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit("Prices have a module", {"cart.py": "from prices import total\n"}, days_ago=0.1)
    monday.write("prices.py", "def total(prices):\n    return sum(prices)\n")
    monday.record_test_run()
    card = monday.card("check_clean_head")
    done = monday.approve(card)
    assert not done.check.green
    assert not {"run_tests", "rerun_failing", "still_red"} & set(monday.kinds()), "they ran on just these files"


# You wrote a test and its code, and committed neither.


NEW = "def test_empty_cart():\n    from cart import total\n    assert total([]) == 0\n"


@pytest.mark.long
def test_a_new_test_is_run_first(monday: Situation) -> None:
    monday.commit_shop()
    monday.record_test_run()
    monday.write("tests/test_empty.py", NEW)

    first = monday.first("run_tests", Tier.CHECK)
    assert first.assignment.prompt == "Run the tests of tests/test_empty.py"
    assert first.check_only

    done = monday.approve(first)
    assert done.state is SessionState.SUCCEEDED
    assert (done.check.passed, done.check.failed) == (1, 0)
    assert "run_tests" not in monday.kinds(), "it ran on just these files"


def test_a_new_test_is_run_where_no_run_is_known(monday: Situation) -> None:
    monday.commit_shop()
    monday.write("tests/test_empty.py", NEW)
    first = monday.first("run_tests", Tier.CHECK)
    assert first.assignment.parameters == {"paths": ["tests/test_empty.py"]}


@pytest.mark.long
def test_a_test_that_fails_alone_leads_to_the_whole_suite_and_not_to_the_same_run(monday: Situation) -> None:
    monday.commit_shop()
    monday.record_test_run()
    monday.write("tests/test_empty.py", NEW.replace("== 0", "== 1"))
    done = monday.approve(monday.first("run_tests"))
    assert done.check.failing == ("tests/test_empty.py::test_empty_cart",)
    first = monday.first("rerun_failing", Tier.BLOCKS)
    assert first.assignment.prompt == "Run the whole suite: does more than `test_empty_cart` fail?"
    assert monday.approve(first).check.passed == 1
    assert not {"still_red", "rerun_failing"} & set(monday.kinds()), "it has run alone, and everything has run"


# A breakpoint, a `console.log`, conflict markers or a TODO of today in what nobody else has yet.


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
    assert done.summary == "1 breakpoint: cart.py:2"
    assert "breakpoint()" in monday.transcript(done)

    then = monday.first("remove_leftovers")
    removed = monday.approve(then)
    assert removed.summary.startswith("1 line removed from cart.py; the one test passed"), removed
    assert removed.change_set_id
    assert monday.path.joinpath("cart.py").read_text() == CART, "it waits as a diff"
    assert {"leftovers", "remove_leftovers"}.isdisjoint(monday.kinds())


@pytest.mark.long
def test_a_breakpoint_in_a_file_whose_name_reads_like_a_command(monday: Situation) -> None:
    monday.commit_shop()
    monday.run_tests()
    monday.write("x; rm -rf ~/conf.py", CART, days_ago=0.01)
    assert "run_tests" in monday.kinds()
    done = monday.approve(monday.card("leftovers"))
    assert done.summary == "1 breakpoint: x; rm -rf ~/conf.py:2"
    assert {"remove_leftovers", "run_tests"} <= {card.kind for card in monday.cards()}

    removed = monday.approve(monday.propose('remove_leftovers {"paths": ["x; rm -rf ~/conf.py"]}'))
    assert removed.summary.startswith("1 line removed from x; rm -rf ~/conf.py"), removed
    blocked = monday.propose("rm -rf ~")
    assert {verdict.rail: verdict.verdict for verdict in blocked.verdicts}["content"] is Verdict.BLOCK


@pytest.mark.long
def test_landed_changes_whose_tests_passed_are_tested(monday: Situation) -> None:
    monday.commit_shop()
    monday.write("cart.py", f"import os\n\n\n{CART}", days_ago=0.01)
    removed = monday.approve(monday.propose("remove_leftovers paths=cart.py"))
    monday.advance(minutes=1)
    monday.land(removed)
    monday.write("cart.py", monday.path.joinpath("cart.py").read_text())  # dates it by the clock of the situation
    assert {"run_tests", "first_run"}.isdisjoint(monday.kinds()), "they ran on these very files"

    monday.advance(minutes=1)
    monday.write("cart.py", SHOP["cart.py"])
    assert "1 passed" in monday.card("run_tests").reasoning


@pytest.mark.long
def test_a_harmless_change_is_not_blamed_for_a_test_that_failed_before(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit(
        "A wish", {"tests/test_cart.py": "def test_wish():\n    import cart\n    assert cart.total([]) == 1\n"}
    )
    monday.write("cart.py", CART, days_ago=0.01)
    removed = monday.approve(monday.propose("remove_leftovers paths=cart.py"))
    assert removed.summary.endswith("::test_wish; it failed before as well, nothing new fails")
    assert (removed.outcome, removed.check.green) == ("succeeded", False)


def test_a_console_log_that_is_not_pushed(monday: Situation) -> None:
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
    assert done.summary == "1 conflict marker: rates.py:1"
    assert "Next: resolve rates.py:1 in your editor" in monday.transcript(done)
    assert "remove_leftovers" not in monday.kinds()


# The README names a function or a path which the diff renamed or removed.


README = "# Shop\n\nCall `total(prices)` of `cart.py`.\n\nThe total is rounded.\n"
RENAMED = {
    "cart.py": "def sum_of(prices):\n    return sum(prices)\n",
    "tests/test_cart.py": "def test_total():\n    from cart import sum_of\n    assert sum_of([1, 2]) == 3\n",
}


@pytest.mark.long
def test_documentation_of_a_renamed_function_is_updated(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit("Words", {"README.md": README}, days_ago=20)
    monday.run_tests()
    for name, text in RENAMED.items():
        monday.write(name, text, days_ago=0.01)
    monday.run_tests()

    first = monday.first("stale_docs", Tier.CHECK)
    assert first.assignment.prompt == "Show the documentation that still names total"
    assert first.reasoning == "README.md:3 names `total` (now `sum_of`), which your changes removed."

    done = monday.approve(first)
    assert done.outcome == PROBLEM_FOUND, "it ran to its end"
    assert done.summary == "1 line in 1 file of documentation still names total"
    assert "README.md:3  total (now sum_of)" in monday.transcript(done)

    then = monday.card("update_docs")
    updated = monday.approve(then)
    assert updated.summary == "1 name updated in README.md"
    assert updated.change_set_id
    assert "stale_docs" not in monday.kinds()
    monday.land(updated)
    assert monday.path.joinpath("README.md").read_text() == README.replace("`total(", "`sum_of(")
    assert {"stale_docs", "update_docs"}.isdisjoint(monday.kinds())


# You changed a source file: the linter is asked, and only what is new is told.


OLD = "import os\n\n\ndef total(prices):\n    return sum(prices)\n"


@pytest.mark.long
def test_only_new_lint_findings_are_reported_and_fixed(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit("Totals", {"cart.py": OLD}, days_ago=8)
    monday.record_test_run()
    assert "lint" not in monday.kinds(), "what was there before is no news"
    monday.write("cart.py", OLD.replace("import os\n", "import os\nimport sys\n"))
    card = monday.card("lint")
    assert card.tier is Tier.CHECK
    assert card.assignment.prompt == "Lint cart.py with ruff"
    done = monday.approve(card)
    assert done.summary.startswith("ruff: 1 finding in 1 file is new (F401 1)"), "os was unused before"
    assert done.outcome == PROBLEM_FOUND, "it ran to its end"
    assert "fix_lint" in monday.kinds()


def test_settings_and_lock_files_are_not_linted(monday: Situation) -> None:
    monday.commit_shop()
    monday.record_test_run()
    monday.write(".gitignore", "__pycache__/\n.pytest_cache/\n.venv\n*.log\n")
    monday.write("uv.lock", "version = 1\n")
    assert "lint" not in monday.kinds()


@pytest.mark.long
def test_changes_of_last_week_are_in_no_commit(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.write("cart.py", "def total(prices):\n    return sum(prices) or 0\n", days_ago=4)
    monday.write("price list.py", "def price(name):\n    return 1\n", days_ago=3.5)
    monday.write(
        "tests/test_cart.py", "def test_total():\n    from cart import total\n    assert not total([])\n", days_ago=3
    )
    monday.write("README.md", "# Shop\n", days_ago=3)

    first = monday.first("waiting_work", Tier.BLOCKS)
    assert first.assignment.prompt == (
        "Look at what is not committed yet: README.md, cart.py, price list.py and 1 more"
    )
    assert first.reasoning == "4 files changed since Thursday are in no commit."
    done = monday.approve(first)
    assert done.summary == "4 files not committed; could be 3 commits: cart, documentation and price list"
    assert "git add -- cart.py tests/test_cart.py && git commit" in monday.transcript(done)
    assert done.next_step == "run_tests"
    assert monday.git("status", "--porcelain").count("\n") == 3  # it only looked


def test_commits_that_were_never_pushed(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.git("switch", "-q", "-c", "faster", "--no-track")
    monday.commit("Faster", {"cart.py": "def total(prices):\n    return sum(prices) + 0\n"}, days_ago=5)
    first = monday.first("waiting_work")
    assert first.assignment.prompt == "Look through the commit to push"
    assert monday.approve(first).summary == "1 unpushed commit, nothing that should not be pushed"


def test_commits_without_a_remote_logs_and_work_of_yesterday_are_no_card(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit("Faster", {"cart.py": "def total(prices):\n    return sum(prices) + 0\n"}, days_ago=5)  # no remote
    monday.write("out.log", "x\n", days_ago=9)
    monday.write(".idea/shop.xml", "x\n", days_ago=9)
    monday.write("cart.py", "def total(prices):\n    return sum(prices)\n", days_ago=1)  # of yesterday
    assert "waiting_work" not in monday.kinds()


@pytest.mark.long
def test_a_dismissed_card_stays_away_for_seven_days_of_commits(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.record_test_run()
    monday.write("cart.py", "def total(prices):\n    return sum(prices) + 0\n")
    first = monday.first("run_tests")
    monday.engine.cards.dismiss(first.id)
    for number in range(6):
        monday.advance(days=1)
        monday.commit(
            f"Step {number}", {"cart.py": f"def total(prices):\n    return sum(prices) - {number}\n"}, days_ago=0
        )
        monday.write("other.py", f"x = {number}\n")
        assert "run_tests" not in monday.kinds()
    monday.advance(days=1, minutes=1)
    assert "run_tests" in monday.kinds()


HABIT = 12


def commit_history(monday: Situation) -> None:
    """Commit prices and their rules together, but for one commit; other files change, too."""
    monday.commit(
        "The shop", {"price.py": "0\n", "rules.toml": "0\n", "README.md": "0\n", "stock.py": "0\n"}, days_ago=60
    )
    for number in range(HABIT):
        files = {"price.py": f"{number}a\n", "rules.toml": f"rate = {number}\n"}
        if number == 3:
            del files["rules.toml"]
        monday.commit(f"Price {number}", files, days_ago=50 - 2 * number)
        monday.commit(
            f"Stock {number}", {"stock.py": f"{number}\n", "README.md": f"{number}\n"}, days_ago=49 - 2 * number
        )


@pytest.mark.long
def test_a_file_that_usually_changes_too_is_shown(monday: Situation) -> None:
    commit_history(monday)
    monday.write("price.py", "new\n", days_ago=0.01)
    first = monday.first("changes_together", Tier.CHECK)
    assert first.reasoning == "In 12 of the last 13 commits `rules.toml` changed with `price.py`; not this time."

    done = monday.approve(first)
    assert done.state is SessionState.SUCCEEDED
    assert "“Price 11”" in done.summary
    assert "2 lines of rules.toml" in done.summary
