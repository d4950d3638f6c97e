"""The rules on commands as data, by topic (SPEC 3.5). Each rule's examples are tests; `patterns` tells the language.

`find_rule` looks a call up. A rule that blocks goes before one that asks. May import `patterns` only.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from engine.safety.content.calls import Call
from engine.safety.content.patterns import ASK, Pattern, Rule, glob, plain_words
from engine.safety.content.rulebook import cloud, clusters, code_hosts, data, git, machine, outward, services

RULES: tuple[Rule, ...] = (
    *git.RULES,
    *code_hosts.RULES,
    *machine.RULES,
    *clusters.RULES,
    *cloud.RULES,
    *data.RULES,
    *services.RULES,
    *outward.RULES,
)

_Entry = tuple[Rule, str]


@cache
def _by_program() -> tuple[dict[str, list[_Entry]], list[tuple[re.Pattern[str], list[_Entry]]]]:
    """Patterns as text, by the program they name and by the glob that names their programs."""
    named: dict[str, list[_Entry]] = {}
    globs: dict[str, list[_Entry]] = {}
    for rule in RULES:
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
