"""Builders of what contexts and proposals are made of: commits, files of a certain time, sessions, tasks."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from engine.execution.runners.flows import FLOWS
from engine.model import Proposal, SessionState, SessionView, Task
from engine.prediction.context import WorkspaceContext
from engine.prediction.templates import propose
from tests.support import MONDAY_MORNING as NOW
from tests.support.sessions import make_session_view


def make_session(
    flow: str | None = "run_tests", state: SessionState = SessionState.SUCCEEDED, **fields: Any
) -> SessionView:
    """A session that ended an hour ago, with these other fields."""
    defaults = {
        "id": "ses_1", "prompt": "Run the tests", "workspace": "/w", "cwd": "/w", "runner": "flow", "flow": flow,
        "state": state, "created_at": NOW - timedelta(hours=2), "started_at": NOW - timedelta(hours=2),
        "ended_at": NOW - timedelta(hours=1),
    }  # fmt: skip
    return make_session_view(**defaults | fields)


def make_task(title: str, age: timedelta, **fields: Any) -> Task:
    """An open task of the operator that was added, and last changed, `age` ago, with these other fields. Its id ends
    with the last word of its title."""
    at = NOW - age
    return replace(Task(f"task_{title.split()[-1]}", title, "open", "", "", "operator", at, at), **fields)


def propose_all(context: WorkspaceContext) -> list[Proposal]:
    """What all templates propose. An error of one of them is raised."""
    proposed = propose(context)
    for error in proposed.errors:
        raise error
    return [*proposed.proposals]


def get_only(proposals: list[Proposal]) -> Proposal:
    """The only proposal, whose parameters its flow accepts."""
    (proposal,) = proposals
    FLOWS[proposal.flow or ""].model_validate(dict(proposal.parameters))
    return proposal
