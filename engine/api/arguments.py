"""The arguments of a verb, which may come from any program: each is asked for by name and kind, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.model import Refusal

LONGEST_TEXT = 100_000


class Arguments:
    """Reads a JSON object. Every method raises `Refusal` `bad_arguments` that names the argument and its kind."""

    def __init__(self, given: Any, *, known: frozenset[str]) -> None:
        if not isinstance(given, Mapping):
            raise Refusal("bad_arguments", "the arguments must be an object", 'for example {"id": "pred_1"}')
        unknown = sorted(str(name) for name in given if name not in known)
        if unknown:
            takes = ", ".join(sorted(known)) or "none"
            raise Refusal("bad_arguments", f"unknown argument {unknown[0]!r}", f"accepted arguments: {takes}")
        self._given = given

    def text(self, name: str, default: str = "") -> str:
        """A text, `default` when it is not there or null."""
        value = self._given.get(name)
        if value is None:
            return default
        if not isinstance(value, str) or len(value) > LONGEST_TEXT:
            raise _wrong(name, f"a string of at most {LONGEST_TEXT} characters")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _wrong(name, "a string that UTF-8 can encode") from error
        return value

    def needed(self, name: str) -> str:
        """A text that must be there and say something."""
        value = self.text(name)
        if not value.strip():
            raise _wrong(name, "a string; this verb requires it")
        return value

    def maybe(self, name: str) -> str | None:
        """A text, or None when it is not there."""
        return self.text(name) if self._given.get(name) is not None else None

    def flag(self, name: str, default: bool = False) -> bool:
        """true or false."""
        value = self._given.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise _wrong(name, "true or false")
        return value

    def number(self, name: str, default: float, *, least: float, most: float) -> float:
        """A number between two limits, both included."""
        value = self._given.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise _wrong(name, f"a number from {least:g} to {most:g}")
        return value

    def texts(self, name: str) -> list[str]:
        """A list of texts, empty when it is not there."""
        value = self._given.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise _wrong(name, "a list of strings")
        return list(value)

    def items(self, name: str) -> list[Any]:
        """A list of anything, empty when it is not there."""
        value = self._given.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise _wrong(name, "a list")
        return list(value)

    def mapping(self, name: str) -> Mapping[str, Any] | None:
        """An object, None when it is not there."""
        value = self._given.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise _wrong(name, "an object")
        return value

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """One of a few words."""
        value = self.text(name, default)
        if value not in choices:
            raise _wrong(name, "one of " + ", ".join(choices))
        return value

    def anything(self, name: str) -> Any:
        """Whatever JSON is there."""
        return self._given.get(name)


def _wrong(name: str, kind: str) -> Refusal:
    return Refusal("bad_arguments", f"the argument {name!r} must be {kind}", "see the verb's --help")
