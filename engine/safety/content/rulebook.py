"""The rules on commands (SPEC 3.5): which of them a call breaks first. `rules/commands.toml` has them."""

from __future__ import annotations

import re
from functools import cache, lru_cache

from engine.model import Verdict
from engine.safety.content.calls import Call
from engine.safety.content.patterns import ASK, Pattern, Rule, glob, plain_words
from engine.safety.content.rule_files import read_rules


@cache
def rules() -> tuple[Rule, ...]:
    """All of them, in their order."""
    return tuple(
        Rule(**entry | {"verdict": Verdict(entry["verdict"])}) for entry in read_rules("commands.toml")["rule"]
    )


_Entry = tuple[Rule, str]


@cache
def _by_program() -> tuple[dict[str, list[_Entry]], list[tuple[re.Pattern[str], list[_Entry]]]]:
    """Patterns as text, by the program they name and by the glob that names their programs."""
    named: dict[str, list[_Entry]] = {}
    globs: dict[str, list[_Entry]] = {}
    for rule in rules():
        for text in rule.patterns:
            for program in text.partition(" ")[0].split("|"):
                table = globs if set(program) & set("*?[") else named
                table.setdefault(program, []).append((rule, text))
    return named, [(glob([program]), entries) for program, entries in globs.items()]


@lru_cache(maxsize=4096)
def _entries(program: str) -> tuple[tuple[Rule, Pattern], ...]:
    """The patterns for one program, blocks before asks; taken apart when the program is first met."""
    named, globs = _by_program()
    found = list(named.get(program, ()))
    for fits, entries in globs:
        if fits.match(program):
            found += entries
    return tuple((rule, Pattern.of(text)) for rule, text in sorted(found, key=lambda entry: entry[0].verdict is ASK))


def find_rule(call: Call) -> Rule | None:
    """The first rule a call breaks, blocks before asks."""
    entries = _entries(call.base[:60])
    if not entries:
        return None
    words = plain_words(call)
    return next((rule for rule, pattern in entries if pattern.matches(call, words)), None)
