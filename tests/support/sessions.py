"""A session, and the event of its end, for tests that start none."""

from typing import Any

from engine.events.work import SessionEnded
from engine.model import SessionState, SessionView
from tests.support import MONDAY_MORNING


def make_session_view(**fields: Any) -> SessionView:
    """A session of a text prompt that runs; `fields` replace its values."""
    values = {
        "id": "sess_1",
        "prediction_id": "pred_1",
        "prompt": "fix it",
        "workspace": "/w/shop",
        "channel": "koji-core",
        "agent": "builder",
        "runner": "model",
        "flow": None,
        "state": SessionState.RUNNING,
        "mode": "approved",
        "sandbox": "",
        "cwd": "/w/shop",
        "created_at": MONDAY_MORNING,
        "started_at": MONDAY_MORNING,
        "ended_at": None,
        "tokens": 0,
        "cost": 0,
        "summary": "",
    }
    return SessionView(**values | fields)


def make_session_ended(session_id: str = "sess_1", state: str = "succeeded", **fields: Any) -> SessionEnded:
    """A session has ended in this state; `fields` are the others."""
    values = {"prediction_id": "", "summary": "", "cost": 0} | fields
    return SessionEnded(subject=session_id, state=state, **values)
