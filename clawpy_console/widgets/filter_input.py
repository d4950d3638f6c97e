"""The line in which the words of a filter are typed."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widgets import Input


def has_words(text: str, words: Iterable[str]) -> bool:
    """Whether `text` contains all `words`, which are in lower case."""
    text = text.lower()
    return all(word in text for word in words)


class Filter(Input):
    """Out of sight until it is asked for, and while it holds words."""

    DEFAULT_CSS = "Filter { display: none; height: 3; margin: 0 1; &.-shown { display: block; } }"

    def __init__(self, placeholder: str = "") -> None:
        super().__init__(placeholder=placeholder, id="filter")

    @property
    def words(self) -> list[str]:
        """Its words, in lower case."""
        return self.value.lower().split()

    def open(self) -> None:
        """Show it, and type."""
        self.add_class("-shown")
        self.screen.set_focus(self)  # at once: the next key is text

    def close(self) -> None:
        """Empty, and out of sight."""
        with self.prevent(Input.Changed):
            self.value = ""
        self.remove_class("-shown")
