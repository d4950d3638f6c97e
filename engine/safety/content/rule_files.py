"""The rules as data: the TOML files in `rules/`, read when a text is first judged."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from engine.model import Verdict

Hit = tuple[Verdict, str, str]
"""Verdict, rule id, reason."""

_FOLDER = Path(__file__).with_name("rules")
_WORD = re.compile(r"<(\w+)>")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule on commands or prompts. `stops` and `passes` are texts that it must and must not stop."""

    id: str
    verdict: Verdict
    reason: str
    stops: Sequence[str] = ()
    passes: Sequence[str] = ()

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> Self:
        """The rule in a table of a file."""
        return cls(**{**entry, "verdict": Verdict(entry["verdict"])})

    @property
    def hit(self) -> Hit:
        """The objection to a text that breaks it."""
        return self.verdict, self.id, self.reason


def read_rules(name: str) -> dict[str, Any]:
    """The tables of a file, each `<word>` replaced by the text of that name in its table `words`."""
    tables = tomllib.loads((_FOLDER / name).read_text(encoding="utf-8"))
    words: dict[str, str] = {}
    for word, text in tables.get("words", {}).items():
        words[word] = _filled(text, words)
    return {key: _filled(value, words) for key, value in tables.items()}


def _filled(value: Any, words: dict[str, str]) -> Any:
    if isinstance(value, str):
        return _WORD.sub(lambda match: words.get(match[1], match[0]), value)
    if isinstance(value, list):
        return [_filled(item, words) for item in value]
    return {key: _filled(item, words) for key, item in value.items()} if isinstance(value, dict) else value


PROGRAMS = read_rules("programs.toml")
"""Which programs run others, and which of their options take a value."""
