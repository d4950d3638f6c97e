"""A shell command taken apart into its simple commands, on any input, in bounded time (SPEC 3.5).

Not a shell: it runs nothing and expands only what hides a word, such as quotes, `$'\\x72'`, `${IFS}`, a variable set
in the same text, braces. What it does not understand it keeps as plain words. Text in `$(…)`, backticks and `<(…)`
is given as `nested`, to be taken apart again. `fold` comes first: it gives a text as its reader sees it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field

MAX_LENGTH = 8_000
"""Characters of one text that are looked at; longer commands are not judged but asked about."""


@dataclass(slots=True)
class Simple:
    """One simple command: its words without quotes, what is fed to it, where it writes, what it runs inside words."""

    argv: list[str] = field(default_factory=list)
    quoted: list[bool] = field(default_factory=list)
    stdin: str | None = None
    source: Simple | None = None
    """The command whose output is piped in."""
    redirects: list[tuple[str, str]] = field(default_factory=list)
    nested: list[str] = field(default_factory=list)
    assigned: dict[str, str] = field(default_factory=dict)
    globs: set[str] = field(default_factory=set)
    """Words that the shell replaces by the names of files that fit them."""


MAX_COMMANDS = 300
"""Simple commands of one text that are looked at."""

_PLAIN = re.compile(r"[^\s'\"\\$`;&|<>(){}#\n~]+")
_NO_GLOB = re.compile(r"[^*?\[]*|\[\[?")
_BLANK = re.compile(r"[ \t]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=(.*)", re.DOTALL)
_PARAMETER = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_DEFAULT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):?[-=]([^${}`()]*)\}")
_ANSI = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "", "b": "", "e": "", "E": "", "f": "", "v": ""}
_BRACES = re.compile(r"^([^{}]*)\{([^{}]*,[^{}]*)\}([^{}]*)$")
_KEYWORDS = frozenset({"if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "fi", "done", "coproc"})


def words_of(text: str) -> list[str]:
    """The words of prose, split at white space."""
    return text.split()


def unescape(text: str) -> str:
    """What `$'…'`, `printf` and `echo -e` make of backslash escapes."""

    def one(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "xuU" and len(code) > 1:
            number = int(code[1:], 16)
            return chr(number) if number < 0x110000 else ""
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
        return _ESCAPES.get(code, code)

    return _ANSI.sub(one, text)


def parse(text: str) -> list[Simple]:
    """The simple commands of `text` in order; never raises, takes time linear in the length."""
    return _Parser(text[:MAX_LENGTH]).run()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text.replace("\\\n", "")
        self.at = 0
        self.found: list[Simple] = []
        self.current = Simple()
        self.known: dict[str, str] = {}
        self.heredocs: list[tuple[Simple, str, bool, bool]] = []
        self.globbed = False

    def run(self) -> list[Simple]:
        text = self.text
        while self.at < len(text) and len(self.found) < MAX_COMMANDS:
            character = text[self.at]
            if character in " \t":
                blank = _BLANK.match(text, self.at)
                self.at = blank.end() if blank else self.at + 1
            elif character == "\n":
                self.at += 1
                self._end()
                self._read_heredocs()
            elif character == "#":
                newline = text.find("\n", self.at)
                self.at = len(text) if newline < 0 else newline
            elif character in ";&|()":
                self._operator(character)
            elif character in "<>" and not text.startswith(("<(", ">("), self.at):
                self._redirect()
            else:
                self._add_word()
        self._end()
        return self.found

    def _operator(self, character: str) -> None:
        text = self.text
        if character == "&" and text.startswith("&>", self.at):
            self.at += 1
            self._redirect()
            return
        if character == "|" and not text.startswith("||", self.at):
            left = self.current
            self.at += 2 if text.startswith("|&", self.at) else 1
            self._end()
            self.current.source = left if left.argv or left.source else None
            return
        if character == ")" and "case" in self.text[: self.at]:
            self.current.globs.clear()  # a pattern of `case`
        self.at += 1
        self._end()

    def _end(self) -> None:
        simple, self.current = self.current, Simple()
        if simple.argv[:1] == ["function"] and len(simple.argv) > 2:
            del simple.argv[:2], simple.quoted[:2]
        while simple.argv and not simple.quoted[0] and simple.argv[0] in _KEYWORDS:
            simple.argv.pop(0)
            simple.quoted.pop(0)
        while simple.argv and (assignment := _ASSIGNMENT.fullmatch(simple.argv[0])):
            simple.assigned[assignment[1]] = assignment[2][:1000]
            simple.argv.pop(0)
            simple.quoted.pop(0)
        self.known.update(simple.assigned)
        if simple.argv[:1] == ["for"] and "in" in simple.argv[:3] and len(simple.argv) > 3:
            self.known[simple.argv[1]] = " ".join(simple.argv[simple.argv.index("in") + 1 :])[:200]
        if simple.argv or simple.nested or simple.redirects or simple.assigned or simple.stdin is not None:
            self.found.append(simple)

    def _redirect(self) -> None:
        text = self.text
        match = re.compile(r"<<<|<<-|<<|<>|<&|>>|>&|>\||>|<").match(text, self.at)
        operator = match[0] if match else text[self.at]
        self.at += len(operator)
        blank = _BLANK.match(text, self.at)
        if blank:
            self.at = blank.end()
        if self.current.argv and self.current.argv[-1].isdigit() and not self.current.quoted[-1]:
            # `2>file`: the number is the descriptor, when nothing stands between.
            start = self.at - len(operator) - (len(blank[0]) if blank else 0)
            if start > 0 and text[start - 1].isdigit():
                self.current.argv.pop()
                self.current.quoted.pop()
        word, quoted = self._word()
        if operator in ("<<", "<<-"):
            self.heredocs.append((self.current, word, operator == "<<-", quoted))
        elif operator == "<<<":
            self.current.stdin = word
        else:
            self.current.redirects.append((operator, word))

    def _read_heredocs(self) -> None:
        pending, self.heredocs = self.heredocs, []
        for simple, delimiter, tabs, quoted in pending:
            body: list[str] = []
            while self.at < len(self.text):
                newline = self.text.find("\n", self.at)
                end = len(self.text) if newline < 0 else newline
                line = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
                body.append(line)
            simple.stdin = "\n".join(body)
            if not quoted and ("$(" in simple.stdin or "`" in simple.stdin):
                # The shell runs these while it makes the document.
                inner = _Parser('"' + simple.stdin.replace('"', " ") + '"')
                simple.nested += [text for one in inner.run() for text in one.nested]

    def _add_word(self) -> None:
        start = self.at
        word, quoted = self._word()
        if self.at == start:
            self.at += 1
            return
        separators = " " + self.known.get("IFS", "")
        if not quoted and "$" in self.text[start : self.at] and any(separator in word for separator in separators):
            pieces = re.split(f"[{re.escape(separators)}]+", word)
        elif not quoted and (braces := _BRACES.match(word)):
            pieces = [braces[1] + part + braces[3] for part in braces[2].split(",")][:64]
            pieces = [piece for piece in pieces if piece]
        else:
            pieces = [word]
        if self.globbed:
            self.current.globs.update(pieces)
        for piece in pieces:
            self.current.argv.append(piece)
            self.current.quoted.append(quoted)

    def _word(self) -> tuple[str, bool]:
        """The word at the place reached, without quotes; and whether any of it was quoted."""
        text = self.text
        parts: list[str] = []
        quoted = False
        self.globbed = False
        while self.at < len(text):
            plain = _PLAIN.match(text, self.at)
            if plain:
                self.globbed |= not _NO_GLOB.fullmatch(plain[0])
                parts.append(plain[0])
                self.at = plain.end()
                continue
            character = text[self.at]
            if character in " \t\n;&|()" or (character in "<>" and not text.startswith(("<(", ">("), self.at)):
                break
            if character == "\\":
                quoted = True
                parts.append(text[self.at + 1 : self.at + 2])
                self.at += 2
            elif character == "'":
                quoted = True
                end = text.find("'", self.at + 1)
                end = len(text) if end < 0 else end
                parts.append(text[self.at + 1 : end])
                self.at = end + 1
            elif character == '"':
                quoted = True
                self.at += 1
                parts.append(self._double())
            elif character == "$":
                parts.append(self._dollar(in_quotes=False))
            elif character == "`":
                parts.append(self._backticks())
            elif text.startswith(("<(", ">("), self.at):
                self.at += 2
                self.current.nested.append(self._until_closing())
                parts.append("<()")
            else:  # ~ # { } inside a word
                parts.append(character)
                self.at += 1
        return "".join(parts), quoted

    def _double(self) -> str:
        text = self.text
        parts: list[str] = []
        stop = re.compile(r'["\\$`]')
        while self.at < len(text):
            match = stop.search(text, self.at)
            end = match.start() if match else len(text)
            parts.append(text[self.at : end])
            self.at = end
            if match is None:
                break
            character = match[0]
            if character == '"':
                self.at += 1
                break
            if character == "\\":
                following = text[self.at + 1 : self.at + 2]
                parts.append(following if following in '"\\$`' else "\\" + following)
                self.at += 2
            elif character == "$":
                parts.append(self._dollar(in_quotes=True))
            else:
                parts.append(self._backticks())
        return "".join(parts)

    def _dollar(self, *, in_quotes: bool) -> str:
        text = self.text
        if text.startswith("$(", self.at):
            arithmetic = text.startswith("$((", self.at)
            self.at += 2
            inner = self._until_closing()
            if not (arithmetic and inner.endswith(")")):
                self.current.nested.append(inner)
            return "$()"
        if text.startswith("$'", self.at) and not in_quotes:
            end = self.at + 2
            while end < len(text) and text[end] != "'":
                end += 2 if text[end] == "\\" else 1
            inner = text[self.at + 2 : end]
            self.at = end + 1
            return unescape(inner)
        if text.startswith("${", self.at):
            end = text.find("}", self.at)
            end = len(text) - 1 if end < 0 else end
            whole = text[self.at : end + 1]
            if "$(" in whole or "`" in whole:
                inner_script = _Parser('"' + whole[2:].replace('"', " ").replace("${", "$ {") + '"')
                self.current.nested += [one for simple in inner_script.run() for one in simple.nested]
            self.at = end + 1
        else:
            name = _NAME.match(text, self.at + 1)
            end = name.end() if name else self.at + 2
            whole = text[self.at : end]
            self.at = end
        default = _DEFAULT.fullmatch(whole)
        if default and not (default[1] in self.known or default[1] in self.current.assigned):
            return default[2][:1000]
        match = _PARAMETER.fullmatch(f"${{{default[1]}}}" if default else whole)
        name_of = (match[1] or match[2]) if match else ""
        if name_of == "IFS":
            return " "
        if name_of and (name_of in self.known or name_of in self.current.assigned):
            return self.known.get(name_of, self.current.assigned.get(name_of, ""))[:1000]
        return whole

    def _backticks(self) -> str:
        text = self.text
        end = self.at + 1
        while end < len(text) and text[end] != "`":
            end += 2 if text[end] == "\\" else 1
        self.current.nested.append(text[self.at + 1 : end].replace("\\`", "`"))
        self.at = end + 1
        return "$()"

    def _until_closing(self) -> str:
        """The text up to the parenthesis that closes the one just passed; quotes hide parentheses."""
        text = self.text
        start = self.at
        level = 1
        interesting = re.compile(r"[()'\"\\]")
        while self.at < len(text):
            match = interesting.search(text, self.at)
            if match is None:
                self.at = len(text)
                return text[start:]
            self.at = match.end()
            character = match[0]
            if character == "(":
                level += 1
            elif character == ")":
                level -= 1
                if level == 0:
                    return text[start : self.at - 1]
            elif character == "\\":
                self.at += 1
            else:
                end = self.at
                while end < len(text) and text[end] != character:
                    end += 2 if text[end] == "\\" and character == '"' else 1
                self.at = min(end + 1, len(text))
        return text[start:]


# Letters of other scripts that look like a Latin one. What NFKC folds by itself (full width, bold) is not listed.
_PAIRS = (
    "аa вb сc ԁd еe ɡg һh іi јj ԛq кk ӏl ⅼl мm пn оo рp ѕs тt υu ѵv ԝw хx уy ᴢz "
    "АA ВB СC ЕE НH ІI ЈJ КK МM ОO РP ЅS ТT ХX УY "
    "αa βb εe ηn ιi κk νv οo ρp τt χx υu γy ΑA ΒB ΕE ΖZ ΗH ΙI ΚK ΜM ΝN ΟO ΡP ΤT ΥY ΧX "
    "ıi ȷj ɑa ɩi օo ոn սu հh ցg "
    "‐- ‑- ‒- –- —- ―- −- ﹘- ﹣- "
    "∕/ ⁄/ ⧸/ ‘' ’' ‚' ‛' “\" ”\" „\" ´' ∣| ｜| ；; ⁏;"
)
_LOOKALIKES = str.maketrans({pair[0]: pair[1] for pair in _PAIRS.split()})
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\x85\r]")


def fold(text: str) -> str:
    """`text` as a reader sees it: NFKC, Latin look-alikes, plain dashes, quotes and spaces, nothing invisible.

    Accents stay. A line separator becomes a space, a newline stays. Takes time linear in the length.
    """
    if text.isascii():
        return _INVISIBLE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    text = _INVISIBLE.sub("", text.replace("\r\n", "\n"))
    text = _SPACES.sub(" ", text)
    return unicodedata.normalize("NFKC", text.translate(_LOOKALIKES)).translate(_LOOKALIKES)
