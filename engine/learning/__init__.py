"""Learning from three sources (SPEC 5, 6, 8).

`candidates` are proposed changes in how agents act, drafted from sessions. `learnings` are statements that agents
learned in sessions, with scopes from team to global. `decisions` are the operator's decisions, and the models trained
on them.

Here is what the first two share: two texts may say the same only if they name the same things, and neither negates or
contradicts the other (keep and drop, staging and production), however near their words or embeddings are.

It may import memory, hierarchy, storage, settings, events, clock and model.
"""

from __future__ import annotations

import re
from functools import lru_cache

from engine.files import read_table

CACHE_SIZE = 20_000
"""Maximum number of texts in the caches below. They help because each text is read several times in a row."""

_NAMES = re.compile(
    r"[\w./-]*\w(?:::\w+)+|"  # a test, a C++ or Rust name
    r"(?:[\w.-]*/){2,}[\w.-]*|[\w.-]+/[\w-]*\.\w+|"  # a path
    r"(?<!\S)--?[a-z][\w-]*|"  # an option
    r"\b[A-Za-z_][\w-]*\.[A-Za-z]\w{0,5}\b|"  # a file, a dotted name
    r"\b\w*[a-z]_[a-z]\w*|\b[a-z]+[A-Z]\w*|"  # snake_case, camelCase
    r"\b\d+(?:\.\d+)+\b|\b\d{2,}\b",  # a version, a number of weight
)
"""Matches a name: of a file, a test, an option, an identifier, a version or a number."""

_NO_NAMES = frozenset({"", "e.g", "i.e"})
"""Matches of `_NAMES` that are no names."""

_NEGATION = re.compile(
    r"\b(?:not|never|no longer|don['’]?t|doesn['’]?t|didn['’]?t|isn['’]?t|aren['’]?t|won['’]?t|can['’]?t|cannot"
    r"|mustn['’]?t|shouldn['’]?t|avoid|avoids|without|stop|forbidden|refused|denied|instead of|rather than)\b",
    re.IGNORECASE,
)
"""Matches a word that negates a sentence."""

_OPPOSITES = [
    (frozenset(words.split()), frozenset(opposites.split()))
    for words, opposites in read_table(__file__, "opposites.toml")["pairs"]
]
"""Words and their opposites."""


@lru_cache(CACHE_SIZE)
def find_names(text: str) -> frozenset[str]:
    """The files, tests, options and numbers that a text names."""
    return frozenset(name.strip("./").lower() for name in _NAMES.findall(text)) - _NO_NAMES


@lru_cache(CACHE_SIZE)
def find_sides(text: str) -> tuple[int, ...]:
    """The side of a text in each pair of opposites: 1 or -1, or 0 for neither or both; the last pair is whether a text
    negates something. Texts on different sides of a pair are not the same."""
    words_of_text = set(re.findall(r"[a-z-]+", text.casefold()))
    sides = [bool(words_of_text & words) - bool(words_of_text & opposites) for words, opposites in _OPPOSITES]
    return (*sides, -1 if _NEGATION.search(text) else 1)


def may_be_same(text: str, other: str) -> bool:
    """Whether two texts name the same things, and neither negates or contradicts the other."""
    is_contrary = any(
        side * other_side < 0 for side, other_side in zip(find_sides(text), find_sides(other), strict=True)
    )
    return find_names(text) == find_names(other) and not is_contrary
