"""Judges program text that is passed to an interpreter, and statements that are passed to a database (SPEC 3.5).

The rules are in `rules/program_text.toml`. This module also finds commands in program text; they are judged like any
other command.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from engine.safety.content.calls import Call
from engine.safety.content.outputs import decode_base64
from engine.safety.content.rules import Hit, Rule, read_rules, word_list

MAX_PROGRAM_TEXT = 20_000
"""Maximum number of characters of a program text that are read."""

_RUNS = re.compile(
    r"\b(os\.system|os\.popen|os\.exec\w*|os\.execute|io\.popen|subprocess|popen|system|exec|execSync|execFile\w*|spawn\w*|"
    r"child_process|shell_exec|passthru|proc_open|qx|Kernel|IO\.popen|Open3|sh\.|do shell script|run|call|check_output|"
    r"eval|pty|Bun\.\$|Deno\.Command|compile)\b|`|\$\(shell|:!|^!",
)
_STRING = re.compile(
    r"'((?:[^'\\]|\\.){1,2000})'|\"((?:[^\"\\]|\\.){1,2000})\"|`([^`]{1,2000})`|%x[{(]([^})]{1,2000})[})]|"
    r"qx[{(/]([^})/]{1,2000})[})/]"
)
_LIST = re.compile(r"[\[(]((?:\s*[rbuf]?['\"][^'\"]{0,200}['\"]\s*,?){2,30})\s*[\])]")
_JOIN = re.compile(r"(['\"])\s*(?:\+|\.\.?)\s*[rbuf]?\1")
_BASE64 = re.compile(r"['\"]([A-Za-z0-9+/_-]{8,4000}={0,2})['\"]")

_COMMENT = re.compile(r"/\*.{0,200}?\*/", re.DOTALL)
_DATABASE_CLIENTS = word_list("database_clients")


@dataclass(frozen=True, kw_only=True)
class TextRule(Rule):
    """A rule on program text or statements. A text breaks it if one of its regular expressions matches."""

    ignores_case: bool
    patterns: Sequence[str]

    def judge(self, text: str) -> Hit | None:
        """The objection to a text, None for none."""
        return self.hit if self._pattern.search(text) else None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(self.patterns), re.IGNORECASE if self.ignores_case else 0)


@cache
def text_rules() -> dict[str, TextRule]:
    """The rules by the name of their table in `rules/program_text.toml`."""
    return {name: TextRule.parse(table) for name, table in read_rules("program_text.toml").items()}


def judge_code(source: str) -> Hit | None:
    """The objection to operations in program text that cannot be undone, None for none."""
    source = _JOIN.sub("", source[:MAX_PROGRAM_TEXT])
    asks_database = re.search(r"execute|query|sql|raw|connection", source, re.IGNORECASE)
    return (
        text_rules()["deletes"].judge(source)
        or (judge_sql(source) if asks_database else None)
        or text_rules()["removes"].judge(source)
    )


def commands_in(source: str) -> list[str]:
    """Strings that a program text may run as commands; empty if it runs no commands."""
    source = source[:MAX_PROGRAM_TEXT]
    if not _RUNS.search(source):
        return []
    source = _JOIN.sub("", source)
    texts = [next(group for group in match.groups() if group) for match in _STRING.finditer(source)]
    for match in _LIST.finditer(source):
        texts.append(" ".join(re.findall(r"['\"]([^'\"]*)['\"]", match[1])))
    return [text for text in texts[:40] if len(text) > 2]


def decoded_in(source: str) -> list[str]:
    """The decoded base64 texts in program text, at most 10."""
    texts = (decode_base64(match[1]) for match in list(_BASE64.finditer(source[:MAX_PROGRAM_TEXT]))[:10])
    return [text for text in texts if text and text.isprintable()]


def judge_statement(call: Call) -> Hit | None:
    """The objection to the statements that a call passes to a database, in its words or by a pipe; None for none."""
    if call.base not in _DATABASE_CLIENTS:
        return None
    source = call.simple.source
    input_text = call.simple.stdin or (" ".join(source.argv[1:]) if source is not None else "")
    return judge_sql(" ".join([*call.args, input_text]))


def judge_sql(text: str) -> Hit | None:
    """The objection to SQL that loses data, None for none. Comments are removed first."""
    return text_rules()["statement"].judge(_COMMENT.sub(" ", text[:12_000]))
