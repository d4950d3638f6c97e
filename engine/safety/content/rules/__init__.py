"""The rules and word lists of the content filter as data: the TOML files of this folder, read when a text is judged."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from engine.model import Verdict

Hit = tuple[Verdict, str, str]
"""The objection to a text: verdict, id of the rule that it breaks, reason."""

BLOCK, ASK = Verdict.BLOCK, Verdict.ASK

_WORD = re.compile(r"<(\w+)>")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What the rules of all files have in common. `stops` and `passes` are texts that it must and must not stop."""

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
    tables = tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    words: dict[str, str] = {}
    for word, text in tables.get("words", {}).items():
        words[word] = _fill(text, words)
    return {key: _fill(value, words) for key, value in tables.items()}


def _fill(value: Any, words: dict[str, str]) -> Any:
    if isinstance(value, str):
        return _WORD.sub(lambda match: words.get(match[1], match[0]), value)
    if isinstance(value, list):
        return [_fill(item, words) for item in value]
    return {key: _fill(item, words) for key, item in value.items()} if isinstance(value, dict) else value


_PROGRAMS = read_rules("programs.toml")


def word_list(name: str) -> frozenset[str]:
    """The words of a list in `programs.toml`."""
    return frozenset(_PROGRAMS[name].split())


def option_lists(name: str) -> dict[str, frozenset[str]]:
    """By program: the options in a table of `programs.toml`."""
    return {program: frozenset(options.split()) for program, options in _PROGRAMS[name].items()}


SHELLS = word_list("shells")
INTERPRETERS = option_lists("interpreters")
"""By interpreter: the options whose value is a program."""
WRAPPERS = {
    program: (frozenset(options.split()), skipped) for program, (options, skipped) in _PROGRAMS["wrappers"].items()
}
"""By program: its options that take a value, and how many plain words come before the command."""
RUNNERS: dict[str, dict[str, int]] = _PROGRAMS["runners"]
"""By program and sub-command: how many plain words stand between it and the command."""
SPELLINGS: dict[str, str] = _PROGRAMS["spellings"]
"""By other name of a program: its usual name."""
