"""The heading of a session and the words for its changes (SPEC 9.4)."""

import dataclasses

from clawpy_console.formats import moment
from clawpy_console.widgets.session import describe_change_set, make_heading_lines
from engine.model import ChangeSet, ChangeState, SessionState
from tests.console.stand_in_data import NOW, read_sessions, read_values


def test_an_interrupted_session_shows_no_duration():
    whole = next(session for session in read_sessions() if session.state is SessionState.SUCCEEDED)
    cut = dataclasses.replace(whole, state=SessionState.INTERRUPTED)
    texts = "\n".join(line.plain for line in make_heading_lines(cut, (), NOW, 100))
    assert f"interrupted  started {moment(cut.started_at, NOW)}" in texts


def test_a_queued_session_says_why_it_waits_and_names_no_folder():
    whole = next(session for session in read_sessions() if session.state is SessionState.SUCCEEDED)
    queued = dataclasses.replace(whole, state=SessionState.QUEUED, started_at=None, ended_at=None, cwd=whole.workspace)
    assert "waits until another session ends" in make_heading_lines(queued, (), NOW, 100)[-1].plain
    running_one = dataclasses.replace(queued, state=SessionState.RUNNING, started_at=NOW)
    assert make_heading_lines(running_one, (), NOW, 100)[-1].plain == ""


def test_a_prompt_or_a_result_that_is_cut_off_ends_with_an_ellipsis():
    whole = next(session for session in read_sessions() if session.state is SessionState.SUCCEEDED)
    long = dataclasses.replace(whole, prompt="write a test " * 20, summary="one test failed " * 20, error="")
    _, prompt, _, _, _, result, *_ = make_heading_lines(long, (), NOW, 40)
    assert [line.plain[-1] for line in (prompt, result)] == ["…", "…"]
    assert max(prompt.cell_length, result.cell_length) <= 40


def test_changes_that_another_session_took_over_are_not_called_discarded():
    change = dataclasses.replace(read_values(ChangeSet, "change_sets")[0], state=ChangeState.DISCARDED)
    assert describe_change_set(change, None) == "3 files discarded"
    assert (
        describe_change_set(dataclasses.replace(change, note="continued in sess_9"), None)
        == "3 files continued in sess_9"
    )
