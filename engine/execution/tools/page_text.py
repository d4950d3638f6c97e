"""Makes the text of a web page, which a tool returns to a model (SPEC 3.8).

Web pages may be hostile, and `html.parser` can take minutes for a few megabytes of broken HTML. No pattern in this
module searches beyond the next tag or the end of a comment, so the time is proportional to the length of the page.
Broken HTML is never an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import NamedTuple

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
_STARTS = {
    **dict.fromkeys(_BLOCKS, "\n\n"), **_HEADINGS,
    "li": "\n- ", "br": "\n", "td": " | ", "th": " | ", "pre": "\n```\n",
}  # fmt: skip
"""The text that stands for the beginning of an element."""

_ENDS = dict.fromkeys([*_BLOCKS, *_HEADINGS], "\n\n") | {"pre": "\n```\n"}
"""The text that stands for the end of an element."""

_TAG = re.compile(r"<!--.*?(?:-->|\Z)|<(?P<end>/?)(?P<tag>[a-zA-Z][\w:-]{0,40})(?P<rest>[^<>]*)>?|<[!?/][^<>]*>?", re.S)
_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.I)
_HIDDEN = re.compile(r"\shidden(?=[\s=/]|$)|\saria-hidden\s{0,9}=\s{0,9}[\"']?true", re.I)
_HREF, _ALT = (
    re.compile(rf"\s{name}\s{{0,9}}=\s{{0,9}}(?:\"([^\"]*)|'([^']*)|([^\s>]*))", re.I) for name in ("href", "alt")
)


class _Tag(NamedTuple):
    """A tag of a page, with the text before it. A comment has no name."""

    text: str
    """As it is in the page, with character references."""
    name: str = ""
    is_end: bool = False
    """Whether it ends an element."""
    attributes: str = ""


def html_to_text(html: str) -> str:
    """The text of a page: its title, then words, headings, lists and links. Scripts, styles and hidden parts are left
    out."""
    page = _PageText()
    for tag in _find_visible_tags(html):
        page.add(tag)
    title = _TITLE.search(html)
    return "\n\n".join(filter(None, [" ".join(unescape(title[1]).split()) if title else "", page.text()]))


class _PageText:
    """The text of a page, which grows tag by tag."""

    def __init__(self) -> None:
        self._pieces = ["\n"]
        self._link_targets: list[str] = []
        """The targets of the links that are open, "" for one that is not shown."""
        self._is_preformatted = False

    def add(self, tag: _Tag) -> None:
        """Add the text before a tag, and what stands for the tag itself."""
        text = unescape(tag.text)
        if not self._is_preformatted:
            text = re.sub(r"\s+", " ", text)
            text = text.lstrip() if self._pieces[-1][-1] in " \n" else text
        if tag.name == "pre":
            self._is_preformatted = not tag.is_end
        self._pieces += filter(None, [text, self._render(tag)])

    def text(self) -> str:
        """The text so far, without blank lines in a row."""
        lines = "".join(self._pieces).split("\n")
        return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()

    def _render(self, tag: _Tag) -> str:
        """What stands for a tag in the text."""
        if tag.name == "a" and tag.is_end:
            target = self._link_targets.pop() if self._link_targets else ""
            return f" ({target})" if target else ""
        if tag.name == "a":
            target = _read_attribute(_HREF, tag.attributes)
            self._link_targets.append(target if target.startswith(("http://", "https://", "/")) else "")
            return ""
        if tag.name == "img":
            alternative = _read_attribute(_ALT, tag.attributes)
            return f"[{alternative}]" if alternative else ""
        return (_ENDS if tag.is_end else _STARTS).get(tag.name, "")


def _find_visible_tags(html: str) -> Iterator[_Tag]:
    """The tags outside of hidden elements. The tag that begins a hidden element has only the text before it."""
    hidden_element, depth = "", 0
    for tag in _split_tags(html):
        if depth:
            if tag.name == hidden_element and tag.is_end:
                depth -= 1
            elif tag.name == hidden_element and tag.name not in _HIDDEN_ELEMENTS:
                depth += 1
        elif _begins_hidden_element(tag):
            hidden_element, depth = tag.name, 1
            yield _Tag(tag.text)
        else:
            yield tag


def _split_tags(html: str) -> Iterator[_Tag]:
    """All tags of a page. One is added at the end, which has the rest of the text."""
    place = 0
    for match in _TAG.finditer(f"{html}</html>"):
        yield _Tag(html[place : match.start()], (match["tag"] or "").lower(), bool(match["end"]), match["rest"] or "")
        place = match.end()


def _begins_hidden_element(tag: _Tag) -> bool:
    if tag.is_end:
        return False
    is_marked = tag.name not in _OPEN_ENDED and _HIDDEN.search(tag.attributes) is not None
    return is_marked or tag.name in _HIDDEN_ELEMENTS


def _read_attribute(pattern: re.Pattern[str], attributes: str) -> str:
    """The value of an attribute of a tag; "" without it."""
    match = pattern.search(attributes)
    return unescape(match[match.lastindex or 0]).strip() if match else ""
