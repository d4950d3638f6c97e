"""Judges what the words of a prompt ask for (SPEC 3.5), by the rules of `rules/prose.toml` over clauses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from engine.safety.content.rule_files import Hit, Rule, read_rules
from engine.safety.content.sentences import Clause

_IN_CODE = re.compile(
    r"\s+(?:from|in|of|out of|inside|under|below|on)\s+(?:the\s+|this\s+|our\s+"
    r"|that\s+)?(?:\./)?(?:\w+\s+)?(?:list|menu|enum|readme|docs?|config\w*|code|codebase|schema|tests?"
    r"|examples?|fixtures?|mocks?|page|ui|form|changelog|scripts?|module|package|class|function|comments?"
    r"|templates?|dropdown|sidebar|names?|diagram|build|dist|tmp|/tmp\S*|temp|target|node_modules|cache"
    r"|__pycache__|coverage|sandbox|imports?|type|output|query|response|sentence|title)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[\w'*.-]+")
_GAP = 6
"""Words between a verb and its object."""


@dataclass(frozen=True, kw_only=True)
class ProseRule(Rule):
    """A rule on prompts. `asks` are pairs: verbs that are asked for, and objects within a few words; `whole` is a
    pattern."""

    asks: Sequence[Sequence[str]] = ()
    whole: str = ""
    hint: str = ""
    """A cheap pattern that must match before `whole` is tried."""

    @cached_property
    def _parsed(self) -> tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]:
        return tuple(
            (
                re.compile(rf"\b(?:{verbs})\b[\s,]+", re.IGNORECASE),
                re.compile(rf"(?<![\w'])(?:{objects})(?!['\w-])(?:'s?(?=\s))?", re.IGNORECASE),
            )
            for verbs, objects in self.asks
        )

    @cached_property
    def _whole(self) -> re.Pattern[str] | None:
        return re.compile(self.whole, re.IGNORECASE) if self.whole else None

    def end_in(self, text: str) -> int:
        """Where in a clause the rule's words end; -1 when it does not ask for this."""
        for verbs, objects in self._parsed:
            for verb in verbs.finditer(text):
                if not _is_asked(text, verb.start()):
                    continue
                following = text[verb.end() : verb.end() + 200]
                for object_match in objects.finditer(following):
                    gap = _WORD.findall(following[: object_match.start()].lower())
                    if len(gap) > _GAP or not _vocabulary().harmless.isdisjoint(gap):
                        break
                    if not _is_code(following[object_match.end() :]):
                        return verb.end() + object_match.end()
        whole_match = None
        if self._whole is not None and (not self.hint or re.search(self.hint, text, re.IGNORECASE)):
            whole_match = self._whole.search(text)
        return whole_match.end() if whole_match else -1


def _is_asked(text: str, start: int) -> bool:
    """Whether a verb at `start` is asked for: it begins the clause, or follows one of the words that ask."""
    before = text[:start] if start <= 80 else f"-{text[start - 80 : start]}"
    return not before or _vocabulary().before.search(before) is not None


def _is_code(after: str) -> bool:
    """Whether the words behind an object say that it is code or text: "database migration", "… from the list"."""
    word = re.match(r"(?:'s)?\s+([\w-]+)", after)
    return (word is not None and word[1].lower() in _vocabulary().code_nouns) or bool(_IN_CODE.match(after))


@dataclass(frozen=True)
class _Vocabulary:
    """The words of `rules/prose.toml`."""

    rules: tuple[ProseRule, ...]
    before: re.Pattern[str]
    """The words before a verb of a request."""
    code_nouns: frozenset[str]
    """Words for code, not for the thing itself: "the database migration", "the production flag"."""
    harmless: frozenset[str]
    """Those, and what says that a thing is of no worth."""


@cache
def _vocabulary() -> _Vocabulary:
    tables = read_rules("prose.toml")
    nouns = frozenset(form for noun in tables["code_nouns"].split() for form in (noun, f"{noun}s", f"{noun}es"))
    return _Vocabulary(
        tuple(map(ProseRule.parse, tables["rule"])),
        re.compile(f"{tables['words']['asked']}$", re.IGNORECASE),
        nouns,
        nouns | frozenset(tables["placeholders"].split()),
    )


def rules() -> tuple[ProseRule, ...]:
    """All of them, those that block before those that ask."""
    return _vocabulary().rules


def judge_clause(clause: Clause) -> Hit | None:
    """The first rule that a clause breaks, blocks before asks; nothing when it only talks or says not to."""
    if not clause.asks:
        return None
    text = clause.text.replace("\u2019", "'")
    for rule in rules():
        end = rule.end_in(text)
        if end >= 0 and not 0 <= clause.negated_from <= end:
            return rule.hit
    return None
