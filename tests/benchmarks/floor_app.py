"""The simplest app, whose keys are timed beside those of the console: it counts them on one line."""

from textual.app import App
from textual.widgets import Static


class FloorApp(App):
    """One line with the number of keys that were pressed."""

    pressed = 0

    def compose(self):
        yield Static("pressed 0")

    def on_key(self):
        self.pressed += 1
        self.query_one(Static).update(f"pressed {self.pressed}")


if __name__ == "__main__":
    FloorApp().run()
