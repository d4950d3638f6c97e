"""The rules on commands and the language of their patterns (SPEC 3.5). The built-in rules are in
`rules/commands.toml`, the operator's own in `[content]` of the settings.

A pattern is words separated by spaces: the programs (`git`, alternatives with `|`), then the sub-commands that must
follow each other (globs, alternatives), then options. `--force|-f` must be there, `!--dry-run` must not, `@*x*` wants
an argument that matches the glob, `--` a bare double dash. Options are recognised in clusters (`-fd`), with `=value`,
and by an unambiguous beginning. Case does not matter in words and globs.

If no built-in rule names a program, the verdict is `ask` if its sub-command is a verb that destroys something.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import cache, lru_cache
from itertools import takewhile

from engine.frozen import frozen, frozen_kw_only
from engine.safety.content import (
    ASK,
    BLOCK,
    RUNNERS,
    ContentRule,
    Objection,
    read_option_lists,
    read_rules,
    read_word_list,
)
from engine.safety.content.calls import Call

_VALUED_BEFORE_SUBCOMMAND = read_option_lists("values_first")
_VALUED_ANYWHERE = read_option_lists("values_anywhere")
_LATEST_SUBCOMMAND = 3
"""The last index among the plain words at which the sub-command of other programs may begin. Some of the words before
it may be values of options."""

_PROGRAMS_WITHOUT_ABBREVIATIONS = read_word_list("unabbreviated")


@dataclass(frozen=True)
class Pattern:
    """A parsed pattern, without its programs."""

    words: tuple[re.Pattern[str], ...]
    """The sub-commands, which must follow each other."""
    needed: tuple[tuple[str, ...], ...]
    """Alternative options, of which each time one must be there."""
    unwanted: tuple[tuple[str, ...], ...]
    """Alternative options, of which none may be there."""
    globs: tuple[re.Pattern[str], ...]
    """Each must match an argument."""
    dashes: bool
    """Whether a bare `--` must be there."""

    @classmethod
    def parse(cls, text: str) -> Pattern:
        rest = text.split()[1:]
        return cls(
            tuple(compile_globs(word) for word in rest if word[0] not in "-!@"),
            tuple(tuple(word.split("|")) for word in rest if word[0] == "-" and word != "--"),
            tuple(tuple(word[1:].split("|")) for word in rest if word[0] == "!"),
            tuple(compile_globs(word[1:]) for word in rest if word[0] == "@"),
            "--" in rest,
        )

    def matches(self, call: Call, words: list[str]) -> bool:
        """Whether the arguments of a call match. `words` are its plain words. Its program was compared before."""
        has_known_values = call.base in _VALUED_BEFORE_SUBCOMMAND or call.base in _VALUED_ANYWHERE
        latest = 0 if has_known_values else _LATEST_SUBCOMMAND
        if self.words and not _follow_each_other(words, self.words, latest):
            return False
        if self.dashes and "--" not in call.args:
            return False
        return (
            all(has_option(call.args, *options) for options in self.needed)
            and not any(has_option(call.args, *options) for options in self.unwanted)
            and all(any(pattern.match(word) for word in call.args) for pattern in self.globs)
        )


@cache
def compile_globs(globs: str) -> re.Pattern[str]:
    """A regular expression for whole words that match one of the `globs`, which are separated by `|`. Case does not
    matter."""
    return re.compile("|".join(map(translate, globs.split("|"))), re.IGNORECASE)


def find_plain_words(call: Call) -> list[str]:
    """The arguments that are not options and not values of options that are known to take one."""
    before_subcommand = _VALUED_BEFORE_SUBCOMMAND.get(call.base, frozenset())
    anywhere = _VALUED_ANYWHERE.get(call.base, frozenset())
    words: list[str] = []
    skip = False
    for word in call.args:
        if skip:
            skip = False
        elif word[:1] != "-":
            words.append(word)
            if len(words) == 1:
                anywhere |= _VALUED_ANYWHERE.get(f"{call.base} {word}", frozenset())
        elif word in anywhere or (not words and word in before_subcommand):
            skip = True
    return words


def _follow_each_other(words: list[str], wanted: tuple[re.Pattern[str], ...], last: int) -> bool:
    """Whether the wanted words follow each other, beginning at index `last` or before."""
    return any(
        all(pattern.match(words[start + offset]) for offset, pattern in enumerate(wanted))
        for start in range(min(last, len(words) - len(wanted)) + 1)
    )


MIN_ABBREVIATION = 6
"""Minimum number of characters of an abbreviated long option, dashes included."""

MAX_CLUSTER = 8
"""Maximum number of characters of short options written together, dash included. A longer word is a long option with
one dash."""


def has_option(args: list[str], *options: str) -> bool:
    """Whether one of the options is among the arguments before `--`."""
    before_dashes = takewhile(lambda word: word != "--", args)
    return any(word[:1] == "-" and _is_option(word, option) for word in before_dashes for option in options)


def _is_option(word: str, option: str) -> bool:
    """Whether a word is this option: as it is, with a value, abbreviated, or in a cluster of short options."""
    if word == option or word.startswith(f"{option}="):
        return True
    if option[:2] == "--":
        return len(word) >= MIN_ABBREVIATION and option.startswith(word) and word not in _PROGRAMS_WITHOUT_ABBREVIATIONS
    if len(option) != 2 or len(word) > MAX_CLUSTER:
        return False
    return option[1] in word[1:] and option[1].isalpha() and word[1:].isalpha()


@frozen_kw_only
class CommandRule(ContentRule):
    """A rule on commands. A command breaks it if it matches one of the patterns."""

    patterns: Sequence[str]


@cache
def load_command_rules() -> tuple[CommandRule, ...]:
    """All rules on commands, in the order of the file."""
    return tuple(map(CommandRule.parse, read_rules("commands.toml")["rule"]))


_Entry = tuple[ContentRule, str]
"""A rule, and one of its patterns as text."""


@cache
def _group_by_program() -> tuple[dict[str, list[_Entry]], list[tuple[re.Pattern[str], list[_Entry]]]]:
    """The unparsed patterns: by the name of their program, and by the glob for the names of their programs."""
    named: dict[str, list[_Entry]] = {}
    globs: dict[str, list[_Entry]] = {}
    for rule in load_command_rules():
        for text in rule.patterns:
            for program in text.partition(" ")[0].split("|"):
                table = globs if set(program) & set("*?[") else named
                table.setdefault(program, []).append((rule, text))
    return named, [(compile_globs(program), entries) for program, entries in globs.items()]


@lru_cache(maxsize=4096)
def _parse_entries(program: str) -> tuple[tuple[ContentRule, Pattern], ...]:
    """The patterns for one program, blocks before asks. They are parsed when they are first needed."""
    named, globs = _group_by_program()
    matching = list(named.get(program, ()))
    for pattern, entries in globs:
        if pattern.match(program):
            matching += entries
    matching.sort(key=lambda entry: entry[0].verdict is ASK)
    return tuple((rule, Pattern.parse(text)) for rule, text in matching)


def judge(call: Call) -> Objection | None:
    """The objection by the first rule that a call breaks, blocks before asks; for a program without rules, by its
    sub-command."""
    words = find_plain_words(call)
    matching = (rule.objection for rule, pattern in _parse_entries(call.base[:60]) if pattern.matches(call, words))
    return next(matching, None) or _judge_unlisted(call.base, words)


_DESTROYING_VERBS = frozenset(verb for verb in read_word_list("destroying_verbs") if "*" not in verb)
_VERB_GLOBS = compile_globs("|".join(sorted(verb for verb in read_word_list("destroying_verbs") if "*" in verb)))
_LAST_VERB_WORD = 4
"""Maximum number of plain words of an unlisted program that are read."""

_TEXT_PROGRAMS = read_word_list("text_programs")
_TARGET_RUNNERS = read_word_list("target_runners")


def _judge_unlisted(base: str, words: Sequence[str]) -> Objection | None:
    """Ask about a destroying verb among the first words of a program that takes sub-commands."""
    if not base or base in _TEXT_PROGRAMS or base[0] in "$-":
        return None
    runs_command = RUNNERS.get(base, {})
    for word in words[:_LAST_VERB_WORD]:
        lower = word.lower()
        if lower in runs_command:
            return None  # a command follows, which is judged as a call of its own
        if lower in _DESTROYING_VERBS or (
            base not in _TARGET_RUNNERS
            and len(lower) < 40
            and "/" not in lower
            and "." not in lower
            and _VERB_GLOBS.match(lower)
        ):
            return Objection(ASK, "unlisted", f"{base} {lower[:40]}: its name says that it destroys something")
    return None


_PROMPT_PREFIX = "prompt:"
"""The beginning of an operator's pattern for prompts."""

_UNPREDICTABLE_PARTS = ("..", "$", "`", "()", "~", "{")
"""Parts of a word that the shell or the program replaces, so that no glob may match them."""


@frozen
class OwnRules:
    """The operator's own rules (`[content]` in the settings): commands that are always blocked, and commands that pass
    although a rule stops them. Both are compared with each program that really runs, so wrappers hide nothing.

    A `block` pattern matches whatever else is in the command. An `allow` pattern must match all words of a command, so
    that nothing can hide behind it: `*` stands for anything within one word, a last `**` for any further words.
    `prompt: …` is a pattern for the words of a whole prompt.
    """

    allow: tuple[tuple[str, ...], ...] = ()
    block: tuple[tuple[str, Pattern], ...] = ()
    allowed_prompts: tuple[str, ...] = ()
    blocked_prompts: tuple[str, ...] = ()

    def find_block(self, call: Call) -> Objection | None:
        """The objection by an operator's `block` that a call matches, None for none."""
        for text, pattern in self.block:
            if compile_globs(text.split()[0]).match(call.base) and pattern.matches(call, find_plain_words(call)):
                return Objection(BLOCK, "own-block", f"your rule: {text[:120]}")
        return None

    def allows(self, call: Call) -> bool:
        """Whether an operator's `allow` matches a call."""
        return any(_matches(words, [call.base, *call.args]) for words in self.allow)

    def find_prompt_block(self, text: str) -> Objection | None:
        """The objection by an operator's `block` that a prompt matches, None for none."""
        for pattern in self.blocked_prompts:
            if fnmatchcase(_normalise_prompt(text), pattern):
                return Objection(BLOCK, "own-block", f"your rule: {_PROMPT_PREFIX} {pattern[:120]}")
        return None

    def allows_prompt(self, text: str) -> bool:
        """Whether an operator's `allow` matches a prompt. Commands in the prompt are judged nevertheless."""
        return any(fnmatchcase(_normalise_prompt(text), pattern) for pattern in self.allowed_prompts)


NO_RULES = OwnRules()
"""No rules of the operator."""


@lru_cache(maxsize=16)
def make_own_rules(allow: tuple[str, ...], block: tuple[str, ...]) -> OwnRules:
    """The rules of the patterns in the settings, which are validated already."""
    if not allow and not block:
        return NO_RULES
    return OwnRules(
        tuple(tuple(text.split()) for text in allow if not _is_prompt(text)),
        tuple((text, Pattern.parse(text)) for text in block if not _is_prompt(text)),
        tuple(_normalise_prompt(text[len(_PROMPT_PREFIX) :]) for text in allow if _is_prompt(text)),
        tuple(_normalise_prompt(text[len(_PROMPT_PREFIX) :]) for text in block if _is_prompt(text)),
    )


def _is_prompt(text: str) -> bool:
    return text.lower().startswith(_PROMPT_PREFIX)


def _normalise_prompt(text: str) -> str:
    return " ".join(text[:4000].lower().split())


def _matches(pattern: tuple[str, ...], words: list[str]) -> bool:
    if pattern[-1] == "**":
        pattern, words = pattern[:-1], words[: len(pattern) - 1]
    return len(words) == len(pattern) and all(
        _matches_word(expected, word) for expected, word in zip(pattern, words, strict=True)
    )


def _matches_word(pattern: str, word: str) -> bool:
    if pattern == word:
        return True
    if not set(pattern) & set("*?[") or (word[:1] == "-") != (pattern[:1] == "-"):
        return False
    return not any(sign in word for sign in _UNPREDICTABLE_PARTS) and fnmatchcase(word, pattern)
