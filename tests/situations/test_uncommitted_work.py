"""The cards about changed files: leftovers of debugging, documentation, lint, their tests, and work that waits."""

from __future__ import annotations

import re
import subprocess

import pytest

from engine.model import PROBLEM_FOUND, SessionState, Source, Tier, Verdict
from tests.situations.conftest import SHOP, TESTS, Situation
from tests.support.helpers import refused

WRONG_TOTAL = "def total(prices):\n    return max(prices)\n"
HARMLESS_TOTAL = "def total(prices):\n    return sum(prices) + 0\n"
"""It differs from that of `SHOP`, and passes its tests."""

TOTAL_WITH_BREAKPOINT = "def total(prices):\n    breakpoint()\n    return sum(prices)\n"
TOTAL_WITH_UNUSED_IMPORT = f"import os\n\n\n{SHOP['cart.py']}"
TEST_OF_EMPTY_CART = "def test_empty_cart():\n    from cart import total\n    assert total([]) == 0\n"
FAILS_EVERY_THIRD_TIME = """\
from pathlib import Path

import pytest


def test_total():
    counter = Path("counter")
    runs = int(counter.read_text()) + 1 if counter.exists() else 1
    counter.write_text(str(runs))
    assert runs % 3
"""
README = "# Shop\n\nCall `total(prices)` of `cart.py`.\n\nThe total is rounded.\n"
RENAMED_TOTAL = {
    name: text.replace("total(", "sum_of(").replace("import total", "import sum_of")
    for name, text in (("cart.py", SHOP["cart.py"]), ("tests/test_cart.py", TESTS))
}
"""The function `total` and its test after a change of its name."""

PRICE_COMMITS = 12
"""Commits that change `price.py` in `commit_history`, without the first one."""


# What you committed may need what you did not commit.


@pytest.mark.long
def test_head_does_not_pass_without_the_uncommitted_file(shop: Situation) -> None:
    shop.record_test_run()
    shop.commit("Prices have a module", {"cart.py": "from prices import add\ntotal = add\n"}, days_ago=0)
    shop.write("prices.py", "def add(prices):\n    return sum(prices)\n")
    card = shop.predict_card("check_clean_head")
    assert card.tier is Tier.CHECK
    assert card.assignment.prompt == "Does HEAD pass without prices.py?"
    assert card.reasoning == "It is in no commit: others get main without it."
    shop.write("README.md", "# Shop with prices\n")
    card = shop.predict_card("check_clean_head")
    assert card.assignment.prompt == "Does HEAD pass without your 2 uncommitted files?"
    assert card.reasoning == "prices.py is in no commit: others get main without it."
    session = shop.approve(card)
    assert not session.check.green
    assert session.summary.endswith("; 1 of 1 passed with the uncommitted files")


# The tests failed with your uncommitted changes: a commit or these changes may have broken them.


@pytest.mark.long
@pytest.mark.parametrize(
    ("committed", "uncommitted", "finding"),
    [
        (SHOP["cart.py"], f"# not committed\n{WRONG_TOTAL}", "passes without your uncommitted changes: "),
        (
            WRONG_TOTAL,
            f"# not committed\n{WRONG_TOTAL}",
            "fails without your uncommitted changes. On HEAD alone 1 of 1 test failed",
        ),
    ],
    ids=["the changes broke it", "a commit broke it"],
)
def test_the_next_step_says_whether_a_commit_or_your_changes_broke_a_test(
    shop: Situation, committed: str, uncommitted: str, finding: str
) -> None:
    shop.commit("Rounding", {"cart.py": f"# rounded\n{committed}"}, days_ago=0)
    shop.write("cart.py", uncommitted)
    assert not shop.run_tests().check.green
    card = shop.predict_card("check_clean_head")
    assert card.assignment.prompt == "Does `test_total` fail without your uncommitted changes, too?"
    assert card.source is Source.FOLLOW_UP
    assert shop.approve(card).summary.startswith(f"tests/test_cart.py::test_total {finding}")
    assert ("bisect" in shop.predict_kinds()) == (committed == WRONG_TOTAL)
    [problem] = shop.engine.card_cycle.remarks().values()
    assert ("without your uncommitted changes all tests pass" in problem) == (committed != WRONG_TOTAL)
    assert "check_clean_head" not in shop.predict_kinds()


def test_a_test_that_passes_at_head_is_named_with_that_and_needs_no_run_alone(shop: Situation) -> None:
    shop.record_test_run(passed=2)
    shop.write("cart.py", f"# not committed\n{WRONG_TOTAL}")
    shop.record_test_run("tests/test_cart.py::test_total")
    assert "still_red" not in shop.predict_kinds()
    [problem] = shop.engine.card_cycle.remarks().values()
    assert problem.endswith("without your uncommitted changes all tests pass")


def test_a_test_of_a_new_file_is_not_looked_for_at_head(shop: Situation) -> None:
    shop.write("tests/test_more.py", "def test_more():\n    assert False\n")
    shop.record_test_run("tests/test_more.py::test_more")
    assert "check_clean_head" not in shop.predict_kinds()


# The tests failed, and you changed something since: the failed ones are run again.


@pytest.mark.long
def test_failed_tests_run_again_after_a_change(shop: Situation) -> None:
    shop.write("cart.py", WRONG_TOTAL)
    shop.record_test_run("tests/test_cart.py::test_total", passed=0)
    shop.write("cart.py", SHOP["cart.py"] + "\n", days_ago=-0.01)
    card = shop.predict_top_card("rerun_failing", Tier.BLOCKS)
    assert card.assignment.prompt == "Run `test_total` again"
    assert "run_tests" not in shop.predict_kinds(), "these are the same files"
    session = shop.approve(card)
    assert session.check.green
    assert "rerun_failing" not in shop.predict_kinds()


# A test fails now and then, on the same files.


@pytest.mark.long
def test_an_unreliable_test_is_skipped_until_a_day(shop: Situation) -> None:
    shop.commit("Luck", {"tests/test_cart.py": FAILS_EVERY_THIRD_TIME, ".gitignore": "counter\n.venv\n"}, days_ago=2)
    hunt = shop.approve(shop.propose('hunt_flakes {"tests": ["tests/test_cart.py::test_total"], "times": 3}'))
    assert hunt.summary.startswith("1 flaky: tests/test_cart.py::test_total ("), hunt.summary

    card = shop.predict_card("quarantine")
    assert card.assignment.prompt == "Skip test_total until 19 January"
    skipped = shop.approve(card)
    assert skipped.summary.startswith("1 test skipped until 2026-01-19; its file: "), skipped.summary
    shop.land(skipped)
    landed = shop.path.joinpath("tests/test_cart.py").read_text()
    assert 'reason="flaky: failed' in landed
    assert landed.startswith(
        "from datetime import date\nfrom pathlib import Path\n\nimport pytest\n\n\n@pytest.mark.skipif("
    )
    shop.commit("Quarantine")
    assert {"hunt_flakes", "quarantine"}.isdisjoint(shop.predict_kinds())

    shop.advance(days=14)
    card = shop.predict_card("hunt_flakes")
    assert card.reasoning == "Its quarantine ended on 19 January; if it is steady, take the skip away."


# A small edit in a repository that you work in leads to its tests, and to nothing trivial beside them.


def test_a_changed_text_is_no_card(pushed: Situation) -> None:
    pushed.record_test_run()
    pushed.write("README.md", "# Shop\n")
    assert pushed.predict_kinds() == []


def test_one_edited_module_leads_to_its_tests_and_its_lint(pushed: Situation) -> None:
    pushed.record_test_run()
    pushed.write("cart.py", HARMLESS_TOTAL)
    assert pushed.predict_kinds() == ["run_tests", "lint"]


@pytest.mark.long
def test_a_check_of_head_is_no_run_on_your_own_files(shop: Situation) -> None:
    shop.commit("Prices have a module", {"cart.py": "from prices import total\n"}, days_ago=0.1)
    shop.write("prices.py", "def total(prices):\n    return sum(prices)\n")
    shop.record_test_run()
    card = shop.predict_card("check_clean_head")
    session = shop.approve(card)
    assert not session.check.green
    assert not {"run_tests", "rerun_failing", "still_red"} & set(shop.predict_kinds()), "they ran on these very files"


# You wrote a test and its code, and committed neither.


@pytest.mark.long
def test_a_new_test_is_run_first(shop: Situation) -> None:
    shop.record_test_run()
    shop.write("tests/test_empty.py", TEST_OF_EMPTY_CART)

    card = shop.predict_top_card("run_tests", Tier.CHECK)
    assert card.assignment.prompt == "Run the tests of tests/test_empty.py"
    assert card.check_only

    session = shop.approve(card)
    assert session.state is SessionState.SUCCEEDED
    assert (session.check.passed, session.check.failed) == (1, 0)
    assert "run_tests" not in shop.predict_kinds(), "it ran on these very files"


@pytest.mark.long
def test_a_test_that_fails_alone_leads_to_the_whole_suite_and_not_to_the_same_run(shop: Situation) -> None:
    shop.write("tests/test_empty.py", TEST_OF_EMPTY_CART.replace("== 0", "== 1"))
    card = shop.predict_top_card("run_tests", Tier.CHECK)
    assert card.assignment.parameters == {"paths": ["tests/test_empty.py"]}, "where no run is known"
    session = shop.approve(card)
    assert session.check.failing == ("tests/test_empty.py::test_empty_cart",)
    card = shop.predict_top_card("rerun_failing", Tier.BLOCKS)
    assert card.assignment.prompt == "Run the whole suite: does more than `test_empty_cart` fail?"
    assert shop.approve(card).check.passed == 1
    assert not {"still_red", "rerun_failing"} & set(shop.predict_kinds()), "it has run alone, and everything has run"


@pytest.mark.long
def test_where_head_passes_your_changes_are_the_answer_and_nothing_runs_again(shop: Situation) -> None:
    shop.record_test_run()
    shop.write("cart.py", "def total(prices):\n    return 0\n")
    session = shop.approve(shop.predict_top_card("run_tests"))
    assert session.check.failing
    assert not {"still_red", "rerun_failing", "check_clean_head"} & set(shop.predict_kinds())
    remark = shop.engine.card_cycle.remarks()[str(shop.path)]
    assert remark.endswith("without your uncommitted changes all tests pass")


# A breakpoint, a `console.log`, conflict markers or a TODO of today in what nobody else has yet.


@pytest.mark.long
def test_a_breakpoint_that_is_not_committed(shop: Situation) -> None:
    shop.run_tests()
    shop.write("cart.py", TOTAL_WITH_BREAKPOINT, days_ago=0.01)

    card = shop.predict_top_card("leftovers", Tier.CHECK)
    assert card.assignment.prompt == "Show what is left in cart.py:2"
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
def test_a_breakpoint_in_a_file_whose_name_reads_like_a_command(shop: Situation) -> None:
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


@pytest.mark.parametrize(
    ("prompt", "problem", "command"),
    [
        (
            "remove_leftovers paths=gone.py",
            "remove_leftovers: paths: there is no file or folder gone.py in this repository",
            "git ls-files",
        ),
        (
            "run_tests project=nope",
            "run_tests: project: there is no file or folder nope in this repository",
            "git ls-files",
        ),
        (
            "bisect test=nope good=nope",
            "bisect: good: `nope` names no commit in this repository",
            "git log --oneline --all",
        ),
        (
            "forecast_conflicts base=HEAD branches=HEAD,nope",
            "forecast_conflicts: branches: `nope` names no commit in this repository",
            "git log --oneline --all",
        ),
    ],
)
def test_what_the_repository_does_not_have_is_refused_with_its_parameter(
    shop: Situation, prompt: str, problem: str, command: str
) -> None:
    refusal = refused("bad_parameters", lambda: shop.propose(prompt))
    assert refusal.message == problem
    assert refusal.fix.startswith(f"`{command}` lists its ")


@pytest.mark.long
def test_debugging_is_removed_where_there_are_no_tests(situation: Situation) -> None:
    situation.commit("Cart", {"cart.py": "def total(prices):\n    return sum(prices)\n"}, days_ago=1)
    for path in ("cart.py", "-odd.py", "two\nlines.py"):
        situation.write(path, TOTAL_WITH_BREAKPOINT, days_ago=0.01)
    situation.approve(situation.predict_card("leftovers"))
    card = situation.predict_card("remove_leftovers")
    assert card.assignment.prompt == "Remove the debugging from -odd.py and cart.py"
    assert "Not from two lines.py: hidden characters are in its name." in card.reasoning
    assert situation.approve(card).summary == "2 lines removed from -odd.py and cart.py; no tests ran"


@pytest.mark.long
def test_landed_changes_whose_tests_passed_are_tested(shop: Situation) -> None:
    shop.write("cart.py", f"import os\n\n\n{TOTAL_WITH_BREAKPOINT}", days_ago=0.01)
    removed = shop.approve(shop.propose("remove_leftovers paths=cart.py"))
    shop.advance(minutes=1)
    shop.land(removed)
    shop.write("cart.py", shop.path.joinpath("cart.py").read_text())  # dates it by the clock of the situation
    assert {"run_tests", "first_run"}.isdisjoint(shop.predict_kinds()), "they ran on these very files"

    shop.advance(minutes=1)
    shop.write("cart.py", SHOP["cart.py"])
    assert "1 passed" in shop.predict_card("run_tests").reasoning


@pytest.mark.long
def test_a_harmless_change_is_not_blamed_for_a_test_that_failed_before(shop: Situation) -> None:
    shop.commit("A wish", {"tests/test_cart.py": "def test_wish():\n    import cart\n    assert cart.total([]) == 1\n"})
    shop.write("cart.py", TOTAL_WITH_BREAKPOINT, days_ago=0.01)
    removed = shop.approve(shop.propose("remove_leftovers paths=cart.py"))
    assert removed.summary.endswith("::test_wish; it failed before as well, nothing new fails")
    assert (removed.outcome, removed.check.green) == ("succeeded", False)


def test_a_console_log_that_is_not_pushed(pushed: Situation) -> None:
    pushed.checkout("-b", "cart")
    pushed.commit("Wäre es größer?", {"src/größe äö.ts": "export const a = 1;\n  console.log(a);\n"}, days_ago=0.1)
    pushed.commit("More", {"b.txt": "b\n"}, days_ago=0.05)

    card = pushed.predict_top_card("leftovers")
    assert card.reasoning == "You added `console.log` in src/größe äö.ts:2, not pushed yet."


def test_conflict_markers_block_others(shop: Situation) -> None:
    shop.write("rates.py", "<<<<<<< HEAD\na = 1\n=======\na = 2\n>>>>>>> theirs\n", days_ago=0.01)
    shop.git("add", "rates.py")
    card = shop.predict_top_card("leftovers", Tier.BLOCKS)
    session = shop.approve(card)
    assert session.summary == "1 conflict marker: rates.py:1"
    assert "Next: resolve rates.py:1 in your editor" in shop.read_transcript(session)
    assert "remove_leftovers" not in shop.predict_kinds()


# The README names a function or a path which the diff renamed or removed.


@pytest.mark.long
def test_documentation_of_a_renamed_function_is_updated(shop: Situation) -> None:
    shop.commit("Words", {"README.md": README}, days_ago=20)
    shop.run_tests()
    for name, text in RENAMED_TOTAL.items():
        shop.write(name, text, days_ago=0.01)
    shop.run_tests()

    card = shop.predict_top_card("stale_docs", Tier.CHECK)
    assert card.assignment.prompt == "Show the documentation that still names total"
    assert card.reasoning == "README.md:3 names `total` (now `sum_of`), which your changes removed."

    session = shop.approve(card)
    assert session.outcome == PROBLEM_FOUND, "it ran to its end"
    assert session.summary == "1 line in 1 file of documentation still names total"
    assert "README.md:3  total (now sum_of)" in shop.read_transcript(session)

    updated = shop.approve(shop.predict_card("update_docs"))
    assert updated.summary == "1 name updated in README.md"
    assert updated.change_set_id
    assert "stale_docs" not in shop.predict_kinds()
    shop.land(updated)
    assert shop.path.joinpath("README.md").read_text() == README.replace("`total(", "`sum_of(")
    assert {"stale_docs", "update_docs"}.isdisjoint(shop.predict_kinds())


# You changed a source file: the linter is offered, and only new findings are reported.


@pytest.mark.long
def test_only_new_lint_findings_are_reported_and_fixed(shop: Situation) -> None:
    shop.commit("Totals", {"cart.py": TOTAL_WITH_UNUSED_IMPORT}, days_ago=8)
    shop.record_test_run()
    assert "lint" not in shop.predict_kinds(), "what was there before is no news"
    shop.write("cart.py", TOTAL_WITH_UNUSED_IMPORT.replace("import os\n", "import os\nimport sys\n"))
    card = shop.predict_card("lint")
    assert card.tier is Tier.CHECK
    assert card.assignment.prompt == "Lint cart.py with ruff"
    session = shop.approve(card)
    assert session.summary.startswith("ruff: 1 finding in 1 file is new (F401 1)"), "os was unused before"
    assert session.outcome == PROBLEM_FOUND, "it ran to its end"
    assert "fix_lint" in shop.predict_kinds()


def test_settings_and_lock_files_are_not_linted(shop: Situation) -> None:
    shop.record_test_run()
    shop.write(".gitignore", "__pycache__/\n.pytest_cache/\n.venv\n*.log\n")
    shop.write("uv.lock", "version = 1\n")
    assert "lint" not in shop.predict_kinds()


@pytest.mark.long
def test_changes_of_last_week_are_in_no_commit(pushed: Situation) -> None:
    pushed.write("cart.py", "def total(prices):\n    return sum(prices) or 0\n", days_ago=4)
    pushed.write("price list.py", "def price(name):\n    return 1\n", days_ago=3.5)
    pushed.write(
        "tests/test_cart.py", "def test_total():\n    from cart import total\n    assert not total([])\n", days_ago=3
    )
    pushed.write("README.md", "# Shop\n", days_ago=3)

    card = pushed.predict_top_card("waiting_work", Tier.BLOCKS)
    assert card.assignment.prompt == ("Look at what is not committed yet: README.md, cart.py, price list.py and 1 more")
    assert card.reasoning == "4 files changed since Thursday are in no commit."
    session = pushed.approve(card)
    assert session.summary == "4 files not committed; could be 3 commits: cart, documentation and price list"
    assert "git add -- cart.py tests/test_cart.py && git commit" in pushed.read_transcript(session)
    assert session.next_step == "run_tests"
    assert pushed.git("status", "--porcelain").count("\n") == 3  # it only looked


@pytest.mark.long
def test_the_commands_for_uncommitted_files_name_all_of_them(pushed: Situation) -> None:
    names = [f"docs/page {number:02} [draft].md" for number in range(21)]
    for name in names:
        pushed.write(name, "# Page\n", days_ago=4)
    pushed.write("cart.py", HARMLESS_TOTAL, days_ago=4)
    transcript = pushed.read_transcript(pushed.approve(pushed.predict_top_card("waiting_work")))
    commands = re.findall(r"git add -- .*", transcript)
    subprocess.run(["sh", "-ec", "\n".join(commands).replace(" && git commit", "")], cwd=pushed.path, check=True)
    assert pushed.git("diff", "--cached", "--name-only", "-z").split("\0")[:-1] == ["cart.py", *names]


def test_commits_that_were_never_pushed(pushed: Situation) -> None:
    pushed.git("switch", "-q", "-c", "faster", "--no-track")
    pushed.commit("Faster", {"cart.py": HARMLESS_TOTAL}, days_ago=5)
    card = pushed.predict_top_card("waiting_work")
    assert card.assignment.prompt == "Look through the commit to push"
    assert pushed.approve(card).summary == "1 unpushed commit, nothing that should not be pushed"


def test_commits_without_a_remote_logs_and_work_of_yesterday_are_no_card(shop: Situation) -> None:
    shop.commit("Faster", {"cart.py": HARMLESS_TOTAL}, days_ago=5)  # no remote
    shop.write("out.log", "x\n", days_ago=9)
    shop.write(".idea/shop.xml", "x\n", days_ago=9)
    shop.write("cart.py", "def total(prices):\n    return sum(prices)\n", days_ago=1)  # of yesterday
    assert "waiting_work" not in shop.predict_kinds()


@pytest.mark.long
def test_a_dismissed_card_stays_away_for_seven_days_of_commits(pushed: Situation) -> None:
    pushed.record_test_run()
    pushed.write("cart.py", HARMLESS_TOTAL)
    card = pushed.predict_top_card("run_tests")
    pushed.engine.cards.dismiss(card.id)
    for number in range(6):
        pushed.advance(days=1)
        pushed.commit(
            f"Step {number}", {"cart.py": f"def total(prices):\n    return sum(prices) - {number}\n"}, days_ago=0
        )
        pushed.write("other.py", f"x = {number}\n")
        assert "run_tests" not in pushed.predict_kinds()
    pushed.advance(days=1, minutes=1)
    assert "run_tests" in pushed.predict_kinds()


def commit_history(situation: Situation) -> None:
    """Commit prices and their rules together, except once. Between, commit other files."""
    situation.commit(
        "The shop", {"price.py": "0\n", "rules.toml": "0\n", "README.md": "0\n", "stock.py": "0\n"}, days_ago=60
    )
    for number in range(PRICE_COMMITS):
        files = {"price.py": f"{number}a\n", "rules.toml": f"rate = {number}\n"}
        if number == 3:
            del files["rules.toml"]
        situation.commit(f"Price {number}", files, days_ago=50 - 2 * number)
        situation.commit(
            f"Stock {number}", {"stock.py": f"{number}\n", "README.md": f"{number}\n"}, days_ago=49 - 2 * number
        )


@pytest.mark.long
def test_a_file_that_usually_changes_too_is_shown(situation: Situation) -> None:
    commit_history(situation)
    situation.write("price.py", "new\n", days_ago=0.01)
    card = situation.predict_top_card("changes_together", Tier.CHECK)
    assert card.reasoning == "In 12 of the last 13 commits `rules.toml` changed with `price.py`; not this time."

    session = situation.approve(card)
    assert session.state is SessionState.SUCCEEDED
    assert "“Price 11”" in session.summary
    assert "2 lines of rules.toml" in session.summary


# You ask for the work of a whole folder in a sentence of your own.


@pytest.mark.long
def test_a_request_about_a_folder_is_done_to_its_result(situation: Situation) -> None:
    unused, failing = "import os\n", "def test_a():\n    assert 0\n"
    situation.commit_shop()
    files = {
        "src/a b.py": unused,
        "src/[x]/ü.py": unused,
        "more/c.py": unused,
        "docs/d.md": "",
        "more/test_c.py": failing,
    }
    situation.commit("begin", {"ruff.toml": "lint.select = ['F']\n", **files})
    situation.write("src/new.py", f"{unused}import sys\n")
    results = {
        "lint src": "ruff: 2 findings in 1 file are new (F401 2)",
        "lint the src/[x]/": "ruff found nothing new in 1 file; HEAD has 1 finding",
        "lint more/c.py": "ruff found nothing new in 1 file; HEAD has 1 finding",
        "lint docs": "Nothing to lint: no linter of the project reads docs",
        "format src": "ruff check and ruff format changed 3 files: src/[x]/ü.py, src/a b.py and src/new.py",
        "format docs": "Nothing to fix: no linter of the project fixes docs",
        "run the tests of docs": "No tests found for docs, nothing was run: `run the tests` runs the whole suite",
    }
    prompts = ["Lint src", "Lint src/[x]/", "Lint more/c.py", "Lint docs", "Format and fix src", "Format and fix docs"]
    for (prompt, summary), title in zip(results.items(), [*prompts, "Run the tests of docs"], strict=True):
        card = situation.propose(prompt)
        assert card.assignment.prompt == title
        session = situation.approve(card)
        assert (session.state, session.summary) == (SessionState.SUCCEEDED, summary)
    session = situation.approve(situation.propose("run the tests of tests"))
    assert (session.check.failed, session.check.passed) == (0, 1), "the tests of other folders are not run"
    session = situation.approve(situation.propose("run the tests of more"))
    assert session.check.failing == ("more/test_c.py::test_a",)
