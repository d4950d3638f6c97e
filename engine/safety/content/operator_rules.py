"""The operator's own rules on commands and prompts, of `[content]` in the settings (SPEC 3.5)."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache

from engine.frozen import frozen
from engine.safety.content.calls import Call
from engine.safety.content.rulebook import Pattern, compile_globs, plain_words
from engine.safety.content.rules import BLOCK, Hit

_PROMPT = "prompt:"
_UNPREDICTABLE = ("..", "$", "`", "()", "~", "{")


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

    def blocks(self, call: Call) -> Hit | None:
        """The objection by an operator's `block` that a call matches, None for none."""
        for text, pattern in self.block:
            if compile_globs(text.split()[0]).match(call.base) and pattern.matches(call, plain_words(call)):
                return BLOCK, "own-block", f"your rule: {text[:120]}"
        return None

    def allows(self, call: Call) -> bool:
        """Whether an operator's `allow` matches a call."""
        return any(_matches(words, [call.base, *call.args]) for words in self.allow)

    def blocks_prompt(self, text: str) -> Hit | None:
        """The objection by an operator's `block` that a prompt matches, None for none."""
        for pattern in self.blocked_prompts:
            if fnmatchcase(_normalised(text), pattern):
                return BLOCK, "own-block", f"your rule: {_PROMPT} {pattern[:120]}"
        return None

    def allows_prompt(self, text: str) -> bool:
        """Whether an operator's `allow` matches a prompt. Commands in the prompt are judged nevertheless."""
        return any(fnmatchcase(_normalised(text), pattern) for pattern in self.allowed_prompts)


NO_RULES = OwnRules()


@lru_cache(maxsize=16)
def own_rules(allow: tuple[str, ...], block: tuple[str, ...]) -> OwnRules:
    """The rules of the patterns in the settings, which are validated already."""
    if not allow and not block:
        return NO_RULES
    return OwnRules(
        tuple(tuple(text.split()) for text in allow if not _is_prompt(text)),
        tuple((text, Pattern.parse(text)) for text in block if not _is_prompt(text)),
        tuple(_normalised(text[len(_PROMPT) :]) for text in allow if _is_prompt(text)),
        tuple(_normalised(text[len(_PROMPT) :]) for text in block if _is_prompt(text)),
    )


def _is_prompt(text: str) -> bool:
    return text.lower().startswith(_PROMPT)


def _normalised(text: str) -> str:
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
    return not any(sign in word for sign in _UNPREDICTABLE) and fnmatchcase(word, pattern)
