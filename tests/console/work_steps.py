"""Steps of stories about the work screen."""

from clawpy_console.screens.work import WorkScreen
from tests.console.stand_in import StandIn
from tests.console.stories import Until


def shows_session(id: str) -> Until:
    """The cursor stands on this session."""
    return Until(id, lambda app: isinstance(app.screen, WorkScreen) and app.screen.session.id == id)


def remove_changes(engine: StandIn):
    """No changes, and no session that made some."""
    engine.sessions.all, engine.changes.all = engine.sessions.all[2:], []
