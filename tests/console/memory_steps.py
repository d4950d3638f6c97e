"""Steps of stories about the memory screen."""

from textual.widgets import TextArea

from clawpy_console.app import ConsoleApp
from engine.model import Layer
from tests.console.stories import Step, Until, find_calls, find_stand_in, hides, press, read_text_in, select

WIDE = (150, 45)
SOUL = ("backend_builder", "soul.md")
"""The soul of the first agent, as the stand-in engine names a file: the agent, and the name of the file."""


def open_editor() -> tuple[Step, ...]:
    """Open the soul of the first agent in the editor."""
    return (*open_layer(Layer.MARKDOWN), press("e"), editor_begins("# Builder"))


def open_layer(layer: Layer) -> tuple[Step, ...]:
    """Go to the entries of a layer, and wait until the first one is shown."""
    return (
        press("4"),
        lambda app: app.screen.go_to("layers"),
        select("#layers", layer.value),
        press("enter"),
        Until(f"layer {layer}", lambda app: app.screen.entry is not None and app.screen.entry.layer is layer),
        hides("Select an entry."),
    )


def shows_details(id: str) -> Until:
    """The pane on the right shows the entry with this id."""
    return Until(f"the details of {id}", lambda app: id in read_text_in(app, app.screen.query_one("#entry").region))


def was_called_once(name: str) -> Until:
    """The engine was called by this name once and not again."""
    return Until(f"one call of {name}", lambda app: len(find_calls(find_stand_in(app), name)) == 1)


def editor_begins(start: str) -> Until:
    """The text in the editor begins like this."""
    return Until(f"an editor with {start}", lambda app: app.screen.query_one("#text", TextArea).text.startswith(start))


def write_outside(app: ConsoleApp):
    """Another program writes the soul."""
    find_stand_in(app).agent_files.all[SOUL] = "# Theirs\n"
