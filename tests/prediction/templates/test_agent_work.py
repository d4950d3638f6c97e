"""When tasks of the board (SPEC 2.1), findings for an agent and learned flows (SPEC 5.2) become cards."""

from dataclasses import replace
from datetime import timedelta

from engine.prediction.templates.agent_work import LearnedFlowOffer, let_agent_fix, open_task, propose_learned_flows
from tests.prediction.builders import NOW, make_session, make_task
from tests.prediction.sensing import SensedWorkspace

HOUR = timedelta(hours=1)
RELEASE_CHECK = LearnedFlowOffer("check_release", "Run git status, then pytest tests", NOW - timedelta(days=1))


def test_a_task_that_names_a_flow_runs_it_and_says_how_it_failed_last(workspace: SensedWorkspace):
    workspace.tasks = [make_task("run the tests", HOUR, note="failed: 2 tests", session_id="ses_1")]
    (card,) = open_task(workspace.sense())
    assert card.flow == "run_tests"
    assert card.reasoning == "On the task board since 08:30. The last try: failed: 2 tests."


def test_no_card_for_tasks_of_another_workspace_of_sessions_or_running_ones(workspace: SensedWorkspace):
    workspace.tasks = [
        make_task("a", HOUR, workspace="/other"),
        make_task("b", HOUR, source="session"),
        make_task("c", HOUR, state="running"),
    ]
    assert open_task(workspace.sense()) == []


def test_a_learned_flow_is_offered_for_a_commit_that_it_did_not_run_on(workspace: SensedWorkspace):
    (proposal,) = propose_learned_flows(workspace.sense(), [RELEASE_CHECK])
    assert (proposal.kind, proposal.flow, proposal.parameters) == ("check_release", "check_release", {})
    assert proposal.prompt == "Run git status, then pytest tests"
    assert "has not run here yet" in proposal.reasoning
    workspace.sessions = [make_session("check_release", created_at=NOW - HOUR)]
    assert propose_learned_flows(workspace.sense(), [RELEASE_CHECK]) == []
    workspace.sessions = [make_session("check_release", created_at=NOW - timedelta(days=3))]
    (later_proposal,) = propose_learned_flows(workspace.sense(), [RELEASE_CHECK])
    assert later_proposal.fingerprint == proposal.fingerprint, "the same commit is the same card"
    for name in ("cart.py", "tax.py"):
        (workspace.path / name).write_text("3")
    [changed] = propose_learned_flows(workspace.sense(), [RELEASE_CHECK])
    assert "It ran last 2 January. There are 2 uncommitted files." in changed.reasoning


def test_a_prompt_says_how_many_files_it_does_not_name(workspace: SensedWorkspace):
    workspace.sessions = [make_session("lint", facts={"findings": [{"path": f"{number}.py"} for number in range(12)]})]
    (card,) = let_agent_fix(replace(workspace.sense(), prompt_runner="claude"))
    assert "`7.py` and 2 more" in card.prompt
