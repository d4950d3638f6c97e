"""A rule of the content filter and its little language (SPEC 3.5).

A pattern is words separated by spaces: the programs (`git`, alternatives with `|`), then the sub-commands that must
follow each other (globs, alternatives), then options: `--force|-f` must be there, `!--dry-run` must not, `@*x*` some
argument matches the glob. Options are recognised in clusters (`-fd`), with `=value`, and by an unambiguous beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from engine.safety.content.calls import Call
from engine.values import Verdict

BLOCK, ASK = Verdict.BLOCK, Verdict.ASK


@dataclass(frozen=True)
class Rule:
    """One rule: `stops` and `passes` are commands it must and must not match."""

    id: str
    verdict: Verdict
    reason: str
    patterns: tuple[str, ...]
    stops: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()

    @cached_property
    def parsed(self) -> tuple[Pattern, ...]:
        """The patterns, taken apart once."""
        return tuple(Pattern.of(text) for text in self.patterns)


@dataclass(frozen=True)
class Pattern:
    """A pattern taken apart."""

    programs: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]
    needed: tuple[tuple[str, ...], ...]
    unwanted: tuple[tuple[str, ...], ...]
    globs: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, text: str) -> Pattern:
        first, *rest = text.split()
        return cls(
            tuple(first.split("|")),
            tuple(tuple(word.split("|")) for word in rest if word[0] not in "-!@"),
            tuple(tuple(word.split("|")) for word in rest if word[0] == "-"),
            tuple(tuple(word[1:].split("|")) for word in rest if word[0] == "!"),
            tuple(tuple(word[1:].split("|")) for word in rest if word[0] == "@"),
        )

    def matches(self, call: Call) -> bool:
        """Does the call fit?"""
        if not any(fnmatchcase(call.base, program) for program in self.programs):
            return False
        if self.words and not _follow(plain_words(call), self.words, 0 if call.base == "git" else 3):
            return False
        if not all(has_option(call.args, *options) for options in self.needed):
            return False
        if any(has_option(call.args, *options) for options in self.unwanted):
            return False
        return all(any(fnmatchcase(word.lower(), glob) for word in call.args for glob in globs) for globs in self.globs)


_GIT_VALUES = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"})


def plain_words(call: Call) -> list[str]:
    """The arguments that are no options; for git without the values of its global options."""
    words: list[str] = []
    skip = False
    for word in call.args:
        if skip:
            skip = False
        elif call.base == "git" and not words and word in _GIT_VALUES:
            skip = True
        elif not word.startswith("-"):
            words.append(word)
    return words


def _follow(words: list[str], wanted: tuple[tuple[str, ...], ...], latest: int) -> bool:
    """Do the wanted words follow each other, beginning at most at place `latest`?"""
    for start in range(min(latest, len(words) - len(wanted)) + 1):
        if all(
            any(fnmatchcase(words[start + offset].lower(), one) for one in options)
            for offset, options in enumerate(wanted)
        ):
            return True
    return False


def has_option(args: list[str], *options: str) -> bool:
    """Is one of the options among the arguments before `--`?"""
    for word in args:
        if word == "--":
            return False
        for option in options:
            if word == option or word.startswith(option + "="):
                return True
            if option.startswith("--") and word.startswith("--") and len(word) >= 6 and option.startswith(word):
                return True
            short = len(option) == 2 and option[0] == "-" and option[1].isalpha()
            if short and word[:1] == "-" and word[1:2] != "-" and word[1:].isalpha() and option[1] in word[1:]:
                return len(word) <= 8
    return False
