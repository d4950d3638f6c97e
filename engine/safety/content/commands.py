"""Judges a shell command by the programs that it really runs, and by the code and the SQL that it passes on (SPEC 3.5).

The rules on code and SQL are in `rules/program_text.toml`. Commands in code are judged like any other command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, cached_property, lru_cache

from engine.frozen import frozen_kw_only
from engine.model import RailVerdict
from engine.safety.content import (
    ASK,
    BLOCK,
    ContentRule,
    Objection,
    find_strictest,
    judge_folded,
    leaks,
    read_rules,
    read_word_list,
    rulebook,
    targets,
)
from engine.safety.content.calls import Call
from engine.safety.content.data_flow import decode_base64
from engine.safety.content.rulebook import NO_RULES, OwnRules
from engine.safety.content.shell import MAX_COMMAND_LINE_CHARS
from engine.safety.content.unwrapping import Unwrapped, find_calls
from engine.text import fold_text

UNRESOLVED = "unresolved"
"""The rule on commands that the text does not contain."""

_FORK_BOMB = re.compile(r"([\w:.]{1,40})\s*\(\)\s*\{[^}]{0,200}?\1\s*\|\s*\1\s*&")
"""A function that starts itself twice and is called, as in `b() { b | b & }; b`."""


def check_command(text: str, *, own: OwnRules = NO_RULES) -> RailVerdict:
    """The verdict on a shell command; its `rule` names the rule that it breaks. `own` are the operator's rules. Never
    raises."""
    return judge_folded(text, MAX_COMMAND_LINE_CHARS, lambda folded: judge_command(folded, 0, own))


def find_programs(text: str) -> list[str]:
    """The programs that a shell command runs, each with its arguments, as far as the text shows them. Never raises."""
    return [
        " ".join([call.base, *call.args]) for call in find_calls(fold_text(text[: MAX_COMMAND_LINE_CHARS + 1])).calls
    ]


def judge_command(text: str, depth: int, own: OwnRules) -> Objection | None:
    """The objection to a command that is folded, None for none. `depth` is the number of texts that it is nested in."""
    if _FORK_BOMB.search(text[:4000]):
        return Objection(BLOCK, "fork-bomb", "starts processes endlessly")
    unwrapped = find_calls(text)
    return find_strictest(
        [
            *(_judge_call(call, own) for call in unwrapped.calls),
            *_judge_code(unwrapped, depth, own),
            *_judge_whole(unwrapped),
        ]
    )


def _judge_whole(unwrapped: Unwrapped) -> Iterator[Objection]:
    """The objections to the text as a whole."""
    if unwrapped.runs_download:
        yield Objection(BLOCK, "download-run", "runs what it downloads, unseen")
    if _pushes_to_new_remote(unwrapped.calls):
        yield Objection(ASK, "push-elsewhere", "pushes to a remote that the command names itself")
    if unwrapped.unresolved:
        yield Objection(ASK, UNRESOLVED, f"runs something that the text does not contain: {unwrapped.unresolved[:80]}")
    if unwrapped.unreadable:
        yield Objection(ASK, "unreadable", unwrapped.unreadable)


def _pushes_to_new_remote(calls: list[Call]) -> bool:
    """Whether the text sets the address of a git remote and pushes."""
    git_calls = [call.args for call in calls if call.base == "git"]
    names_remote = any("remote" in args and {"add", "set-url"} & set(args) for args in git_calls)
    return names_remote and any("push" in args for args in git_calls)


def _judge_call(call: Call, own: OwnRules) -> Objection | None:
    blocked = own.find_block(call)
    if blocked is not None:
        return blocked
    if own.allows(call):
        return targets.judge_redirects(call)
    only_shows_help = "--help" in call.args or call.args in (["--version"], ["help"])
    return find_strictest(
        [
            None if only_shows_help else rulebook.judge(call),
            targets.judge(call),
            leaks.judge_leak(call),
            leaks.judge_index(call),
            _judge_statement(call),
        ]
    )


# -- program text that a command runs

MAX_NESTED_CODE = 3
"""Maximum number of texts around program text that is judged; if there are more, the verdict is `ask`."""

_TOO_DEEP = Objection(ASK, "unreadable", "nested too deeply to be checked")


def _judge_code(unwrapped: Unwrapped, depth: int, own: OwnRules) -> Iterator[Objection | None]:
    """The objections to what the program texts do, and to the commands in them, also in decoded parts."""
    for source, is_program in unwrapped.program_texts.items():
        if is_program:
            yield _judge_program_text(source)
        if depth > MAX_NESTED_CODE:
            yield _TOO_DEEP
            continue
        decoded = _find_decoded_texts(source)
        yield from map(_judge_program_text, decoded)
        texts = [text for program_text in (source, *decoded) for text in _find_commands(program_text)] + decoded
        for text in texts[:60]:
            yield judge_command(text, depth + 1, own)


MAX_PROGRAM_CHARS = 20_000
"""Maximum number of characters of a program text that are read."""

_RUNS = re.compile(
    r"\b(os\.system|os\.popen|os\.exec\w*|os\.execute|io\.popen|subprocess|popen|system|exec|execSync|execFile\w*|spawn\w*|"
    r"child_process|shell_exec|passthru|proc_open|qx|Kernel|IO\.popen|Open3|sh\.|do shell script|run|call|check_output|"
    r"eval|pty|Bun\.\$|Deno\.Command|compile)\b|`|\$\(shell|:!|^!",
)
"""By what a program may run commands."""

_STRING = re.compile(
    r"'((?:[^'\\]|\\.){1,2000})'|\"((?:[^\"\\]|\\.){1,2000})\"|`([^`]{1,2000})`|%x[{(]([^})]{1,2000})[})]|"
    r"qx[{(/]([^})/]{1,2000})[})/]"
)
"""A string, or a command in backticks, `%x{}` or `qx{}`."""

_LIST = re.compile(r"[\[(]((?:\s*[rbuf]?['\"][^'\"]{0,200}['\"]\s*,?){2,30})\s*[\])]")
"""A list of strings, which may be the words of a command."""

_JOIN = re.compile(r"(['\"])\s*(?:\+|\.\.?)\s*[rbuf]?\1")
"""What is between two strings that are joined, as in `"r" + "m"`."""

_BASE64 = re.compile(r"['\"]([A-Za-z0-9+/_-]{8,4000}={0,2})['\"]")
"""A string that may be base64."""


@frozen_kw_only
class TextRule(ContentRule):
    """A rule on program text or statements. A text breaks it if one of its regular expressions matches."""

    ignores_case: bool
    patterns: Sequence[str]

    def judge(self, text: str) -> Objection | None:
        """The objection to a text, None for none."""
        return self.objection if self._pattern.search(text) else None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(self.patterns), re.IGNORECASE if self.ignores_case else 0)


@cache
def load_text_rules() -> dict[str, TextRule]:
    """The rules by the name of their table in `rules/program_text.toml`."""
    return {name: TextRule.parse(table) for name, table in read_rules("program_text.toml").items()}


def _judge_program_text(source: str) -> Objection | None:
    """The objection to operations in program text that cannot be undone, None for none."""
    source = _JOIN.sub("", source[:MAX_PROGRAM_CHARS])
    asks_database = re.search(r"execute|query|sql|raw|connection", source, re.IGNORECASE)
    return (
        load_text_rules()["deletes"].judge(source)
        or (_judge_sql(source) if asks_database else None)
        or load_text_rules()["removes"].judge(source)
    )


def _find_commands(source: str) -> list[str]:
    """Strings that a program text may run as commands; empty if it runs no commands."""
    source = source[:MAX_PROGRAM_CHARS]
    if not _RUNS.search(source):
        return []
    source = _JOIN.sub("", source)
    texts = [next(group for group in match.groups() if group) for match in _STRING.finditer(source)]
    for match in _LIST.finditer(source):
        texts.append(" ".join(re.findall(r"['\"]([^'\"]*)['\"]", match[1])))
    return [text for text in texts[:40] if len(text) > 2]


def _find_decoded_texts(source: str) -> list[str]:
    """The decoded base64 texts in program text, at most 10."""
    texts = (decode_base64(match[1]) for match in list(_BASE64.finditer(source[:MAX_PROGRAM_CHARS]))[:10])
    return [text for text in texts if text and text.isprintable()]


# -- SQL

_COMMENT = re.compile(r"/\*.{0,200}?\*/", re.DOTALL)
"""A comment of SQL."""

_DATABASE_CLIENTS = read_word_list("database_clients")


def _judge_statement(call: Call) -> Objection | None:
    """The objection to the statements that a call passes to a database, in its words or by a pipe; None for none."""
    if call.base not in _DATABASE_CLIENTS:
        return None
    source = call.simple.piped_from
    input_text = call.simple.stdin or (" ".join(source.argv[1:]) if source is not None else "")
    return _judge_sql(" ".join(call.args)) or _judge_sql(input_text)


@lru_cache(64)
def _judge_sql(text: str) -> Objection | None:
    """The objection to SQL that loses data, None for none. Comments are removed first. It is cached,
    because all commands of a group may have the same input."""
    return load_text_rules()["statement"].judge(_COMMENT.sub(" ", text[:12_000]))
