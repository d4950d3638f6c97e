"""Pure parts of the flows: parameters, their words, change log text, leftovers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.execution.runners.flow import FlowError, FlowResult, Job
from engine.execution.runners.flows import FLOWS
from engine.execution.runners.flows.documents import add_entries, classify, is_mentioned
from engine.execution.runners.flows.steps import count, describe_check, join_names
from engine.git import Git
from engine.git.leftovers import scan_line
from engine.git.secrets import is_secret_file
from engine.model import CheckResult
from tests.execution.flows.conftest import RealBench

# -- parameters -----------------------------------------------------------------------------------------------------

SHA = "0123456789abcdef0123456789abcdef01234567"
EXAMPLES: dict[str, tuple[dict[str, object], str]] = {
    "run_tests": ({"paths": ["a.py", "b.py", "c.py"]}, "Run the tests of 3 changed modules: a.py, b.py and c.py"),
    "bisect": (
        {"test": "t.py::test_a", "good": SHA, "bad": "HEAD"},
        "Find the commit that broke `t.py::test_a` between 0123456789 and HEAD",
    ),
    "rehearse_merge": ({"source": "main", "target": "feature/x"}, "Rehearse merging main into feature/x"),
    "hunt_flakes": ({"tests": ["t.py::a"]}, "Rerun `t.py::a` 20 times for flakiness"),
    "check_clean_head": (
        {"files": ["a.py", "b.py"]},
        "Check that HEAD passes without 2 uncommitted files: a.py and b.py",
    ),
    "draft_changelog": ({"since": "v1.2"}, "Draft the change log of the commits since v1.2"),
    "lint": ({"paths": ["a.py"]}, "Lint 1 changed file: a.py"),
    "fix_lint": ({"paths": ["a.py"]}, "Format and fix 1 changed file: a.py"),
    "forecast_conflicts": (
        {"base": "main", "branches": ["a", "b"]},
        "Find the order of merging a and b into main with the least conflict",
    ),
    "unfinished_operation": ({"operation": "rebase"}, "Rehearse both sides of the unfinished rebase"),
    "keep_commits": ({"commits": [SHA]}, "Make a branch for the commits that are on no branch: 0123456789"),
    "rehearse_autosquash": ({"onto": SHA}, "Rehearse squashing the fixup commits since 0123456789"),
    "look_at_stash": ({"stashes": [SHA]}, "Look at 1 old stash: does it still apply?"),
    "undo_landing": ({"change_set": "change_abc"}, "Undo the landing of change_abc"),
    "reclaim_space": ({}, "Remove worktrees and caches of clawpy that are no longer needed"),
    "look_at_changes": ({}, "Look at what is not committed yet and suggest commits"),
    "apply_fix": (
        {"fix": "cand_a", "tests": ["tests/test_a.py::test_x"], "patch": "diff --git a/a b/a"},
        "Apply the fix cand_a in a worktree and run tests/test_a.py::test_x",
    ),
    "rehearse_revert": (
        {"commit": "abcdef1234567890", "test": "tests/test_a.py::test_x"},
        "Revert abcdef1234 in a worktree and run `tests/test_a.py::test_x` and the whole suite",
    ),
    "review_unpushed": (
        {"upstream": "origin/main"},
        "Review the commits that origin/main does not have yet for leftovers, secrets and large files",
    ),
    "report_branches": ({}, "Report the branches that are merged or had no commit for 30 days"),
    "summarise_day": ({"since": "2026-01-05T00:00:00+01:00"}, "Summarise what was done since Mon 05 Jan 00:00"),
    "look_together": (
        {"path": "price.py", "partner": "rules.toml"},
        "Show how rules.toml changed with price.py",
    ),
    "look_at_release": ({"since": "v1.2"}, "List what a release would hold since v1.2"),
    "prepare_environment": (
        {"project": "packages/py", "command": ["uv sync --group test"]},
        "Install the packages in packages/py: uv sync --group test",
    ),
    "update_lock": ({"command": ["uv lock"]}, "Update the lock file: uv lock"),
    "look_for_leftovers": (
        {"today": "2026-01-05T00:00:00+01:00"},
        "Show the debugging and conflict markers that your changes left in",
    ),
    "remove_leftovers": ({"paths": ["a.py"]}, "Remove the debugging from a.py"),
    "look_at_mentions": ({}, "Show the documentation that names what your changes renamed or removed"),
    "update_docs": ({"paths": ["README.md"]}, "Put the new names into README.md"),
    "narrow_failures": (
        {"tests": ["t.py::a", "t.py::b"], "project": "packages/py"},
        "Run 2 failing tests alone and group the failures by cause in packages/py",
    ),
    "uncovered_lines": ({"paths": ["a.py"], "whole": True}, "Run the whole suite with coverage, for 1 changed file"),
    "quarantine": ({"tests": ["t.py::a"], "until": "2026-12-07"}, "Skip t.py::a until 2026-12-07"),
    "time_tests": ({"tests": ["t.py::a"], "fast": SHA}, "Time t.py::a at HEAD and at 0123456789"),
    "look_at_pull_request": ({"number": 7, "title": "Totals"}, "Look at pull request #7 “Totals”"),
    "write_agents_md": (
        {"lessons": ["Use tabs", "Test first"]},
        "Write what was learned here into AGENTS.md, 2 lessons:\n- Use tabs\n- Test first",
    ),
}


def test_every_flow_is_described() -> None:
    assert FLOWS.keys() == EXAMPLES.keys()


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_words_of_a_flow(name: str) -> None:
    flow, (parameters, words) = FLOWS[name], EXAMPLES[name]
    request = flow(**parameters)
    assert request.describe() == words
    assert flow(**request.model_dump(mode="json")) == request
    assert all(field.description for field in flow.model_fields.values())


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_unknown_parameters_are_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="extra"):
        FLOWS[name].model_validate({**EXAMPLES[name][0], "colour": "red"})


@pytest.mark.parametrize("word", ["--output=x", "-x", "", " ", "a\nb", "a\x00b", " a"])
def test_a_revision_cannot_be_an_option(word: str) -> None:
    for name, parameters in (
        ("rehearse_merge", {"source": word, "target": "main"}),
        ("review_unpushed", {"upstream": word}),
        ("bisect", {"test": word, "good": SHA}),
        ("hunt_flakes", {"tests": [word]}),
    ):
        with pytest.raises(ValidationError):
            FLOWS[name](**parameters)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "", "a\nb"])
def test_a_path_cannot_leave_the_repository(path: str) -> None:
    for name in ("run_tests", "lint", "fix_lint"):
        with pytest.raises(ValidationError):
            FLOWS[name].model_validate({"paths": [path]})


@pytest.mark.parametrize(("times", "fits"), [(1, False), (2, True), (500, True), (501, False)])
def test_times_have_bounds(times: int, fits: bool) -> None:
    if fits:
        FLOWS["hunt_flakes"].model_validate({"tests": ["a"], "times": times})
    else:
        with pytest.raises(ValidationError):
            FLOWS["hunt_flakes"].model_validate({"tests": ["a"], "times": times})


# -- words ----------------------------------------------------------------------------------------------------------


def test_text_of_a_repository_is_sanitised_where_it_leaves_a_flow(tmp_path: Path) -> None:
    result = FlowResult("Reverts \x1b[31mevil\nname", facts={"files": ["a\x07.py"], "caf\udce9.py": ("\u202eb", 1)})
    assert result.summary == "Reverts evil name"
    assert result.facts == {"files": ["a.py"], "caf\ufffd.py": ["b", 1]}
    assert FlowError("no \x1b[31mfile\nhere", "look").message == "no file here"
    bench = RealBench(tmp_path)
    Job(workspace=tmp_path, folder=tmp_path, git=Git(tmp_path), session=bench).say("  a  evil\nname\x07")
    assert bench.said == ["  a  evil name"]


def test_counts_and_lists() -> None:
    assert [count(number, "file") for number in (0, 1, 2)] == ["no files", "1 file", "2 files"]
    assert join_names([]) == ""
    assert join_names(["a"]) == "a"
    assert join_names(["a", "b", "c"]) == "a, b and c"
    assert join_names(["a", "b", "c"], 2) == "a, b and 1 more"
    assert join_names(["evil\x1b[31m\nname"]) == "evil name"


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (CheckResult("pytest", 23, 0, seconds=1.25), "all 23 tests passed in 1.2 s"),
        (CheckResult("pytest", 1, 0, skipped=2), "the one test passed in <0.1 s, 2 skipped"),
        (CheckResult("pytest", 1, 1, failing=("a",)), "1 of 2 tests failed in <0.1 s: a"),
        (
            CheckResult("pytest", 3, 1, errors=1, failing=("a", "b")),
            "1 of 4 tests failed and 1 error in <0.1 s: a and b",
        ),
        (CheckResult("pytest", 3, 0, errors=1, failing=("a",)), "1 error, 3 tests passed in <0.1 s: a"),
        (CheckResult("pytest", 0, 0, errors=2, failing=("a", "b")), "2 errors, no tests ran in <0.1 s: a and b"),
        (CheckResult("pytest", 0, 0, skipped=2), "no tests ran, 2 skipped"),
    ],
)
def test_results_in_words(check: CheckResult, words: str) -> None:
    assert describe_check(check) == words


# -- change logs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "section", "entry"),
    [
        ("feat: totals", "Added", "Totals"),
        ("fix(cart): rounding.", "Fixed", "Cart: rounding"),
        ("feat!: drop Python 3.9", "Added", "**Breaking:** Drop Python 3.9"),
        ("chore!: new licence", "Changed", "**Breaking:** New licence"),
        ("Remove the old cart", "Removed", "Remove the old cart"),
        ("Deprecate gifts", "Deprecated", "Deprecate gifts"),
        ("Adds a garden", "Added", "Adds a garden"),
        ("Bug #3: wrong tax", "Fixed", "Bug #3: wrong tax"),
        ("Close a security hole", "Security", "Close a security hole"),
        ("Totals are rounded", "Changed", "Totals are rounded"),
        ("note: spelling", "Changed", "Note: spelling"),
    ],
)
def test_commits_are_sorted(subject: str, section: str, entry: str) -> None:
    assert classify(subject) == (section, entry)


@pytest.mark.parametrize(
    "subject",
    [
        "chore: deps",
        "docs: more",
        "ci: faster",
        "Merge branch 'x'",
        "WIP",
        "fixup! a",
        "Release 1.2",
        "v1.2.3",
        "1.0",
        "",
    ],
)
def test_commits_that_no_user_notices(subject: str) -> None:
    assert classify(subject) is None


def test_mentioned_by_id_or_in_the_same_words() -> None:
    assert is_mentioned("- things (0123456)", SHA, "Other")
    assert is_mentioned("* **Add** gifts, at last", SHA, "Add gifts")
    assert not is_mentioned("- Add gifts", SHA, "Add gift")
    assert not is_mentioned("- The tax of gifts\n\nSome note on things.", SHA, "Note")
    assert is_mentioned("- At last:\n  the tax of\n  gifts is right", SHA, "The tax of gifts")
    assert not is_mentioned("- 0123450 is another", SHA, "x")


KEEP = """# Changelog

## [Unreleased]

### Added

- Gifts

### Fixed
- Tax

## [1.0.0] - 2025-01-01

- First

[Unreleased]: https://example.org/compare
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "# Log\n\n## 1.1 (2025-02-02)\n\n* Things\n",
            "# Log\n\n## Unreleased\n\n* New\n* Mended\n\n## 1.1 (2025-02-02)\n\n* Things\n",
        ),
        (
            "# Log\n\n## [1.1]\n\n### Fixed\n- x\n",
            "# Log\n\n## [Unreleased]\n\n### Added\n\n- New\n\n### Fixed\n\n- Mended\n\n## [1.1]\n\n### Fixed\n- x\n",
        ),
        (
            "History\n=======\n\n1.1 (2025)\n----------\n\n- x\n",
            "History\n=======\n\nUnreleased\n----------\n\n- New\n- Mended\n\n1.1 (2025)\n----------\n\n- x\n",
        ),
        (
            "## v1.1\r\n\r\n**Fixed**\r\n- x\r\n",
            "## Unreleased\r\n\r\n**Added**\r\n- New\r\n\r\n**Fixed**\r\n- Mended\r\n\r\n"
            "## v1.1\r\n\r\n**Fixed**\r\n- x\r\n",
        ),
        (
            "# Changes\n\n## Unreleased\n\n### Features\n\n- x\n\n## 1.0\n\n- y\n",
            "# Changes\n\n## Unreleased\n\n### Features\n\n- x\n- New\n\n### Fixed\n\n- Mended\n\n## 1.0\n\n- y\n",
        ),
        ("# Log\n", "# Log\n\n## [Unreleased]\n\n### Added\n\n- New\n\n### Fixed\n\n- Mended\n"),
    ],
    ids=["flat", "keep-a-changelog", "underlined", "crlf-bold", "title-like-a-section", "empty"],
)
def test_the_files_own_style_is_kept(before: str, after: str) -> None:
    assert add_entries(before, {"Added": ["New"], "Fixed": ["Mended"]}) == after


@pytest.mark.long
@given(
    st.sampled_from(
        [KEEP, "# Log\n\n## 1.1\n\n* Things\n", "History\n=======\n\n1.1\n---\n\n- x\n", "", "free text\n"]
    ),
    st.dictionaries(
        st.sampled_from(["Added", "Changed", "Fixed"]),
        st.lists(st.from_regex(r"[A-Z][a-z]{3,9} \d", fullmatch=True), min_size=1),
    ),
)
def test_what_was_there_stays_and_everything_new_is_mentioned(before: str, entries: dict[str, list[str]]) -> None:
    after = add_entries(before, entries)
    left = iter(after.splitlines())
    assert all(any(line == other for other in left) for line in before.splitlines() if line.strip())
    assert all(is_mentioned(after, "f" * 40, entry) for each in entries.values() for entry in each)


# -- leftovers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "line", "kinds"),
    [
        ("a.txt", "<<<<<<< HEAD", ["conflict marker"]),
        ("a.txt", ">>>>>>> feature/x", ["conflict marker"]),
        ("a.rst", "=======", []),
        ("a.txt", "<<<<<<<< eight", []),
        ("shop/a.py", "    print(x)", ["debug print"]),
        ("shop/a.py", "    pprint(x)", []),
        ("shop/a.py", "    print(x, file=sys.stderr)", []),
        ("shop/cli.py", "    print(x)", []),
        ("scripts/a.py", "print(x)", []),
        ("tests/test_a.py", "print(x)", []),
        ("tests/test_a.py", "    breakpoint()", ["breakpoint"]),
        ("a.py", "import pdb; pdb.set_trace()", ["breakpoint"]),
        ("a.ts", "  console.log(x)", ["console.log"]),
        ("a.ts", "  console.error(x)", []),
        ("a.js", "  debugger;", ["debugger statement"]),
        ("a.test.js", "describe.only('x', () => {", [".only"]),
        ("a.rs", "    dbg!(x);", ["dbg!"]),
        ("a.go", "// TODO: fix", ["TODO"]),
        ("a.py", "x = 1  # FIXME later", ["FIXME"]),
        ("a.py", "todo = 'TODO'", []),
    ],
)
def test_lines_that_should_not_be_pushed(path: str, line: str, kinds: list[str]) -> None:
    assert [hit.kind for hit in scan_line(path, line)] == kinds


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        (("AK", "IA", "Q7W2E9R4T1Y8U3I6"), "AWS access key"),
        (("-----BEGIN RSA ", "PRIVATE KEY-----"), "private key"),
        (("xo", "xb-123456789012-abcdef"), "Slack token"),
        (("postgres://app:", "s3cr3tpw@db.internal/x"), "password in a URL"),
        (("api_key = ", "'q8Zr2Lk9Xw4Tn7Bv'"), "value that looks like a key"),
    ],
)
def test_likely_secrets(parts: tuple[str, ...], kind: str) -> None:
    [found] = scan_line("config.py", "".join(parts), "MIIEowIBAAKCAQEA" * 4)
    assert found.kind == f"likely secret: {kind}"
    assert found.is_secret


@pytest.mark.parametrize(
    "line",
    [
        "password = 'changeme1234'",
        "token = os.environ['TOKEN']",
        "api_key: '${API_KEY_FROM_VAULT}'",
        "secret = 'aaaaaaaaaaaaaaaa1'",
        "url = 'https://user:{password}@host'",
        "PASSWORD_FIELD = 'password_confirmation'",
        "if '-----BEGIN RSA PRIVATE KEY-----' in text:",
        "url = 'postgres://postgres:postgres1@localhost/shop'",
        "url = 'postgres://app:s3cr3tpw@db:5432/shop'",
        "key = 'AKIAIOSFODNN7EXAMPLE'",
        "secretName = 'shop-tls-2024-prod-1'",
        "class = 'sk-estimator-doc-link-with-a-very-long-name-indeed'",
    ],
)
def test_what_only_looks_like_a_secret(line: str) -> None:
    assert scan_line("config.py", line) == []


def test_names_of_files_that_hold_keys() -> None:
    assert [is_secret_file(name) for name in (".env", "a/id_rsa", "b.pfx", ".env.example", "id_rsa.pub")] == [
        True, True, True, False, False,
    ]  # fmt: skip
