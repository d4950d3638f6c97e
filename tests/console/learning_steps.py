"""Steps of stories about the learning screen."""

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.learning import LearningScreen
from tests.console.stand_in import StandIn
from tests.console.stories import Step, Until

WIDE = (150, 50)


def shows_item(id: str) -> Until:
    """The cursor stands on this candidate or learning, and it was read."""

    def is_met(app: ConsoleApp) -> object:
        screen = app.screen
        return isinstance(screen, LearningScreen) and screen.view is not None and screen.current == id

    return Until(f"the cursor on {id}", is_met)


def open_item(id: str) -> tuple[Step, ...]:
    """Open the learning screen on this candidate or learning."""
    return lambda app: app.open("learning", id), shows_item(id)


def forget_all(engine: StandIn):
    """Nothing was learned yet."""
    engine.adaptation.all, engine.learnings.all = {}, {}
    engine.learnings.list_scopes = list
