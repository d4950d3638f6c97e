"""Recognises lines that should not stay or be pushed: debugging, conflict markers, TODOs, secrets, and marks of tests
in quarantine.

`own_changes` scans what you added, and `unpushed` what you would push, both with `scan_line`. The flow that mends
leftovers calls `remove_lines`.

It also finds and removes debugging statements whose removal cannot break the program. Of a secret only the kind is
returned, never its text. Tests, examples, lock files and placeholders hold no secret, because false alarms would cost
the operator's trust.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from pathlib import PurePosixPath
from typing import NamedTuple

from engine.files import read_table
from engine.frozen import frozen
from engine.wording import count, join_names

CONFLICT_MARKER = "conflict marker"
"""The kind of a line with a conflict marker."""

TODO_KINDS = frozenset({"TODO", "FIXME"})
"""The kinds of lines that name something to do."""

SECRET_KIND = "likely secret"
"""The kind of a leftover with a secret, before the kind of the secret."""

MAX_LINE_CHARS = 2000
"""Maximum number of characters of a line that are searched. Longer lines are generated."""


@frozen
class Leftover:
    """Something in a line that should not be pushed. A secret matters even if a later commit removes it."""

    kind: str
    is_secret: bool = False


@frozen
class _DebuggingPattern:
    """A pattern of debugging: its kind, the endings of the files that may have it, and how its lines look."""

    kind: str
    suffixes: tuple[str, ...]
    pattern: re.Pattern[str]


_TABLE = read_table(__file__, "leftovers.toml")
_DEBUGGING_PATTERNS = [
    _DebuggingPattern(row["kind"], tuple(row["suffixes"]), re.compile(row["pattern"])) for row in _TABLE["debugging"]
]
"""The patterns of `leftovers.toml`."""

_CONFLICT_MARKER = re.compile(r"^(?:<{7}|>{7})(?: |$)|^\|{7} ")
"""The lines around the two sides of a conflict, and the one before the common version."""

_TODO_COMMENT = re.compile(r"(?:#|//|/\*|\*|--|<!--|;)\s*(TODO|FIXME)\b")
_TEST_PATH = re.compile(r"(?:^|/)(?:tests?|spec|__tests__)/|(?:^|/)test_|_test\.|\.(?:test|spec)\.")
"""Paths of tests."""


def scan_line(path: str, line: str, after: str = "") -> list[Leftover]:
    """The problems of an added line of a file. `after` is the line that follows it."""
    line = line[:MAX_LINE_CHARS]
    kind = find_secret_kind(path, line, after)
    leftovers = [Leftover(f"{SECRET_KIND}: {kind}", is_secret=True)] if kind else []
    if _CONFLICT_MARKER.match(line):
        leftovers.append(Leftover(CONFLICT_MARKER))
    leftovers += [
        Leftover(debugging.kind)
        for debugging in _DEBUGGING_PATTERNS
        if path.endswith(debugging.suffixes)
        and debugging.pattern.search(line)
        and not _is_intended_output(path, debugging.kind)
    ]
    if match := _TODO_COMMENT.search(line):
        leftovers.append(Leftover(match[1]))
    return leftovers


def _is_intended_output(path: str, kind: str) -> bool:
    if kind not in ("debug print", "console.log"):
        return False
    pure_path = PurePosixPath(path)
    is_program = (
        not {*pure_path.parts[:-1]}.isdisjoint(_TABLE["printing_folders"]) or pure_path.stem in _TABLE["printing_files"]
    )
    return is_program or bool(_TEST_PATH.search(path))


_CODE_KINDS = frozenset({"console.log", ".only", "dbg!"})
"""Kinds whose name is code; it has no plural."""


def count_kinds(kinds: Iterable[str]) -> str:
    """How many leftovers there are of each kind, the most frequent first: ``3 breakpoints and 1 `console.log` ``."""
    numbers = Counter(kinds).most_common()
    return join_names(
        [f"{number} `{kind}`" if kind in _CODE_KINDS else count(number, kind) for kind, number in numbers]
    )


_DEBUGGING_CALLS = {"breakpoint", "pdb.set_trace", "ipdb.set_trace", "pudb.set_trace"}
_DEBUGGER_MODULES = {"pdb", "ipdb", "pudb"}
"""Calls and imports of Python that only debug. Python is judged by its syntax tree, other languages by their lines."""

_DEBUGGING_STATEMENT = re.compile(
    r"\s*(?:debugger\s*;?|console\.(?:log|debug|trace)…\s*;?|(?:dbg!\s*|var_dump)…\s*;|println…"
    r"|binding\.(?:pry|irb)|byebug|(?:require )?IEx\.pry…?)\s*"
)
"""Matches a line without strings, and with a `…` for each pair of brackets."""

_UNFINISHED_LINE = re.compile(r"(?:=>|[(,=+&?:.\[]|\belse|\breturn)\s*$|^\s*(?:\} ?else )?(?:if|while|for)\b.*\)\s*$")
_CONTINUING_LINE = re.compile(r"\s*(?:[.?,:)\]+*/&|=-]|else\b)")
"""A line that goes on in the next one, and a line that continues the one before. Between such lines nothing is removed,
because the rest would be another statement."""


def parse_python(text: str) -> ast.Module | None:
    """The syntax tree of a Python file; None if it cannot be parsed."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def find_quoted_lines(tree: ast.Module | None) -> frozenset[int]:
    """The lines of a Python file that belong to a string of several lines."""
    strings = [node for node in ast.walk(tree) if isinstance(node, (ast.Constant, ast.JoinedStr))] if tree else []
    return frozenset(
        number
        for node in strings
        if node.end_lineno is not None and node.end_lineno > node.lineno
        for number in range(node.lineno, node.end_lineno + 1)
    )


def find_breakpoint_lines(tree: ast.Module | None) -> frozenset[int] | None:
    """The lines of a Python file that start a debugger, and are not in a string; None without a tree."""
    if tree is None:
        return None
    return frozenset(
        node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt) and _is_debugging_statement(node)
    )


def find_removable_lines(path: str, text: str, lines: Sequence[int]) -> list[int]:
    """Those of `lines` that contain only a debugging statement, and can be removed without breaking the program.

    For Python the syntax tree decides. In other languages, the brackets and quotes of the line must be balanced, and
    the line must be between two statements.
    """
    if path.endswith(".py"):
        return sorted(set(lines) & _find_removable_python_lines(text))
    rows = text.split("\n")
    return [
        number for number in sorted(set(lines)) if 0 < number <= len(rows) and _is_whole_statement(rows, number - 1)
    ]


def remove_lines(path: str, text: str, lines: Sequence[int]) -> str:
    """Remove `lines` of `find_removable_lines` from `text`. A Python block that would be empty gets a `pass`.
    Raises `SyntaxError` if the result is not valid Python."""
    removed = set(lines)
    passes = _find_emptied_blocks(text, removed) if path.endswith(".py") else {}
    rows = enumerate(text.split("\n"), 1)
    kept = (passes.get(number, row) for number, row in rows if number in passes or number not in removed)
    after = "\n".join(kept)
    if path.endswith(".py"):
        ast.parse(after)
    return after


def _is_debugging_statement(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func) in _DEBUGGING_CALLS
    return isinstance(node, ast.Import) and {name.name for name in node.names} <= _DEBUGGER_MODULES


def _walk_statements(text: str) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
    """(block, statement) of every statement; nothing if the text cannot be parsed."""
    tree = parse_python(text)
    for node in ast.walk(tree) if tree is not None else ():
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield from ((block, statement) for statement in block if isinstance(statement, ast.stmt))


def _find_removable_python_lines(text: str) -> set[int]:
    removable: set[int] = set()
    needed: set[int] = set()
    rows = text.split("\n")
    for _, node in _walk_statements(text):
        span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if not _is_debugging_statement(node):
            if len(span) == 1 or not hasattr(node, "body"):
                needed.update(span)
            else:
                needed.add(node.lineno)  # the statements in its block are judged separately
        elif len(span) == 1 and "#" not in rows[node.lineno - 1]:
            removable.add(node.lineno)
    return removable - needed


def _find_emptied_blocks(text: str, lines: set[int]) -> dict[int, str]:
    """For each block that would lose all its statements, an indented `pass`, by the line of its first statement."""
    return {
        node.lineno: " " * node.col_offset + "pass"
        for block, node in _walk_statements(text)
        if block[0] is node and all(statement.lineno in lines for statement in block)
    }


def _is_whole_statement(rows: list[str], index: int) -> bool:
    bare = re.sub(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`[^`]*`", "", rows[index][: MAX_LINE_CHARS + 1])
    while (shorter := re.sub(r"[(\[{][^()\[\]{}\"'`]*[)\]}]", "…", bare)) != bare:
        bare = shorter
    if len(rows[index]) > MAX_LINE_CHARS or not _DEBUGGING_STATEMENT.fullmatch(bare):
        return False
    before = next((line for line in reversed(rows[:index]) if line.strip()), "")
    after = next((line for line in rows[index + 1 :] if line.strip()), "")
    return not _UNFINISHED_LINE.search(before) and not _CONTINUING_LINE.match(after)


SECRET_HINT = re.compile(
    r"-----BEGIN|AKIA|ASIA|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|hooks\.slack|k_live_|AIza|sk-|SG\.|pypi-|npm_|://"
    r"|(?i:api[_-]?key|access_?key|secret|token|passw|credential)"
)
"""A text that does not match contains no secret that can be recognised by its form."""

_TOKEN_PATTERNS = {kind: re.compile(pattern) for kind, pattern in read_table(__file__, "secrets.toml").items()}
"""The patterns of tokens that are recognised by their form, by the kind of each."""

_PRIVATE_KEY_BEGIN = re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----(.*)")
_PRIVATE_KEY_BODY = re.compile(r"[A-Za-z0-9+/=]{40}|Proc-Type:|Version:")
"""What follows in a real key, in the same line or in the next one. Code that only names the first line has no such
text."""

_URL_WITH_PASSWORD = re.compile(r"\b[a-z][a-z0-9+.-]*://([^\s/:@'\"]*):(?![*$<{%])([^\s/:@'\"]{6,})@([A-Za-z0-9.-]+)")
"""`scheme://user:password@host`, unless the password is a variable, such as `$PASSWORD` or `{password}`."""

_HARMLESS_HOST = re.compile(
    r"^(?:localhost|[^.]+|127\..*|0\.0\.0\.0|.*\.(?:localhost|local|test|invalid)|(?:.*\.)?example\.\w+)$"
)
"""Hosts for which a password is not secret: this machine, a container on it, an example."""

_NAMED_SECRET = re.compile(
    r"(?:api[_-]?key|secret|token|passw(?:or)?d|credential)[\w-]*[\"']?\s*(?::|=>?|:=)\s*[\"']([^\"'\s]{12,})[\"']",
    re.I,
)
"""A name and a value in quotes: `api_key = "8f3k…"`, `"token": "8f3k…"`."""

_UNQUOTED_SETTING = re.compile(
    r"^\s*(?:export\s+|-\s+)?[\w.-]*(?:api_?key|secret(?:_?key)?|token|passw(?:or)?d|access_?key)\s*[:=]\s*"
    r"([A-Za-z0-9+/=_.!@#%^&*~-]{12,})\s*$",
    re.I,
)
"""A value without quotes, as in files of settings: `export API_KEY=8f3k…`."""

_SETTINGS_FILE = re.compile(r"(?:^|/)\.env[^/]*$|\.(?:env|ya?ml|ini|cfg|conf|toml|properties|tfvars)$", re.I)
"""Files in which a value may stand without quotes."""

_VALUE_PLACEHOLDER = re.compile(
    r"example|change.?me|placeholder|dummy|your|xxx|test|fake|sample|passw|insecure|redacted|1234567"
    r"|\$[{(]|\{\{|<|\*\*\*|^(.)\1+$",
    re.I,
)
"""Words of a value that is no secret, such as `changeme`, or a variable, such as `${TOKEN}`."""

_TOKEN_PLACEHOLDER = re.compile(r"example|placeholder|your[-_]|x{4}|redacted|\*{3}", re.I)
"""Words of a placeholder that has the form of a token."""

_SECRET_FILE = re.compile(
    r"(?:^|/)(?:\.env(?:\.(?:local|production|prod|staging))?|id_(?:rsa|dsa|ecdsa|ed25519)|\.netrc|\.pypirc|\.htpasswd"
    r"|(?!debug\.)[^/]+\.(?:p12|pfx|jks|keystore|kdbx|ppk))$"
)
"""Files that are secret as a whole, such as `.env`, `id_ed25519` and `server.p12`."""

_HARMLESS_PATH = re.compile(
    r"(?:^|/)(?:t|tests?|testing|testdata|unit|test[-_]data|specs?|__tests__|__mocks__|mocks?|fixtures?|cassettes|examples?|samples?"
    r"|demos?|node_modules|vendor|third_party)/"
    r"|(?:^|/)(?:test_|conftest\.py$)|[._-](?:test|tests|spec|example|sample|template|dist|fixture)s?(?:\.[^/]*)?$"
    r"|(?:^|/)(?:[^/]*[.-]lock(?:\.json|\.ya?ml|file)?|npm-shrinkwrap\.json|go\.sum|[^/]*\.(?:min\.js|min\.css|map|svg|snap))$",
    re.I,
)
"""Paths where a secret does not count: tests, examples, code of others, lock files."""

_PROSE_FILE = re.compile(r"(?:^|/)docs?/|\.(?:md|rst|adoc|txt|html?|ipynb)$", re.I)
"""Paths where only known forms of tokens count, because manuals show invented values."""

MIN_TOKEN_ENTROPY = 2.5
"""Bits per character. A token with less is not random, such as `AKIAAAAAAAAAAAAAAAAA`."""

MIN_VALUE_ENTROPY = 3.2
"""Bits per character. A quoted value with less is more like a word than like a secret."""


def find_secret_kind(path: str, line: str, after: str = "") -> str:
    """The kind of secret that a line seems to have, "" for none. `after` is the line that follows it."""
    line = line[:MAX_LINE_CHARS]
    if not SECRET_HINT.search(line) or _HARMLESS_PATH.search(path):
        return ""
    if _begins_private_key(line, after):
        return "private key"
    for kind, pattern in _TOKEN_PATTERNS.items():
        match = pattern.search(line)
        if match and not _TOKEN_PLACEHOLDER.search(match[0]) and _compute_entropy(match[0]) > MIN_TOKEN_ENTROPY:
            return kind
    for user, password, host in _URL_WITH_PASSWORD.findall(line):
        if password != user and not _HARMLESS_HOST.match(host) and _looks_secret(password, MIN_TOKEN_ENTROPY):
            return "password in a URL"
    if _PROSE_FILE.search(path):
        return ""
    match = _NAMED_SECRET.search(line) or (_UNQUOTED_SETTING.match(line) if _SETTINGS_FILE.search(path) else None)
    return "value that looks like a key" if match and _looks_secret(match[1]) else ""


def _begins_private_key(line: str, after: str) -> bool:
    begins = _PRIVATE_KEY_BEGIN.search(line)
    return begins is not None and bool(_PRIVATE_KEY_BODY.search(begins[1]) or _PRIVATE_KEY_BODY.match(after.strip()))


def is_secret_file(path: str) -> bool:
    """Whether a file with this name contains keys."""
    return bool(_SECRET_FILE.search(path)) and not _HARMLESS_PATH.search(path)


def _looks_secret(value: str, min_entropy: float = MIN_VALUE_ENTROPY) -> bool:
    if _VALUE_PLACEHOLDER.search(value) or _compute_entropy(value) < min_entropy or not re.search(r"\d", value):
        return False
    # Words with dashes or dots are names: `my-app-tls-2024`, `settings.key2`.
    return not re.fullmatch(
        r"(?:[a-z]+|[A-Z]+|[A-Z][a-z]+|\d+|v\d+)(?:[-_./:](?:[a-z]+\d?|[A-Z]+|[A-Z][a-z]+|\d+|v\d+))+", value
    )


def _compute_entropy(text: str) -> float:
    """Shannon entropy in bits per character; 0 for an empty text."""
    counts = Counter(text)
    return -sum(number / len(text) * math.log2(number / len(text)) for number in counts.values()) if text else 0.0


# -- tests in quarantine: skipped until a day, because they are unreliable

QUARANTINE_WORDS = "quarantined until"
"""The words in the reason of a skip mark after which the day stands."""

_QUARANTINE_MARK = re.compile(rf"^\s*(?:@|reason\s*=).*{QUARANTINE_WORDS} (\d{{4}}-\d\d-\d\d)")
"""Matches a decorator, or an argument of a decorator on its own line, but not the same words in other text."""

_TEST_DEFINITION = re.compile(r"^(\s*)(?:async\s+)?def\s+(\w+)")
_CLASS_DEFINITION = re.compile(r"^(\s*)class\s+(\w+)")


@frozen
class QuarantinedTest:
    """A test that is skipped until a day."""

    test: str
    """Its name, as pytest has it."""
    until: date
    """The first day on which it runs again."""


class _MarkedClass(NamedTuple):
    """A class of tests, and until when a mark on it skips them; None for no mark."""

    name: str
    indent: int
    until: date | None


def find_quarantined_tests(path: str, rows: Sequence[str]) -> list[QuarantinedTest]:
    """The tests of one file that are in quarantine. `rows` are the lines with marks and definitions of tests and
    classes."""
    tests: list[QuarantinedTest] = []
    scopes: list[_MarkedClass] = []
    marked_until: date | None = None
    for row in rows:
        if match := _QUARANTINE_MARK.search(row):
            with suppress(ValueError):  # no day of any month
                marked_until = date.fromisoformat(match[1])
        elif match := _CLASS_DEFINITION.match(row):
            scopes = [scope for scope in scopes if scope.indent < len(match[1])]
            scopes.append(_MarkedClass(match[2], len(match[1]), marked_until))
            marked_until = None
        elif match := _TEST_DEFINITION.match(row):
            inside = [scope for scope in scopes if scope.indent < len(match[1])]
            by_class = (scope.until for scope in reversed(inside) if match[2].startswith("test"))
            if until := marked_until or next(filter(None, by_class), None):
                tests.append(QuarantinedTest("::".join([path, *(scope.name for scope in inside), match[2]]), until))
            marked_until = None
    return tests
