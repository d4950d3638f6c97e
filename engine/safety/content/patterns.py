"""The little language of the rules on commands (SPEC 3.5).

A pattern is words separated by spaces: the programs (`git`, alternatives with `|`), then the sub-commands that must
follow each other (globs, alternatives), then options: `--force|-f` must be there, `!--dry-run` must not, `@*x*` some
argument matches the glob, `--` a bare double dash. Options are recognised in clusters (`-fd`), with `=value`, and by
an unambiguous beginning. Case does not matter in words and globs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate
from functools import cache

from engine.model import Verdict
from engine.safety.content.calls import Call
from engine.safety.content.rule_files import PROGRAMS

BLOCK, ASK = Verdict.BLOCK, Verdict.ASK

_FIRST = {program: frozenset(options.split()) for program, options in PROGRAMS["values_first"].items()}
_ANYWHERE = {program: frozenset(options.split()) for program, options in PROGRAMS["values_anywhere"].items()}
_LATEST = 3
_UNABBREVIATED = frozenset(
    {"--force", "--delete", "--remove", "--prune", "--clean", "--reset", "--volume", "--replace"}
)
"""Options that are no beginning of a longer one."""


@dataclass(frozen=True)
class Pattern:
    """A pattern taken apart, without its programs."""

    words: tuple[re.Pattern[str], ...]
    needed: tuple[tuple[str, ...], ...]
    unwanted: tuple[tuple[str, ...], ...]
    globs: tuple[re.Pattern[str], ...]
    dashes: bool

    @classmethod
    def parse(cls, text: str) -> Pattern:
        rest = text.split()[1:]
        return cls(
            tuple(glob(word.split("|")) for word in rest if word[0] not in "-!@"),
            tuple(tuple(word.split("|")) for word in rest if word[0] == "-" and word != "--"),
            tuple(tuple(word[1:].split("|")) for word in rest if word[0] == "!"),
            tuple(glob(word[1:].split("|")) for word in rest if word[0] == "@"),
            "--" in rest,
        )

    def matches(self, call: Call, words: list[str]) -> bool:
        """Whether the call fits; `words` are its plain words; its program was compared before."""
        if self.words and not _follow_each_other(words, self.words, latest_position(call)):
            return False
        if self.dashes and "--" not in call.args:
            return False
        return (
            all(has_option(call.args, *options) for options in self.needed)
            and not any(has_option(call.args, *options) for options in self.unwanted)
            and all(any(pattern.match(word) for word in call.args) for pattern in self.globs)
        )


@cache
def _glob(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


def glob(alternatives: Iterable[str]) -> re.Pattern[str]:
    """A pattern for whole words that fit one of the globs, whatever their case."""
    return _glob("|".join(translate(alternative) for alternative in alternatives))


def latest_position(call: Call) -> int:
    """The last place among the plain words where a program's sub-commands may begin."""
    return 0 if call.base in _FIRST or call.base in _ANYWHERE else _LATEST


def plain_words(call: Call) -> list[str]:
    """The arguments that are no options, without the values of options that are known to take one."""
    first = _FIRST.get(call.base, frozenset())
    anywhere = _ANYWHERE.get(call.base, frozenset())
    words: list[str] = []
    skip = False
    for word in call.args:
        if skip:
            skip = False
        elif word[:1] != "-":
            words.append(word)
            if len(words) == 1:
                anywhere |= _ANYWHERE.get(f"{call.base} {word}", frozenset())
        elif word in anywhere or (not words and word in first):
            skip = True
    return words


def _follow_each_other(words: list[str], wanted: tuple[re.Pattern[str], ...], last: int) -> bool:
    """Whether the wanted words follow each other, beginning at most at place `last`."""
    length = len(wanted)
    for start in range(min(last, len(words) - length) + 1):
        if all(pattern.match(words[start + offset]) for offset, pattern in enumerate(wanted)):
            return True
    return False


MIN_ABBREVIATION = 6
"""Characters from which on a long option may be abbreviated, dashes included."""
MAX_CLUSTER = 8
"""Characters of short options written together, dash included: what is longer is a long option with one dash."""


def has_option(args: list[str], *options: str) -> bool:
    """Whether one of the options is among the arguments before `--`."""
    for word in args:
        if word[:1] != "-":
            continue
        if word == "--":
            return False
        for option in options:
            if word == option or word.startswith(option + "="):
                return True
            if option[:2] == "--":
                if len(word) >= MIN_ABBREVIATION and option.startswith(word) and word not in _UNABBREVIATED:
                    return True
            elif (
                len(option) == 2
                and option[1] in word[1:]
                and word[1:].isalpha()
                and option[1].isalpha()
                and len(word) <= MAX_CLUSTER
            ):
                return True
    return False
