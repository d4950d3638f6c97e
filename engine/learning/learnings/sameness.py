"""When two entries say the same (SPEC 6.2). Pure.

What rules found carries the name of what it is `about`; it is the same when that is. All else is compared by what it
says: by meaning where there are vectors, by its words, exactly, where there are none. Nearness of meaning is blind for
three things, so they are looked at first: entries that name different files, tests, options or numbers, entries of
which one says not to do what the other says, and entries of which one says a thing where the other says its opposite
(keep and drop, staging and production) are never the same, however near.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from engine.model import LearningEntry, LearningKind, LearningType, Trust
from engine.model.lessons import folded

THRESHOLD = 0.8
"""Two entries are the same from this cosine on (SPEC 6.2)."""

DISTINCT_SESSIONS = 3
"""In so many sessions a thing must have come up before it becomes the project's (SPEC 6.2)."""

KEPT = 20_000
"""Texts of which it is remembered what they name: each is looked at several times in a row."""

_NAMES = re.compile(
    r"[\w./-]*\w(?:::\w+)+|"  # a test, a C++ or Rust name
    r"(?:[\w.-]*/){2,}[\w.-]*|[\w.-]+/[\w-]*\.\w+|"  # a path
    r"(?<!\S)--?[a-z][\w-]*|"  # an option
    r"\b[A-Za-z_][\w-]*\.[A-Za-z]\w{0,5}\b|"  # a file, a dotted name
    r"\b\w*[a-z]_[a-z]\w*|\b[a-z]+[A-Z]\w*|"  # snake_case, camelCase
    r"\b\d+(?:\.\d+)+\b|\b\d{2,}\b",  # a version, a number of weight
)
_WORDS = frozenset({"", "e.g", "i.e"})
_NOT = re.compile(
    r"\b(?:not|never|no longer|don['’]?t|doesn['’]?t|didn['’]?t|isn['’]?t|aren['’]?t|won['’]?t|can['’]?t|cannot"
    r"|mustn['’]?t|shouldn['’]?t|avoid|avoids|without|stop|forbidden|refused|denied|instead of|rather than)\b",
    re.IGNORECASE,
)


_OPPOSITES: tuple[tuple[str, str], ...] = (
    ("keep keeps kept retain", "drop drops dropped remove removes removed delete deletes discard discards abandon"),
    ("staging test-environment", "production prod live"),
    ("tab tabs", "space spaces"),
    ("before first", "after afterwards last"),
    ("enable enables enabled on", "disable disables disabled off"),
    ("allow allows allowed permit permits accept accepts", "deny denies forbid forbids refuse refuses reject rejects"),
    ("add adds added insert include includes", "exclude excludes omit omits strip strips"),
    ("sync synchronous blocking", "async asynchronous nonblocking"),
    ("local locally offline", "remote remotely online"),
    ("old former legacy", "new newest modern"),
    ("increase raise raises grow", "decrease lower lowers shrink reduce"),
    ("public exported", "private internal hidden"),
    ("read reads reading", "write writes writing"),
    ("start starts begin open opens", "stop stops end close closes"),
    ("client frontend", "server backend"),
    ("minimum least min", "maximum most max"),
    ("short brief", "long verbose"),
    ("single one", "multiple many several"),
    ("required mandatory must", "optional may"),
    ("true yes", "false no"),
    ("upper uppercase", "lowercase"),
    ("merge merges", "rebase rebases"),
    ("automatic automatically", "manual manually hand"),
    ("ascending", "descending"),
    ("net", "gross"),
)
"""What says the one thing, and what its opposite."""

AXES = len(_OPPOSITES)
_SIDES = {
    word: (axis, side)
    for axis, pair in enumerate(_OPPOSITES)
    for side, words in zip((1, -1), pair, strict=True)
    for word in words.split()
}


@dataclass(frozen=True, slots=True)
class Kin:
    """Entries can only be the same within one of these."""

    kind: LearningKind
    type: LearningType
    about: str
    names: frozenset[str]
    negative: bool
    quoted: bool


def kin(entry: LearningEntry) -> Kin:
    """Which entries this one could be the same as. Quotes are counted with quotes only: a tool that repeats what the
    operator says adds no weight to it, and takes none away."""
    quoted = entry.trust is Trust.QUOTED
    if entry.about:
        return Kin(entry.kind, entry.type, entry.about, frozenset(), False, quoted)
    return Kin(entry.kind, entry.type, "", names(entry.text), _negative(entry.text), quoted)


@lru_cache(KEPT)
def _negative(text: str) -> bool:
    return _NOT.search(text) is not None


@lru_cache(KEPT)
def names(text: str) -> frozenset[str]:
    """What a text names that is no ordinary word: files, tests, options, numbers."""
    return frozenset(one.strip("./").lower() for one in _NAMES.findall(text)) - _WORDS


@lru_cache(KEPT)
def sides(text: str) -> tuple[int, ...]:
    """On which side of each pair of opposites a text is: 1 or -1, 0 for neither or both. Two that are on different
    sides of any are not the same."""
    found: dict[int, set[int]] = {}
    for word in re.findall(r"[a-z-]+", text.casefold()):
        if word in _SIDES:
            axis, side = _SIDES[word]
            found.setdefault(axis, set()).add(side)
    return tuple(sum(found.get(axis, ())) for axis in range(AXES))


def ordered(entries: Iterable[LearningEntry]) -> list[LearningEntry]:
    """In an order that follows from what they are, not from how they came."""
    return sorted(entries, key=lambda one: (one.kind.value, one.type.value, one.about, folded(one.text), one.id))
