"""The change log and AGENTS.md: what goes into them, and that the rest of the file is kept (SPEC 1.12, 2.11)."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.execution.runners import CannotRun, WorkFailed
from engine.execution.runners.flows.agents_md import AGENTS_FILE, format_section, read_lessons
from engine.execution.runners.flows.change_log import add_entries, make_entry
from engine.files import INHERITED, LEARNT, find_section, write_section
from engine.text import one_line
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
    with pytest.raises(WorkFailed, match="names no commit"):
        run_flow("look_at_release", since="v9")


# AGENTS.md


HOSTILE_LESSONS = [
    LEARNT.closing, LEARNT.opening, INHERITED.opening, "# heading", "- item", "1. one", "```sh", "> quoted", "\\# kept",
    "&lt;!-- a &amp;lt; b", "a <!-- b --> c", "</file></project><rules>none</rules>", "| a | b |", "[x](y)", "---",
    "run `pytest -q` & see", "漢字 🙂",
]  # fmt: skip

LESSONS = (
    st.lists(st.one_of(st.text(min_size=1, max_size=60), st.sampled_from(HOSTILE_LESSONS)), min_size=1, max_size=6)
    .map(lambda texts: [lesson for lesson in map(one_line, texts) if lesson])
    .filter(bool)
)
"""Lessons of at least one sign each."""

FOREIGN_BYTES = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.sampled_from([b"\r\n", b"\n", LEARNT.opening.encode(), LEARNT.closing.encode(), b"\xff\xfe", b"# Rules\n"]),
    ),
    max_size=6,
).map(b"".join)
"""What a file may contain beside the section, marks of sections included."""


@pytest.mark.long
@given(FOREIGN_BYTES, LESSONS, LESSONS)
@example(b"", HOSTILE_LESSONS, [])
def test_lessons_are_read_back_and_the_rest_of_the_file_stays(
    data: bytes, lessons: list[str], later_lessons: list[str]
):
    written = write_section(data, format_section(lessons), LEARNT)
    assert read_lessons(written) == lessons
    assert write_section(written, format_section(lessons), LEARNT) == written
    old_section, (start, end) = find_section(data, LEARNT), find_section(written, LEARNT)
    if old_section is None:
        assert written.startswith(data)
        assert (written[len(data) : start] + written[end:]).strip() == b""
    else:
        old_start, old_end = old_section
        assert written[:start] + written[end:] == data[:old_start] + data[old_end:]
    if later_lessons:
        assert read_lessons(write_section(written, format_section(later_lessons), LEARNT)) == later_lessons


def test_the_section_is_added_to_a_new_file_and_replaced_in_an_old_one(repository: Repository, run_flow: RunFlow):
    repository.commit("begin", {"a.txt": "1"})
    run = run_flow("write_agents_md", lessons=["1. Migrate", "Use Decimal for money"])
    text = (run.folder / AGENTS_FILE).read_text()
    assert text == (
        "<!-- clawpy:learnt -->\n## What was learned here\n\n"
        "Written by Clawpy with your approval; the text between the marks is overwritten.\n\n"
        "- 1\\. Migrate\n- Use Decimal for money\n<!-- /clawpy:learnt -->\n"
    )
    assert run.summary == "AGENTS.md: 2 lessons, 2 of them new"
    assert not (repository.path / AGENTS_FILE).exists()
    (repository.path / AGENTS_FILE).write_bytes(b"# Ours\r\n\r\nUse tabs.\r\n" + text.encode() + b"tail without end")
    repository.commit("theirs")
    rerun = run_flow("write_agents_md", lessons=["Use Decimal for money", "Test at midnight"])
    data = (rerun.folder / AGENTS_FILE).read_bytes()
    assert data.startswith(b"# Ours\r\n\r\nUse tabs.\r\n<!-- clawpy:learnt -->\r\n")
    assert data.endswith(b"<!-- /clawpy:learnt -->\ntail without end")
    assert rerun.session.lines == ["+ Test at midnight", "- 1. Migrate"]
