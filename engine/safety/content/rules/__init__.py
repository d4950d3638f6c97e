"""Reads the rules and word lists of the content filter from the TOML files of this folder (SPEC 3.5)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from engine.files import read_table
from engine.frozen import frozen_kw_only
from engine.model import Verdict


class Objection(NamedTuple):
    """The objection to a text."""

    verdict: Verdict
    rule: str
    """The id of the rule that the text breaks."""
    reason: str


BLOCK, ASK = Verdict.BLOCK, Verdict.ASK
STRICTNESS = {Verdict.ALLOW: 0, Verdict.ASK: 1, Verdict.BLOCK: 2}


def find_strictest(objections: Iterable[Objection | None]) -> Objection | None:
    """The objection with the strictest verdict; of several, the first."""
    return max(filter(None, objections), key=lambda objection: STRICTNESS[objection.verdict], default=None)


_WORD = re.compile(r"<(\w+)>")


@frozen_kw_only
class Rule:
    """The fields of every rule. `stops` are example texts that it must stop, `passes` texts that it must not stop."""

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
    def objection(self) -> Objection:
        """The objection to a text that breaks this rule."""
        return Objection(self.verdict, self.id, self.reason)


def read_rules(name: str) -> dict[str, Any]:
    """The tables of a file. Each `<word>` is replaced by the text of that name in the file's table `words`. A list
    there stands for its alternatives."""
    tables = read_table(__file__, name)
    words: dict[str, str] = {}
    for word, text in tables.get("words", {}).items():
        words[word] = _fill(text if isinstance(text, str) else "|".join(text), words)
    return {key: _fill(value, words) for key, value in tables.items()}


def _fill(value: Any, words: dict[str, str]) -> Any:
    if isinstance(value, str):
        return _WORD.sub(lambda match: words.get(match[1], match[0]), value)
    if isinstance(value, list):
        return [_fill(item, words) for item in value]
    return {key: _fill(item, words) for key, item in value.items()} if isinstance(value, dict) else value


_PROGRAMS = read_rules("programs.toml")


def read_word_list(name: str) -> frozenset[str]:
    """The words of a list in `programs.toml`."""
    return frozenset(_PROGRAMS[name].split())


def read_option_lists(name: str) -> dict[str, frozenset[str]]:
    """By program: the options in a table of `programs.toml`."""
    return {program: frozenset(options.split()) for program, options in _PROGRAMS[name].items()}


SHELLS = read_word_list("shells")
INTERPRETERS = read_option_lists("interpreters")
"""By interpreter: the options whose value is program text."""
WRAPPERS = {
    program: (frozenset(options.split()), skipped) for program, (options, skipped) in _PROGRAMS["wrappers"].items()
}
"""By program: its options that take a value, and the number of plain words before the command that it runs."""
RUNNERS: dict[str, dict[str, int]] = _PROGRAMS["runners"]
"""By program and sub-command: the number of plain words between the sub-command and the command that it runs."""
SPELLINGS: dict[str, str] = _PROGRAMS["spellings"]
"""The usual name of a program, by its other names."""
