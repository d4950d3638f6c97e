"""The change log: which commits go into it, where, and that the rest of the file is kept (SPEC 2.11)."""

from pathlib import Path

import pytest

from engine.execution.runners import CannotRun, WorkFailed
from engine.execution.runners.flows.change_log import add_entries, make_entry
from tests.execution.flows.flow_run import RunFlow
from tests.support import read_table
from tests.support.repository import Repository

TABLE = read_table(__file__)


@pytest.mark.parametrize("subject, section, entry", TABLE["subjects"])
def test_a_commit_goes_into_the_section_that_its_subject_names(subject: str, section: str, entry: str):
    assert make_entry(subject) == (section, entry)


@pytest.mark.parametrize("subject", TABLE["unnoticed"])
def test_commits_that_no_user_notices_are_left_out(subject: str):
    assert make_entry(subject) is None


@pytest.mark.parametrize("style", TABLE["style"], ids=lambda style: style["name"])
def test_the_files_own_style_is_kept(style: dict[str, str]):
    assert add_entries(style["before"], {"Added": ["New"], "Fixed": ["Mended"]}) == style["after"]


def test_a_missing_change_log_is_created_only_on_request(repository: Repository, run_flow: RunFlow):
    repository.commit("begin", {"a.txt": "1"})
    repository.git("tag", "v1.0")
    repository.commit("feat(cart): totals are rounded", {"a.txt": "2"})
    repository.commit("Fix the tax of gifts.", {"a.txt": "3"})
    repository.commit("chore: format", {"a.txt": "4"})
    with pytest.raises(CannotRun, match="has no change log"):
        run_flow("draft_changelog", since="v1.0")
    run = run_flow("draft_changelog", since="v1.0", create=True)
    text = (run.folder / "CHANGELOG.md").read_text()
    assert text.endswith(
        "## [Unreleased]\n\n### Added\n\n- Cart: totals are rounded\n\n### Fixed\n\n- Fix the tax of gifts\n"
    )
    assert not (repository.path / "CHANGELOG.md").exists()
    assert run.summary == "CHANGELOG.md: 2 entries under Unreleased"
    assert "left out: chore: format" in run.transcript
    repository.commit("docs: the log", {"CHANGELOG.md": text})
    rerun = run_flow("draft_changelog", since="v1.0")
    assert rerun.summary.startswith("Nothing to add to CHANGELOG.md: 2 of 4 commits already mentioned")


def test_a_change_log_that_leads_out_is_not_written(repository: Repository, run_flow: RunFlow, tmp_path: Path):
    (tmp_path / "elsewhere.md").write_text("mine")
    (repository.path / "CHANGELOG.md").symlink_to(tmp_path / "elsewhere.md")
    repository.commit("add a link")
    with pytest.raises(WorkFailed, match="not a regular file"):
        run_flow("draft_changelog")
    assert (tmp_path / "elsewhere.md").read_text() == "mine"


def test_a_release_lists_the_commits_that_users_notice(repository: Repository, run_flow: RunFlow):
    repository.commit("begin", {"a.py": "1\n"})
    repository.git("tag", "v1.0")
    for number, subject in enumerate(("feat: gift cards", "Fix the total", "Bump version to 1.1", "fix: rounding")):
        repository.commit(subject, {"a.py": f"new {number}\n"})
    run = run_flow("look_at_release", since="v1.0")
    assert run.summary == "4 commits since v1.0, 3 that users notice: 1 added, 2 fixed"
    assert "Added:\n- Gift cards\nFixed:\n- Rounding\n- Fix the total" in run.transcript
