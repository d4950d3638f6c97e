"""The parameters of every flow: what they mean in words, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from engine.execution.runners.flow import FlowError, FlowResult, Job
from engine.execution.runners.flows import FLOWS
from engine.git import Git
from tests.execution.flows.conftest import ProcessSession

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
def test_a_flow_describes_its_parameters(name: str) -> None:
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


def test_text_of_a_repository_is_sanitised_where_it_leaves_a_flow(tmp_path: Path) -> None:
    result = FlowResult("Reverts \x1b[31mevil\nname", facts={"files": ["a\x07.py"], "caf\udce9.py": ("\u202eb", 1)})
    assert result.summary == "Reverts evil name"
    assert result.facts == {"files": ["a.py"], "caf\ufffd.py": ["b", 1]}
    assert FlowError("no \x1b[31mfile\nhere", "look").message == "no file here"
    session = ProcessSession(tmp_path)
    Job(workspace=tmp_path, folder=tmp_path, git=Git(tmp_path), session=session).say("  a  evil\nname\x07")
    assert session.lines == ["  a  evil name"]
