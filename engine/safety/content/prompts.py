"""Judges a prompt by what it asks for, and by the commands and encoded texts in it (SPEC 3.5).

A clause asks for something or only talks about it. "Delete the production database" asks. "Write a test that rm -rf is
refused", "never force push" and "why does it drop the table?" only talk. Code in backticks or fences and quoted text
are removed from the clause and stored beside it. The rules on clauses are in `rules/prose.toml`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import islice
from typing import Any

from engine.frozen import frozen, frozen_kw_only
from engine.safety.content.commands import judge_command
from engine.safety.content.data_flow import decode_base64
from engine.safety.content.rulebook import OwnRules
from engine.safety.content.rules import ASK, Objection, Rule, find_strictest, read_rules
from engine.safety.content.shell import MAX_COMMAND_LINE_CHARS

MAX_COMMAND_CHARS = 12_000
"""Maximum number of characters of commands in one prompt that are judged; if there are more, the verdict is `ask`."""


@frozen
class Clause:
    """One clause. Its `text` has no polite beginning, and a space in place of each quotation."""

    text: str
    asks: bool
    code: tuple[str, ...]
    """Its parts between backticks or fences."""
    quoted: tuple[str, ...]
    """Its parts between quotation marks."""
    carries: bool
    """Whether the clause only asks to do what it quotes, like "run this:"."""
    negated_from: int | None
    """The index in `text` where a negation ends; verbs after it are not requests. None without a negation."""

    @property
    def is_request(self) -> bool:
        """Whether the clause asks for something, and forbids nothing."""
        return self.asks and self.negated_from is None


def judge_prompt(text: str, own: OwnRules, *, is_quoted: bool = False) -> Objection | None:
    """The objection to a prompt after `fold`, None for none. `is_quoted` is true for a text within another prompt."""
    clauses, complete = _split_clauses(text)
    return find_strictest(
        [
            own.find_prompt_block(text),
            None
            if complete
            else Objection(ASK, "too-long", "more sentences than can be checked: it needs your decision"),
            *_judge_requests(clauses, own, words_allowed=own.allows_prompt(text), is_quoted=is_quoted),
            *_judge_commands(_find_commands(text, clauses), own),
        ]
    )


def _judge_requests(
    clauses: list[Clause], own: OwnRules, *, words_allowed: bool, is_quoted: bool
) -> Iterator[Objection | None]:
    """The objections to the words of each clause, and to the prompts that it quotes."""
    for clause in dict.fromkeys(clauses):
        if not words_allowed:
            yield _judge_clause(clause)
        if clause.carries and clause.is_request and not is_quoted:
            for quotation in (*clause.code, *clause.quoted):
                if not _COMMAND_AT_START.match(quotation):
                    yield judge_prompt(quotation, own, is_quoted=True)


def _judge_clause(clause: Clause) -> Objection | None:
    """The objection by the first rule that a clause breaks, blocks before asks. None if it breaks none, only talks, or
    forbids."""
    if not clause.asks:
        return None
    text = clause.text.replace("\u2019", "'")
    for rule in load_prompt_rules():
        end = rule.find_end(text)
        if end is not None and (clause.negated_from is None or end < clause.negated_from):
            return rule.objection
    return None


def _judge_commands(commands: Iterable[str], own: OwnRules) -> Iterator[Objection | None]:
    remaining = MAX_COMMAND_CHARS
    for command in commands:
        remaining -= len(command) + 20
        if remaining < 0:
            yield Objection(ASK, "too-long", "more commands than can be checked: it needs your decision")
            return
        yield judge_command(command, 1, own)


# -- commands in a prompt


_PLAIN_NAMES = r"""
    rm sudo git dd mkfs\S* curl wget chmod chown kubectl oc docker podman docker-compose terraform tofu pulumi helm
    aws gcloud gsutil psql mysql mongo mongosh sqlite3 redis-cli dropdb npm npx yarn pnpm pip cargo gh glab rsync
    rclone restic borg systemctl iptables wipefs fdisk parted zpool zfs lvremove crontab userdel bash zsh sh python3?
    perl ruby eval xargs heroku flyctl kafka-topics rabbitmqctl etcdctl nomad consul vagrant ansible twine unlink
    rmdir rimraf launchctl diskutil hdfs doppler wrangler az env nohup ssh xxd base64
"""
_PLAIN_PROGRAMS = "|".join(_PLAIN_NAMES.split())
_ENGLISH_NAMES = """
    find kill killall shred format shutdown reboot halt make vault cd echo cat node op truncate mv cp tee nats del rd
"""
_ENGLISH_PROGRAMS = "|".join(_ENGLISH_NAMES.split())
"""Programs whose names are also English words. They are commands only if options or paths follow, which no sentence
has."""
_ENGLISH_PROGRAMS_WITHIN = "find|kill|vault"
"""Those of `_ENGLISH_PROGRAMS` that are searched in the middle of a clause too."""
_COMMAND_AT_START = re.compile(
    r"^(?:(?:run|execute|type|do|use|call|invoke|launch|issue|try|enter|paste)\s+)?(?:\$\s+)?"
    rf"((?:\S{{0,60}}/)?(?:{_PLAIN_PROGRAMS}|{_ENGLISH_PROGRAMS})\s+[^\n]{{1,4000}})",
    re.IGNORECASE,
)
"""A text that begins with a program: "run git push", "/usr/bin/rm -rf build"."""
_COMMAND_WITHIN = re.compile(
    rf"(?:^|[\s(=:|&])((?:/\S{{0,60}}/)?(?:{_PLAIN_PROGRAMS}|{_ENGLISH_PROGRAMS_WITHIN})\s+[^\n]{{1,4000}})"
)
"""A program in the middle of a text: "free some space with rm -rf build"."""
_OPTION_OR_PATH = re.compile(r"(?:^|\s)(?:-{1,2}\w|[/~.*$][\w/*.{(]|[/~*]$|[/~*]\s|\w+=)|://|[|;`]|\S:\w|\w:$")
"""What commands have and sentences have not: an option, path, URL, assignment or pipe: "-rf", "~/src", "of=disk"."""
_SENTENCE_WORDS = re.compile(
    r"\b(?:fails?|failing|failed|is|are|was|were|does|doesn't|takes|took|hangs?|broke|breaks|step|steps|errors?|should|"
    r"because|when|why|instead|could|would|history|command|docs)\b",
    re.IGNORECASE,
)
"""Words of sentences about a program: "git push fails"."""
_STARTS_AS_ENGLISH = re.compile(rf"^(?:{_ENGLISH_PROGRAMS})\b", re.IGNORECASE)
_AWAITS_SCRIPT = re.compile(r"\s-\w*c$")
"""A command that ends before its script: "sh -c"."""
_ENCODED = re.compile(r"\b[A-Za-z0-9+/]{12,4000}={0,2}")
"""A word that may be a text in base64."""


def _find_commands(text: str, clauses: list[Clause]) -> dict[str, None]:
    """The texts in a prompt that may be commands: the prompt itself, its code, and what its encoded texts say."""
    commands: list[str] = []
    if _COMMAND_AT_START.match(text.strip()) and _OPTION_OR_PATH.search(text[:4000]):
        commands.append(text.strip()[:MAX_COMMAND_LINE_CHARS])
    for clause in clauses:
        if clause.is_request:
            commands += [*clause.code, *filter(_COMMAND_AT_START.match, clause.quoted), *_find_bare_commands(clause)]
    decoded_texts = (decode_base64(match[0]) for match in islice(_ENCODED.finditer(text), 10))
    commands += [decoded for decoded in decoded_texts if decoded and decoded.isprintable()]
    return dict.fromkeys(commands)


def _find_bare_commands(clause: Clause) -> list[str]:
    """Commands among the words of a clause: at its beginning, or later if they have options or paths, which no sentence
    has."""
    start = _COMMAND_AT_START.match(clause.text)
    if start is not None:
        has_option = bool(_OPTION_OR_PATH.search(start[1]))
        is_english = bool(_STARTS_AS_ENGLISH.match(start[1]))
        if has_option or not (is_english or _SENTENCE_WORDS.search(start[1])):
            return [_restore_script(start[1], clause)]
        return []
    within = _COMMAND_WITHIN.search(clause.text)
    if within is not None and _OPTION_OR_PATH.search(within[1]):
        return [_restore_script(within[1], clause)]
    return []


def _restore_script(command: str, clause: Clause) -> str:
    """A command that ends with `-c`, with its script: it was cut out of the clause as a quoted text."""
    if clause.quoted and _AWAITS_SCRIPT.search(command):
        return f"{command} {shlex.quote(clause.quoted[0])}"
    return command


# -- clauses


MAX_CLAUSES = 300
"""Maximum number of clauses of one prompt that are read."""
MAX_QUOTED_PIECES = 100
"""Maximum number of pieces of code and quoted text of one prompt that are read."""
MAX_SENTENCE_CHARS = 4000

_FENCED_CODE = re.compile(r"```[a-zA-Z]*\n(.{0,8000}?)```", re.DOTALL)
_CODE_IN_TICKS = re.compile(r"`([^`\n]{1,1000})`")
_QUOTED_TEXT = re.compile(r"\"([^\"\n]{1,600})\"|(?:(?<=^)|(?<=[\s(:]))'([^'\n]{2,600})'(?=$|[\s.,;:!?)])")
_BLANKS = re.compile(r"[ \t]{2,}")
_QUOTATION_MARK = re.compile("\ue000(\\d{1,4})\ue001")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+|;\s*")
"""What is between sentences."""
_CLAUSE_SEPARATOR = re.compile(
    r"(,\s+(?:(?:and|but|or|so|also)\s+)?(?:then\s+)?|\s+(?:and\s+then|and\s+also|then|and|but|or|nor|before|&)\s+|"
    r":\s+|\s[-\u2014]\s)",
    re.IGNORECASE,
)
"""What is between the clauses of a sentence: ", and then " in "build it, and then push it"."""
_LIST_MARK = re.compile(r"^\s*(?:[-*\u2022>]\s+|\d{1,3}[.)]\s+|\[[ xX]?\]\s+|#{1,6}\s+|\$\s+)+")
"""The mark before an item of a list or a heading: "- ", "2. ", "[ ] "."""
_SUBORDINATE_WORD = re.compile(r"\b(?:to|that|which|who|when|where|if|whether|how|why|can|of)\b", re.IGNORECASE)
"""Words that begin a subordinate clause, which "and" continues: "explain how to drop a table and delete a file"."""


def _split_clauses(text: str) -> tuple[list[Clause], bool]:
    """The clauses of `text`, at most `MAX_CLAUSES`, and whether these are all. Takes linear time."""
    quotations = _Quotations()
    sentences = _SENTENCE.split(quotations.extract(_remove_outer_quotes(_BLANKS.sub(" ", text.strip()))))
    clauses: list[Clause] = []
    last_talks = False
    for sentence in sentences[:MAX_CLAUSES]:
        is_only_code = not _QUOTATION_MARK.sub("", sentence).strip(" .:!`")
        sentence_clauses = _split_sentence(sentence, quotations, only_talks=is_only_code and last_talks)
        clauses += sentence_clauses
        if sentence_clauses and not is_only_code:
            last_talks = not sentence_clauses[-1].asks
        if len(clauses) >= MAX_CLAUSES:
            break
    is_complete = (
        len(quotations.pieces) < MAX_QUOTED_PIECES
        and len(clauses) < MAX_CLAUSES
        and len(sentences) <= MAX_CLAUSES
        and all(len(sentence) <= MAX_SENTENCE_CHARS for sentence in sentences)
    )
    return clauses[:MAX_CLAUSES], is_complete


def _remove_outer_quotes(text: str) -> str:
    """The text without quotation marks around all of it."""
    is_quoted = len(text) > 2 and text[0] in "\"'" and text[-1] == text[0] and text.count(text[0]) == 2
    return text[1:-1] if is_quoted else text


@frozen
class _Quotation:
    text: str
    is_code: bool


class _Quotations:
    """The code and the quoted texts of one prompt. Each is replaced by a mark with its index."""

    def __init__(self) -> None:
        self.pieces: list[_Quotation] = []

    def extract(self, text: str) -> str:
        """The text with a mark in place of each piece of code or quoted text."""
        text = _QUOTATION_MARK.sub(" ", text)
        for pattern in (_FENCED_CODE, _CODE_IN_TICKS, _QUOTED_TEXT):
            text = pattern.sub(self._replace, text)
        return _BLANKS.sub(" ", text)

    def find_marked(self, text: str) -> list[_Quotation]:
        """The pieces whose marks are in `text`."""
        indexes = [int(match[1]) for match in _QUOTATION_MARK.finditer(text)]
        return [self.pieces[index] for index in indexes if index < len(self.pieces)]

    def _replace(self, match: re.Match[str]) -> str:
        text = next((group for group in match.groups() if group), "")
        is_code = match.re is not _QUOTED_TEXT
        if not is_code and len(text.split()) < 2:
            return f" {text} "
        if len(self.pieces) >= MAX_QUOTED_PIECES:
            return " "
        self.pieces.append(_Quotation(text, is_code))
        return f" \ue000{len(self.pieces) - 1}\ue001 "


def _split_sentence(sentence: str, quotations: _Quotations, *, only_talks: bool) -> list[Clause]:
    """The clauses of a sentence. With `only_talks`, none of them asks: the sentence is only code, and the words before
    it only talk about it."""
    sentence = _LIST_MARK.sub("", sentence[:MAX_SENTENCE_CHARS])
    only_talks = only_talks or _is_question(sentence)
    parts = _CLAUSE_SEPARATOR.split(sentence)
    clauses: list[Clause] = []
    joined_words = ""  # the last clause, with the clauses before it that it continues
    for separator, part in zip(["", *parts[1::2]], parts[::2], strict=True):
        conjunction = separator.strip().lower()
        pieces = quotations.find_marked(part)
        bare = " ".join(_remove_filler(_QUOTATION_MARK.sub(" ", part)).split())
        if not bare and not pieces:
            continue
        talks = (
            only_talks
            or _talks_by_itself(bare)
            or (bool(clauses) and _continues_talk(clauses[-1], joined_words, conjunction))
        )
        clauses.append(_make_clause(bare, pieces, asks=not talks))
        joined_words = f"{joined_words} {bare}" if talks and conjunction in _JOINING_WORDS else bare
    return clauses


def _is_question(sentence: str) -> bool:
    first_words = _remove_filler(sentence)[:80]
    return bool(_load_pattern("questions").match(first_words)) and not sentence.lower().startswith("if ")


def _make_clause(bare: str, pieces: list[_Quotation], *, asks: bool) -> Clause:
    negation = _load_pattern("negations").search(bare)
    return Clause(
        bare,
        asks=asks,
        code=tuple(piece.text for piece in pieces if piece.is_code),
        quoted=tuple(piece.text for piece in pieces if not piece.is_code),
        carries=bool(pieces) and bool(_load_pattern("carriers").match(bare)),
        negated_from=negation.end() if negation else None,
    )


_CONDITION_WORD = re.compile(r"(?:if|when|while|unless|once|after|before|because|since)\b", re.IGNORECASE)
_JOINING_WORDS = ("and", "or", "nor", "&", ",")
"""Conjunctions that continue the clause before them."""


def _talks_by_itself(text: str) -> bool:
    """Whether a clause, judged by itself, talks about something, or says when something is to be done."""
    return bool(_CONDITION_WORD.match(text) or _load_pattern("talk").match(text) or _load_pattern("about").search(text))


def _continues_talk(before: Clause, joined_words: str, conjunction: str) -> bool:
    """Whether a clause only talks because of the one `before`, which with the clauses that it continues has the
    `joined_words`."""
    if conjunction == "before":
        return True
    is_alternative = conjunction in ("or", "nor")
    if before.asks:
        return is_alternative and before.negated_from is not None
    if _load_pattern("talk").match(joined_words):
        return conjunction == ":" or (conjunction in _JOINING_WORDS and bool(_SUBORDINATE_WORD.search(joined_words)))
    return is_alternative and bool(_load_pattern("negations").search(joined_words))


def _remove_filler(text: str) -> str:
    text = text.strip()
    for _ in range(12):
        shorter = _load_pattern("fillers").sub("", text, count=1).strip()
        if shorter == text:
            break
        text = shorter
    return text


# -- rules on clauses


_WORD = re.compile(r"[\w'*.-]+")
_MAX_GAP = 6
"""Maximum number of words between a verb and its object."""


@frozen_kw_only
class ProseRule(Rule):
    """A rule on prompts. A clause breaks it if it asks for a verb with an object of the same pair of `asks`, or if the
    pattern `whole` matches."""

    asks: Sequence[Sequence[str]] = ()
    whole: str = ""
    hint: str = ""
    """A fast pattern that must match before `whole` is tried."""

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

    def find_end(self, text: str) -> int | None:
        """The index in a clause where the words that break the rule end; None if the clause does not break it."""
        for verbs, objects in self._parsed:
            for verb in verbs.finditer(text):
                end = _find_object_end(objects, text, verb.end()) if _is_asked(text, verb.start()) else None
                if end is not None:
                    return end
        whole_match = None
        if self._whole is not None and (not self.hint or re.search(self.hint, text, re.IGNORECASE)):
            whole_match = self._whole.search(text)
        return whole_match.end() if whole_match else None


def _find_object_end(objects: re.Pattern[str], text: str, verb_end: int) -> int | None:
    """The index where the object of a verb ends; None if no object follows soon, or if it is harmless or code."""
    following = text[verb_end : verb_end + 200]
    for object_match in objects.finditer(following):
        gap = _WORD.findall(following[: object_match.start()].lower())
        if len(gap) > _MAX_GAP or not _load_harmless_words().isdisjoint(gap):
            return None
        if not _is_code(following[object_match.end() :]):
            return verb_end + object_match.end()
    return None


def _is_asked(text: str, start: int) -> bool:
    """Whether the verb at `start` is a request: it begins the clause, or follows a word of request."""
    before = text[:start] if start <= 80 else f"-{text[start - 80 : start]}"
    return not before or _load_pattern("asking").search(before) is not None


def _is_code(after: str) -> bool:
    """Whether the words after an object say that it is code or text: "database migration", "… from the list"."""
    word = re.match(r"(?:'s)?\s+([\w-]+)", after)
    return (word is not None and word[1].lower() in _load_code_nouns()) or bool(_load_pattern("in_code").match(after))


# -- the words of the rules, which are read when they are first needed


@cache
def _load_tables() -> dict[str, Any]:
    return read_rules("prose.toml")


@cache
def load_prompt_rules() -> tuple[ProseRule, ...]:
    """All rules on prompts, those that block before those that ask."""
    return tuple(map(ProseRule.parse, _load_tables()["rule"]))


@cache
def _load_pattern(name: str) -> re.Pattern[str]:
    """The pattern of this name, in any case."""
    return re.compile(_load_tables()["patterns"][name], re.IGNORECASE)


@cache
def _load_code_nouns() -> frozenset[str]:
    """Nouns after which an object is code, not the thing itself: "the database migration", "the production flag"."""
    nouns = _load_tables()["code_nouns"].split()
    return frozenset(form for noun in nouns for form in (noun, f"{noun}s", f"{noun}es"))


@cache
def _load_harmless_words() -> frozenset[str]:
    """Those nouns, and words that say that a thing has no value."""
    return _load_code_nouns().union(_load_tables()["placeholders"].split())
