"""Turns the HTML of a web page into text for `web_fetch` (SPEC 3.8).

Pages may be hostile, and `html.parser` can take minutes for a few megabytes of broken HTML. No pattern in this module
searches beyond the next tag, so the time is proportional to the length of the page. Broken HTML is never an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

_HIDDEN_ELEMENTS = frozenset(
    {
        "title", "script", "style", "noscript", "iframe", "textarea", "xmp", "noembed", "template", "svg", "math",
        "object", "select", "canvas",
    }
)  # fmt: skip
"""Elements whose content is not shown to a reader. The title is read separately."""

_OPEN_ENDED = frozenset(
    {
        "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr", "p", "li",
        "td", "th", "tr", "dt", "dd", "option", "body", "html",
    }
)  # fmt: skip
"""Elements that need no end tag. They are never treated as hidden, because that could hide the whole rest of the
page."""

_BLOCKS = (
    "p", "div", "section", "article", "main", "header", "footer", "nav", "aside", "ul", "ol", "dl", "dt", "dd", "hr",
    "tr", "table", "figure", "form", "fieldset", "blockquote", "address", "details", "summary", "body",
)  # fmt: skip
_HEADINGS = {f"h{level}": "\n\n" + "#" * level + " " for level in range(1, 7)}
_STARTS = dict.fromkeys(_BLOCKS, "\n\n") | _HEADINGS
_STARTS |= {"li": "\n- ", "br": "\n", "td": " | ", "th": " | ", "pre": "\n```\n"}
_ENDS = dict.fromkeys([*_BLOCKS, *_HEADINGS], "\n\n") | {"pre": "\n```\n"}

_TAG = re.compile(r"<!--.*?(?:-->|\Z)|<(?P<end>/?)(?P<tag>[a-zA-Z][\w:-]{0,40})(?P<rest>[^<>]*)>?|<[!?/][^<>]*>?", re.S)
_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.I)
_HIDDEN = re.compile(r"\shidden(?=[\s=/]|$)|\saria-hidden\s{0,9}=\s{0,9}[\"']?true", re.I)
_HREF, _ALT = (
    re.compile(rf"\s{name}\s{{0,9}}=\s{{0,9}}(?:\"([^\"]*)|'([^']*)|([^\s>]*))", re.I) for name in ("href", "alt")
)


def html_to_text(html: str) -> str:
    """The text of a page: its title, then words, headings, lists and links. Scripts, styles and hidden parts are left
    out."""
    pieces = ["\n"]
    links: list[str] = []
    pre = False
    for words, tag, is_end, attributes in _visible_tags(html):
        if not pre:
            words = re.sub(r"\s+", " ", words)
            words = words.lstrip() if pieces[-1][-1] in " \n" else words
        pre = (pre and tag != "pre") if is_end else (pre or tag == "pre")
        written = (_ENDS if is_end else _STARTS).get(tag, "")
        if tag == "a" and is_end:
            href = links.pop() if links else ""
            written = f" ({href})" if href else ""
        elif tag == "a":
            href = _attribute(_HREF, attributes)
            links.append(href if href.startswith(("http://", "https://", "/")) else "")
        elif tag == "img" and (alt := _attribute(_ALT, attributes)):
            written = f"[{alt}]"
        pieces += filter(None, [words, written])
    title = _TITLE.search(html)
    text = "\n".join(line.rstrip() for line in "".join(pieces).split("\n"))
    parts = [" ".join(unescape(title[1]).split()) if title else "", re.sub(r"\n{3,}", "\n\n", text).strip()]
    return "\n\n".join(filter(None, parts))


def _visible_tags(html: str) -> Iterator[tuple[str, str, bool, str]]:
    """(text before the tag, name, whether it ends an element, attributes) of each tag outside of hidden elements."""
    hidden, depth, place = "", 0, 0
    for match in _TAG.finditer(f"{html}</html>"):
        words, place = html[place : match.start()], match.end()
        tag, is_end, attributes = (match["tag"] or "").lower(), bool(match["end"]), match["rest"] or ""
        if hidden:
            if tag == hidden and (is_end or tag not in _HIDDEN_ELEMENTS):
                depth += -1 if is_end else 1
            hidden = hidden if depth else ""
        elif not is_end and (tag in _HIDDEN_ELEMENTS or (tag not in _OPEN_ENDED and _HIDDEN.search(attributes))):
            hidden, depth = tag, 1
            yield unescape(words), "", False, ""
        else:
            yield unescape(words), tag, is_end, attributes


def _attribute(pattern: re.Pattern[str], rest: str) -> str:
    match = pattern.search(rest)
    return unescape(match[match.lastindex or 0]).strip() if match else ""
