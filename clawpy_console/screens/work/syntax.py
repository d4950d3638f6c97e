"""Highlights the lines of a file by its language."""

from __future__ import annotations

from functools import cache
from pathlib import PurePath

from pygments.lexers import find_lexer_class_for_filename, get_lexer_by_name
from pygments.token import Token
from textual.highlight import HighlightTheme, highlight


class SyntaxTheme(HighlightTheme):
    """The tones of a `DiffView` for the tokens of code."""

    STYLES = {
        Token.Comment: "comment", Token.Keyword: "keyword", Token.Operator.Word: "keyword",
        Token.Literal.String: "string", Token.Literal.Number: "string", Token.Name.Decorator: "keyword",
        Token.Name.Function: "name", Token.Name.Class: "name", Token.Name.Tag: "keyword",
    }  # fmt: skip


def language_of(path: str) -> str:
    """The language that a file is highlighted in, by its name; "" for none. The first call for a language loads it."""
    name = PurePath(path).name
    return _language(PurePath(name).suffix or name)


@cache
def _language(ending: str) -> str:
    lexer = find_lexer_class_for_filename(ending if not ending.startswith(".") else f"a{ending}")
    return get_lexer_by_name(lexer.aliases[0]).aliases[0] if lexer is not None and lexer.aliases else ""


def highlight_lines(code: str, language: str) -> list[list[tuple[str, str]]]:
    """The lines of `code` as tokens, each with its tone."""
    content = highlight(code, language=language, theme=SyntaxTheme)
    lines: list[list[tuple[str, str]]] = [[]]
    position = 0
    spans = [(span.start, span.end, str(span.style)) for span in content.spans[1:]]  # the first covers all of the code
    for start, end, span_tone in [*spans, (len(code), len(code), "")]:
        for text, tone in ((code[position:start], ""), (code[start:end], span_tone)):
            first, *rest = text.split("\n")
            lines[-1].append((tone, first))
            lines += [[(tone, piece)] for piece in rest]
        position = end
    return lines
