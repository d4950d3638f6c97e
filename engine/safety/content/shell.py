"""Parses a shell command into simple commands, for any input and in linear time (SPEC 3.5).

It runs nothing, and expands only syntax that can hide a word: quotes, `$'\\x72'`, `${IFS}`, braces, and variables set
in the same text. Anything it does not understand stays as plain words. Text in `$(…)`, backticks and `<(…)` becomes
`substitutions`, and text in `>(…)` `output_readers`, which are parsed separately. The text must be folded already
(`engine.text.fold_text`).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_COMMAND_LINE_CHARS = 8_000
"""Maximum number of characters of a text that is judged; for a longer one the verdict is `ask`."""


@dataclass(slots=True)
class SimpleCommand:
    """One simple command: its words without quotes, its input, its redirections, and the scripts within its words."""

    argv: list[str] = field(default_factory=list)
    quoted: list[bool] = field(default_factory=list)
    """For each word of `argv`, whether a part of it was quoted."""
    stdin: str | None = None
    piped_from: SimpleCommand | None = None
    """The command whose output is piped in."""
    body: Sequence[SimpleCommand] = ()
    """The commands of a group, for instance `(…)` or a loop. Then this has no words, but the input and redirections of
    the group."""
    redirects: list[tuple[str, str]] = field(default_factory=list)
    """(operator, file)."""
    substitutions: list[str] = field(default_factory=list)
    """The texts of `$(…)`, backticks and `<(…)`, to be parsed separately."""
    output_readers: Sequence[str] = ()
    """The texts of `>(…)`, whose commands read what it writes there."""
    assigned: dict[str, str] = field(default_factory=dict)
    """The variables set before the command, by name."""
    globs: set[str] = field(default_factory=set)
    """Words that the shell replaces by the names of matching files."""

    @property
    def has_input(self) -> bool:
        """Whether it has a standard input of its own."""
        return (
            self.stdin is not None
            or self.piped_from is not None
            or any(operator == "<" for operator, _ in self.redirects)
        )

    def remove_words(self, start: int, end: int | None = None) -> None:
        """Remove the words from index `start` up to `end`, by default all that follow."""
        del self.argv[start:end], self.quoted[start:end]


MAX_COMMANDS = 300
"""Maximum number of simple commands of one text that are read."""

_PLAIN_CHARACTERS = re.compile(r"[^\s'\"\\$`;&|<>(){}#\n~]+")
"""Matches characters that stand for themselves."""

_WITHOUT_GLOB = re.compile(r"[^*?\[]*|\[\[?")
"""Matches characters without a glob."""

_BLANK = re.compile(r"[ \t]+")
_BRACKETS = {
    "(": re.compile(r"[()'\"\\]"),
    "[": re.compile(r"[\[\]'\"\\]"),
    "{": re.compile(r"\$\{|[}'\"\\]"),
    '"{': re.compile(r"\$\{|[}\"\\]"),
}
"""What opens, closes or quotes between brackets, by the opening one. `"{` is `${x:-…}` in double quotes, where `'` is
a plain character."""

_QUOTE_END = re.compile(r'["\\$`]')
"""Matches what ends double quotes, or is expanded in them."""

_REDIRECTION = re.compile(r"<<<|<<-|<<|<>|<&|>>|>&|>\||>|<")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=(.*)", re.DOTALL)
_SUBSCRIPT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[")
_SPECIAL_PARAMETER = re.compile(r"\$[@*#?$!0-9-]")
"""Matches a parameter of one character, as `$1` or `$?`."""

_TAKES_DEFAULT = re.compile(r"\$\{\w+:?[-=?+]")
"""Matches the beginning of a parameter with a default or an error."""

_PARAMETER = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
"""Matches `$NAME` or `${NAME}`."""

_DEFAULT_VALUE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):?[-=]([^${}`()]*)\}")
"""Matches a parameter with a default."""

_AS_PROMPT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)@P\}")
"""A parameter that the shell expands a second time, as it does with its prompt."""

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|.)", re.DOTALL)
"""Matches a backslash with what it escapes."""

_ESCAPED_CHARACTERS = {
    "n": "\n", "t": "\t", "r": "\r", "a": "", "b": "", "e": "", "E": "", "f": "", "v": "", "\n": "\\\n"
}  # fmt: skip
"""The characters that escapes of one character stand for. A line break stays escaped."""

_ESCAPED_IN_BACKTICKS = re.compile(r"\\([\\`$])")
"""Matches what is no longer escaped once the shell has read the backticks around it."""

_BRACES = re.compile(
    r"([^{}]*(?:[{}][^{}]*)*?)\{(?:([^{},]*,[^{}]*)|([A-Za-z])\.\.([A-Za-z])(?:\.\.-?\d+)?)\}(.*)", re.DOTALL
)
"""An innermost group of braces, as `{rm,-rf}` or `{a..e}`."""

_MASK = str.maketrans("{},.", "\ue000\ue001\ue002\ue003")
"""Hides what is quoted or expanded from `_BRACES`."""

_UNMASK = {mask: character for character, mask in _MASK.items()}
"""Shows what `_MASK` hid."""

_MAX_BRACE_WORDS = 250
"""Maximum number of words that the braces of one text are expanded to."""

_MAX_EXPANSIONS = 3
"""Maximum number of `${…}` and `$((…))` around a substitution that are read."""

_EVALUATING_PROGRAMS = frozenset(
    {"let", "declare", "typeset", "local", "export", "readonly", "read", "unset", "test", "[", "[[", "env", "sudo"}
)
"""Programs that evaluate the subscript of an array in a word, also in a quoted one, or pass it on to one that may."""

_SCRIPT_IN_SUBSCRIPT = re.compile(r"[^\[]*\[.*(?:\$\([^)]|`)", re.DOTALL)
"""Matches a subscript with a script in it."""

_GROUP_ENDS = {"{": "}", "if": "fi", "while": "done", "until": "done", "for": "done", "select": "done", "case": "esac"}
"""The words that begin a group of commands, with the word at its end."""

_KEYWORDS = frozenset({"if", "then", "else", "elif", "do", "while", "until", "!", "{", "coproc"})
"""Words before a command that are no part of it."""


def unescape(text: str) -> str:
    """The text without backslash escapes, as `$'…'`, `printf` and `echo -e` read it."""

    def replace(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "xuU" and len(code) > 1:
            number = int(code[1:], 16)
            return chr(number) if number < 0x110000 else ""
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
        return _ESCAPED_CHARACTERS.get(code, code)

    return _ESCAPE.sub(replace, text)


def parse(text: str) -> list[SimpleCommand]:
    """The simple commands of `text` in order. Never raises; takes linear time."""
    return _CommandReader(text[:MAX_COMMAND_LINE_CHARS]).run()


def join_continued_lines(text: str) -> str:
    """`text` with each line that the shell continues joined with the next, as far as it is read. Lines within `$(…)`
    stay apart. Never raises; takes linear time."""
    reader = _CommandReader(text[:MAX_COMMAND_LINE_CHARS])
    reader.run()
    return reader.source.join(up_to=reader.position) + text[MAX_COMMAND_LINE_CHARS:]


def _list_letters(first: str, last: str) -> list[str]:
    """The letters from the first to the last one, in either direction."""
    low, high = sorted((ord(first), ord(last)))
    return [chr(code) for code in range(low, high + 1)]


def _pass_input_on(group: SimpleCommand) -> None:
    """Give the standard input of a group to its commands that have none of their own."""
    source = SimpleCommand(substitutions=group.substitutions) if ("<", "<()") in group.redirects else group.piped_from
    files = [("<", target) for operator, target in group.redirects if operator == "<" and target != "<()"]
    for command in group.body:
        if not command.has_input:
            command.stdin, command.piped_from = group.stdin, source
            command.redirects += files


def find_scripts_in_quotes(text: str, depth: int = 0) -> list[str]:
    """The scripts that the shell runs when it expands `text` in double quotes. `depth` is the number of expansions
    around it."""
    if "$" not in text and "`" not in text:
        return []
    if depth > _MAX_EXPANSIONS:
        return [text]
    reader = _WordReader(text, depth)
    reader.read_quoted(is_closed=False)
    return reader.current.substitutions


@dataclass(frozen=True, slots=True)
class _Heredoc:
    """A document after `<<`, which begins on the next line."""

    reader: SimpleCommand
    """The command that reads it."""
    delimiter: str
    strips_tabs: bool
    expands: bool
    """Whether the shell runs the scripts within it."""


@dataclass(frozen=True, slots=True)
class _Group:
    """A group of commands whose end is not read yet."""

    end: str
    """The word or parenthesis at its end."""
    start: int
    """The number of commands before it."""
    piped_from: SimpleCommand | None
    """The command whose output is piped in."""


_CONTINUATION = re.compile(r"(?<!\\)(?:\\\\)*\\\n")
"""Matches the backslashes and the line break at the end of a line that is continued."""


class _Source:
    """A text as it is written, and as `joined` with its continued lines made one. The shell does not continue comments,
    nor lines in single quotes."""

    def __init__(self, written: str) -> None:
        self.written = written
        is_continued = "\\\n" in written  # seldom, and found faster than by the pattern
        self._ends = [match.end() for match in _CONTINUATION.finditer(written)] if is_continued else []
        """The indices in `written` behind each continuation."""
        self._joints = [end - 2 * number for number, end in enumerate(self._ends, 1)]
        """The indices in `joined` where each continuation was."""
        self._continued_lines = frozenset(self._ends)
        """The same, to look up whether a line continues the one before it."""
        self._kept: set[int] = set()
        """Those of `_ends` whose continuation was read as it is written."""
        self.joined = self._remove(self._ends)

    def _remove(self, ends: Sequence[int]) -> str:
        """`written` without the continuations that end at these indices."""
        return "".join(
            self.written[begin : end - 2] for begin, end in zip([0, *ends], [*ends, len(self.written) + 2], strict=True)
        )

    def join(self, up_to: int) -> str:
        """`written` without the continuations that were read as such, up to this index in `joined`."""
        places = zip(self._ends, self._joints, strict=True)
        return self._remove([end for end, joint in places if end not in self._kept and joint <= up_to])

    def cut(self, begin: int, end: int) -> str:
        """The text between two indices in `joined`, as it is written. `join` keeps its continuations from then on."""
        first, last = bisect_left(self._joints, begin), bisect_right(self._joints, end)
        self._kept.update(self._ends[first:last])
        return self.written[begin + 2 * first : end + 2 * last]

    def find_written(self, index: int) -> int:
        """The index in `written` of a character in `joined`."""
        return index + 2 * bisect_right(self._joints, index)

    def find_joined(self, index: int) -> int:
        """The index in `joined` of a character in `written`."""
        return min(index - 2 * bisect_right(self._ends, index), len(self.joined))

    def find_line_end(self, begin: int, *, joins: bool) -> int:
        """The index in `written` of the line break that ends the line around `begin`. If `joins`, a continued line goes
        on."""
        end = self._find_break(begin)
        while joins and end + 1 in self._continued_lines:
            end = self._find_break(end + 1)
        if end + 1 in self._continued_lines:
            self._kept.add(end + 1)
        return end

    def _find_break(self, begin: int) -> int:
        """The index in `written` of the next line break, the length of the text if there is none."""
        index = self.written.find("\n", begin)
        return len(self.written) if index < 0 else index


class _WordReader:
    """Reads the words of one text from left to right. What the shell runs within them is added to the command
    `current`."""

    def __init__(self, text: str, depth: int = 0) -> None:
        self.source = _Source(text)
        self.text = self.source.joined
        self.position = 0
        self.current = SimpleCommand()
        """The command that is being read."""
        self.variables: dict[str, str] = {}
        self.has_glob = False
        """Whether the last word has a glob."""
        self.depth = depth
        """The number of expansions around the text."""
        self.closings: dict[int, int] = {}
        """The index of the closing bracket by that of the opening one, as far as they were read."""
        self.brace_words_left = _MAX_BRACE_WORDS

    def _read_word(self) -> tuple[str, bool]:
        """Read a word at the current position: (the word without quotes, whether a part of it was quoted). What is
        quoted or expanded in it is masked."""
        text = self.text
        parts: list[str] = []
        is_quoted = False
        self.has_glob = False
        if not self.current.argv and (subscript := _SUBSCRIPT.match(text, self.position)):
            parts.append(self._read_subscript(subscript.end()))
        while self.position < len(text):
            plain = _PLAIN_CHARACTERS.match(text, self.position)
            if plain:
                self.has_glob |= not _WITHOUT_GLOB.fullmatch(plain[0])
                parts.append(plain[0])
                self.position = plain.end()
                continue
            character = text[self.position]
            if character in " \t\n;&|()" or (character in "<>" and not self._is_at_process()):
                break
            is_quoted |= character in "\\'\"" or text.startswith(("$'", '$"'), self.position)
            part = self._read_part(character)
            parts.append(part if character in "~#{}" else part.translate(_MASK))
        return "".join(parts), is_quoted

    def _is_at_process(self) -> bool:
        """Whether `<(…)` or `>(…)` follows."""
        return self.text.startswith(("<(", ">("), self.position)

    def _read_part(self, character: str) -> str:
        """Read the part of a word that begins with this special character; returns it without quotes."""
        begin = self.position + 1
        if character == "\\":
            self.position += 2
            return self.text[begin : begin + 1]
        if character == "'":
            end = self._find_or_end("'", begin)
            self.position = end + 1
            return self.source.cut(begin, end)
        if character == '"':
            self.position = begin
            return self.read_quoted()
        if character == "$":
            return self._read_dollar(in_quotes=False)
        if character == "`":
            return self._read_backticks()
        if character in "<>":
            self.position += 2
            script = self._read_to_closing("(")
            if character == "<":
                self.current.substitutions.append(script)
            else:
                self.current.output_readers = (*self.current.output_readers, script)
            return f"{character}()"
        self.position = begin  # ~ # { } inside a word
        return character

    def read_quoted(self, *, is_closed: bool = True) -> str:
        """Read what is in double quotes: up to the closing one, or else the rest of the text."""
        text = self.text
        parts: list[str] = []
        while self.position < len(text):
            match = _QUOTE_END.search(text, self.position)
            end = match.start() if match else len(text)
            parts.append(text[self.position : end])
            self.position = end
            if match is None:
                break
            character = match[0]
            if character == '"':
                self.position += 1
                if is_closed:
                    break
                parts.append(character)
            elif character == "\\":
                following = text[self.position + 1 : self.position + 2]
                parts.append(following if following in '"\\$`' else "\\" + following)
                self.position += 2
            elif character == "$":
                parts.append(self._read_dollar(in_quotes=True))
            else:
                parts.append(self._read_backticks())
        return "".join(parts)

    def _read_dollar(self, *, in_quotes: bool) -> str:
        """Read the `$…` at the current position: as `$()`, its known value, or the text itself."""
        if self.text.startswith("$(", self.position):
            return self._read_substitution()
        if self.text.startswith("$'", self.position) and not in_quotes:
            begin = self.position + 2
            end = self._find_unescaped("'", begin)
            self.position = end + 1
            return unescape(self.source.cut(begin, end))
        if self.text.startswith('$"', self.position) and not in_quotes:
            self.position += 2
            return self.read_quoted()
        if self.text.startswith("$[", self.position):
            self.position += 2
            return f"$[{self._add_substitutions(self._read_to_closing('['))}]"
        return self._expand(self._read_parameter(in_quotes=in_quotes))

    def _read_substitution(self) -> str:
        """Read `$(…)`, one of `substitutions`, or `$((…))`, which runs only the scripts within it."""
        begin = self.position + 1
        self.position += 2
        inner = self._read_to_closing("(")
        if self._is_arithmetic(begin):
            return f"$(({self._add_substitutions(inner)}))"
        self.current.substitutions.append(inner)
        return "$()"

    def _is_arithmetic(self, begin: int) -> bool:
        """Whether the `(` at this index begins `((…))`, and not two groups as in `((a); (b))`."""
        if not self.text.startswith("((", begin):
            return False
        if begin not in self.closings:
            position, self.position = self.position, begin + 1
            self._read_to_closing("(")
            self.position = position
        return self.closings.get(begin + 1) == self.closings[begin] - 1

    def _add_substitutions(self, text: str) -> str:
        """Add the scripts in a text that the shell expands; returns a `$()` for each."""
        scripts = find_scripts_in_quotes(text, self.depth + 1)
        self.current.substitutions += scripts
        return "$()" * len(scripts)

    def _read_subscript(self, begin: int) -> str:
        """Read `NAME[…]` of an assignment as `NAME`; nothing if it is none. `begin` is the index of the subscript."""
        start, self.position = self.position, begin
        inner = self._read_to_closing("[")
        if re.match(r"\+?=", self.text[self.position : self.position + 2]):
            self._add_substitutions(inner)
            return self.text[start : begin - 1]
        self.position = start
        return ""

    def _read_parameter(self, *, in_quotes: bool) -> str:
        """Read `$NAME` or `${…}` as it is written, with `$()` for the scripts in it. A `$` alone is a character."""
        text, begin = self.text, self.position
        if text.startswith("${", begin):
            self.position += 2
            inner = self._read_to_closing('"{' if in_quotes and _TAKES_DEFAULT.match(text, begin) else "{")
            return f"${{{self._add_substitutions(inner) or _Source(inner).joined}}}"
        name = _NAME.match(text, begin + 1) or _SPECIAL_PARAMETER.match(text, begin)
        self.position = name.end() if name else begin + 1
        return text[begin : self.position]

    def _expand(self, parameter: str) -> str:
        """The value of a parameter that the text itself sets, else its default, else the parameter as it is."""
        known_values = self.current.assigned | self.variables
        as_prompt = _AS_PROMPT.fullmatch(parameter)
        if as_prompt and as_prompt[1] in known_values:
            value = known_values[as_prompt[1]][:1000]
            return self._add_substitutions(value) or value
        default = _DEFAULT_VALUE.fullmatch(parameter)
        if default and default[1] not in known_values:
            return re.sub(r"['\"\\]", "", default[2][:1000])
        match = _PARAMETER.fullmatch(f"${{{default[1]}}}" if default else parameter)
        name = (match[1] or match[2]) if match else ""
        if name == "IFS":
            return " "
        return known_values[name][:1000] if name in known_values else parameter

    def _read_backticks(self) -> str:
        begin = self.position + 1
        end = self._find_unescaped("`", begin)
        self.current.substitutions.append(_ESCAPED_IN_BACKTICKS.sub(r"\1", self.source.cut(begin, end)))
        self.position = end + 1
        return "$()"

    def _expand_braces(self, word: str) -> list[str]:
        """The words that the shell makes of the braces in a word, each once; the word with a `$` if they are too many
        to be read."""
        waiting, expanded = [word], dict[str, None]()
        while waiting:
            piece = waiting.pop()
            match = _BRACES.fullmatch(piece) if "{" in piece else None
            if match is None:
                expanded[piece.translate(_UNMASK)] = None
                continue
            before, listed, first, last, after = match.groups()
            parts = listed.split(",") if first is None else _list_letters(first, last)
            self.brace_words_left -= len(parts)
            if self.brace_words_left < 0:
                return [f"${word.translate(_UNMASK)}"]
            waiting += dict.fromkeys(before + part + after for part in reversed(parts))
        return [piece for piece in expanded if piece] if len(expanded) > 1 else list(expanded)

    def _split_word(self, word: str) -> list[str]:
        """The words that the shell makes of an unquoted one with the value of a variable."""
        separators = " " + self.variables.get("IFS", "")
        if any(separator in word for separator in separators):
            return re.split(f"[{re.escape(separators)}]+", word)
        return [word]

    def _read_to_closing(self, opening: str) -> str:
        """Read up to the bracket that closes the last one; returns what is between as it is written. Brackets in quotes
        do not count."""
        start = self.position
        opened = [start - 1]
        while opened and (match := _BRACKETS[opening].search(self.text, self.position)):
            self.position = match.end()
            if match[0] in ")]}":
                self.closings[opened.pop()] = match.start()
            elif match[0] == "\\":
                self.position += 1
            elif match[0] in "'\"":
                self._skip_quoted(match[0])
            else:
                opened.append(match.start())
        if opened:
            self.position = len(self.text)
            self.closings.update(dict.fromkeys(opened, self.position))
        return self.source.cut(start, self.closings[start - 1])

    def _skip_quoted(self, quote: str) -> None:
        """Move behind the closing quotation mark."""
        begin = self.position
        end = self._find_unescaped(quote, begin) if quote == '"' else self._find_or_end(quote, begin)
        self.position = min(end + 1, len(self.text))

    def _find_unescaped(self, character: str, begin: int) -> int:
        """The index of `character` without a backslash before it; the length of the text or more if there is none."""
        end = begin
        while end < len(self.text) and self.text[end] != character:
            end += 2 if self.text[end] == "\\" else 1
        return end

    def _find_or_end(self, wanted: str, begin: int) -> int:
        """The index of the text `wanted`, the length of the whole text if there is none."""
        index = self.text.find(wanted, begin)
        return len(self.text) if index < 0 else index


class _CommandReader(_WordReader):
    """Reads the commands of one text, with their groups, redirections and here-documents."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.commands: list[SimpleCommand] = []
        self.open_groups: list[_Group] = []
        self.open_parentheses = 0
        """The number of `(` among `open_groups`."""
        self.groups: list[SimpleCommand] = []
        """The groups whose end was read, inner ones first."""
        self.heredocs: list[_Heredoc] = []
        self.arithmetic_end = 0
        """The end of the last `((…))`."""

    def run(self) -> list[SimpleCommand]:
        text = self.text
        while self.position < len(text) and len(self.commands) < MAX_COMMANDS:
            character = text[self.position]
            if character in " \t":
                self.position += 1
            elif character == "\n" or (character == "#" and self.position >= self.arithmetic_end):
                self._end_line()
            elif character in ";&|()":
                self._read_operator(character)
            elif character in "<>" and not self._is_at_process():
                self._read_redirect()
            else:
                self._add_word()
        self._end_command()
        while self.open_groups:
            self._end_group(SimpleCommand())
        for group in self.groups:
            _pass_input_on(group)
        return self.commands

    def _read_operator(self, character: str) -> None:
        text = self.text
        if character == "&" and text.startswith("&>", self.position):
            self.position += 1
            self._read_redirect()
            return
        if character == "|" and not text.startswith("||", self.position):
            upstream = self.current
            self.position += 2 if text.startswith("|&", self.position) else 1
            self._end_command()
            self.current.piped_from = upstream if upstream.argv or upstream.piped_from or upstream.body else None
            return
        first_word = next((word for word in self.current.argv if word not in _KEYWORDS), "")
        if character == ")" and (self._is_in_case() or first_word == "case"):
            self.current.globs.clear()  # a pattern of `case`
        self.position += 1
        source = self.current.piped_from
        self._end_command()
        if character == "(":
            if self._is_arithmetic(self.position - 1):
                self.arithmetic_end = max(self.arithmetic_end, self.closings[self.position - 1])
            self.open_groups.append(_Group(")", len(self.commands), source))
            self.open_parentheses += 1
        elif character == ")":
            self._end_parenthesis()

    def _is_in_case(self) -> bool:
        """Whether the innermost open group is `case`, so that a `)` ends a pattern."""
        return bool(self.open_groups) and self.open_groups[-1].end == "esac"

    def _end_parenthesis(self) -> None:
        """End the innermost `(…)`, and what is open within it. At a pattern of `case` there is none."""
        if self._is_in_case() or not self.open_parentheses:
            return
        while self.open_groups[-1].end != ")":
            self._end_group(SimpleCommand())
        self._end_group(self.current)
        self.open_parentheses -= 1

    def _end_group(self, group: SimpleCommand) -> None:
        """End the innermost group. `group` gets its input and its commands, and the redirections that follow."""
        ended = self.open_groups.pop()
        group.piped_from, group.body = ended.piped_from, self.commands[ended.start :]
        if group.body:
            self.groups.append(group)

    def _remove_keywords(self, simple: SimpleCommand) -> None:
        """Remove the words before a command that are no part of it, and begin or end the groups that they stand for."""
        while simple.argv and not simple.quoted[0]:
            word = simple.argv[0]
            if word in _GROUP_ENDS:
                self.open_groups.append(_Group(_GROUP_ENDS[word], len(self.commands), simple.piped_from))
            elif self.open_groups and word == self.open_groups[-1].end:
                self._end_group(simple)
            if word not in _KEYWORDS and word not in _GROUP_ENDS.values():
                return
            simple.remove_words(0, 1)

    def _end_command(self) -> None:
        simple, self.current = self.current, SimpleCommand()
        if simple.argv[:1] == ["function"] and len(simple.argv) > 2:
            simple.remove_words(0, 2)
        self._remove_keywords(simple)
        while simple.argv and (assignment := _ASSIGNMENT.fullmatch(simple.argv[0])):
            simple.assigned[assignment[1]] = assignment[2][:1000]
            simple.remove_words(0, 1)
        self.variables.update(simple.assigned)
        if simple.argv[:1] == ["for"] and "in" in simple.argv[:3] and len(simple.argv) > 3:
            self.variables[simple.argv[1]] = " ".join(simple.argv[simple.argv.index("in") + 1 :])[:200]
        evaluated = list(simple.assigned.values())
        program = simple.argv[0].rsplit("/", 1)[-1] if simple.argv else ""
        if program in _EVALUATING_PROGRAMS or simple.argv[:2] == ["printf", "-v"]:
            evaluated += simple.argv[1:]
        for value in filter(_SCRIPT_IN_SUBSCRIPT.match, evaluated):
            simple.substitutions += find_scripts_in_quotes(value, self.depth + 1)
        if simple.argv or simple.substitutions or simple.redirects or simple.assigned or simple.stdin is not None:
            self.commands.append(simple)

    def _read_redirect(self) -> None:
        text, start = self.text, self.position
        match = _REDIRECTION.match(text, start)
        operator = match[0] if match else text[start]
        self.position += len(operator)
        if operator.startswith("<<") and start < self.arithmetic_end:
            return  # moves bits
        if blank := _BLANK.match(text, self.position):
            self.position = blank.end()
        follows_digit = start > 0 and text[start - 1].isdigit()
        if follows_digit and self.current.argv and self.current.argv[-1].isdigit() and not self.current.quoted[-1]:
            self.current.remove_words(-1)  # in `2>file` the number is the descriptor
        word, is_quoted = self._read_word()
        word = word.translate(_UNMASK)
        if operator in ("<<", "<<-"):
            self.heredocs.append(_Heredoc(self.current, word, operator == "<<-", expands=not is_quoted))
        elif operator == "<<<":
            self.current.stdin = word
        else:
            self.current.redirects.append((operator, word))

    def _end_line(self) -> None:
        """Read a comment, if there is one, the line break, and the here-documents behind it."""
        upstream = None if self.current.argv or self.current.body else self.current.piped_from
        self._end_command()
        self.current.piped_from = upstream  # a command may follow in the line after `|`
        begin = self.source.find_line_end(self.source.find_written(self.position), joins=False) + 1
        pending, self.heredocs = self.heredocs, []
        for heredoc in pending:
            begin = self._read_heredoc(heredoc, begin)
        self.position = self.source.find_joined(begin)

    def _read_heredoc(self, heredoc: _Heredoc, begin: int) -> int:
        """Read the lines up to the delimiter. Returns the index behind it; both indices are of the text as it is
        written."""
        written = self.source.written
        body_end = position = begin
        while position < len(written):
            end = self.source.find_line_end(position, joins=heredoc.expands)
            line = written[position:end].replace("\\\n", "")
            position = end + 1
            if (line.lstrip("\t") if heredoc.strips_tabs else line) == heredoc.delimiter:
                break
            body_end = end
        body = written[begin:body_end]
        heredoc.reader.stdin = _Source(body).joined if heredoc.expands else body
        if heredoc.expands:
            # The shell runs these while it makes the document.
            heredoc.reader.substitutions += find_scripts_in_quotes(body)
        return position

    def _add_word(self) -> None:
        start = self.position
        word, is_quoted = self._read_word()
        if self.position == start:
            self.position += 1
            return
        words = self._expand_braces(word)
        if not is_quoted and "$" in self.text[start : self.position]:
            words = [piece for word in words for piece in self._split_word(word)]
        if self.has_glob:
            self.current.globs.update(words)
        self.current.argv += words
        self.current.quoted += [is_quoted] * len(words)
