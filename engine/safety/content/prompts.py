"""Judges a prompt by what it asks for, and by the commands and encoded texts in it (SPEC 3.5).

An assignment is judged by its prompt, its parameters and its channel. Only the clauses of a prompt that ask for
something are compared with the rules in `rules/prose.toml`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cache, cached_property, lru_cache
from itertools import islice

from engine.frozen import frozen_kw_only
from engine.model import UNREGISTERED_CHANNEL, Assignment, PromptPart, RailVerdict, Trust, Verdict
from engine.safety.content import ASK, CLEAN, RAIL, STRICTNESS, ContentRule, Objection, find_strictest, judge_folded
from engine.safety.content.clauses import Clause, load_pattern, load_tables, split_clauses
from engine.safety.content.commands import UNRESOLVED, judge_command
from engine.safety.content.data_flow import decode_base64
from engine.safety.content.rulebook import NO_RULES, OwnRules
from engine.safety.content.shell import MAX_COMMAND_LINE_CHARS

MAX_PROMPT_CHARS = 24_000
"""Maximum number of characters of a prompt that is judged; for a longer one the verdict is `ask`."""

MAX_COMMAND_CHARS = 12_000
"""Maximum number of characters of commands in one prompt that are judged; if there are more, the verdict is `ask`."""


def check_prompt(text: str, *, own: OwnRules = NO_RULES) -> RailVerdict:
    """The verdict on a prompt: on its requests, and on the commands and encoded texts in it. Never raises."""
    return judge_folded(text, MAX_PROMPT_CHARS, lambda folded: _judge_prompt(folded, own))


_check_cached = lru_cache(256)(check_prompt)
"""`check_prompt` for the texts of cards, which are judged each time that a card is shown."""


def check_assignment(
    assignment: Assignment, channels: Container[str], *, own: OwnRules = NO_RULES, data: Container[str] = ()
) -> RailVerdict:
    """The verdict on a whole assignment: its channel, its prompt, and the texts in its parameters.

    The parameters named in `data`, such as names of files, are never run, so they are not judged. The prompt of a flow
    may repeat one that reads like a command. That part is left out, because the flow does not read its prompt. So it
    does no harm either if the prompt quotes a name such as `test_total[*]`, which as a command would be unresolved.
    """
    if assignment.channel not in channels:
        return RailVerdict(
            RAIL, Verdict.BLOCK, f"{assignment.channel!r} is not a registered channel", UNREGISTERED_CHANNEL
        )
    worst = _check_cached(assignment.prompt, own=own)
    if data and worst.verdict is not Verdict.ALLOW:
        names = [text for name, text in _collect_parameter_texts(assignment) if name in data]
        worst = _check_cached(_leave_out(assignment.prompt, names, own), own=own)
    if assignment.flow and worst.rule == UNRESOLVED:
        worst = CLEAN
    for name, text in _collect_parameter_texts(assignment):
        if name not in data:
            worst = max(worst, _check_cached(text, own=own), key=lambda verdict: STRICTNESS[verdict.verdict])
    return worst


def _collect_parameter_texts(assignment: Assignment) -> Iterator[tuple[str, str]]:
    """The texts in the parameters of an assignment, each with the name of its parameter."""
    for name, value in assignment.parameters.items():
        for text in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(text, str) and text:
                yield name, text


def _leave_out(prompt: str, names: Sequence[str], own: OwnRules) -> str:
    """The prompt with "it" in place of the names that would be stopped if they were commands."""
    for name in sorted(names, key=len, reverse=True):
        if name in prompt and _check_cached(name, own=own).verdict is not Verdict.ALLOW:
            prompt = prompt.replace(name, "it")
    return prompt


def find_objection(text: str, check: Callable[[str], RailVerdict]) -> str:
    """The objection of the content filter to text that would guide agents, "" for none."""
    verdict = check(text) if text.strip() else None
    if verdict is None or verdict.verdict is Verdict.ALLOW or verdict.rule == UNRESOLVED:
        return ""  # this text is read, not run, so an unresolved `*` in quoted code does no harm
    return verdict.reason


def find_line_objections(part: PromptPart, check: Callable[[str], RailVerdict]) -> list[str]:
    """The objection of the content filter to each line of a part, "" for none."""
    if part.role == "assistant":
        return [""] * len(part.lines)
    return [find_objection(line.text, check) if line.source.trust is Trust.QUOTED else "" for line in part.lines]


# -- what a prompt asks for


def _judge_prompt(text: str, own: OwnRules, *, is_quoted: bool = False) -> Objection | None:
    """The objection to a prompt that is folded, None for none. `is_quoted` is true for a text within another prompt."""
    clauses, complete = split_clauses(text)
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
                    yield _judge_prompt(quotation, own, is_quoted=True)


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


# -- rules on clauses


_WORD = re.compile(r"[\w'*.-]+")
_MAX_GAP = 6
"""Maximum number of words between a verb and its object."""


@frozen_kw_only
class ProseRule(ContentRule):
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
    return not before or load_pattern("asking").search(before) is not None


def _is_code(after: str) -> bool:
    """Whether the words after an object say that it is code or text: "database migration", "… from the list"."""
    word = re.match(r"(?:'s)?\s+([\w-]+)", after)
    return (word is not None and word[1].lower() in _load_code_nouns()) or bool(load_pattern("in_code").match(after))


# -- the words of the rules, which are read when they are first needed


@cache
def load_prompt_rules() -> tuple[ProseRule, ...]:
    """All rules on prompts, those that block before those that ask."""
    return tuple(map(ProseRule.parse, load_tables()["rule"]))


@cache
def _load_code_nouns() -> frozenset[str]:
    """Nouns after which an object is code, not the thing itself: "the database migration", "the production flag"."""
    nouns = load_tables()["code_nouns"].split()
    return frozenset(form for noun in nouns for form in (noun, f"{noun}s", f"{noun}es"))


@cache
def _load_harmless_words() -> frozenset[str]:
    """Those nouns, and words that say that a thing has no value."""
    return _load_code_nouns().union(load_tables()["placeholders"].split())
