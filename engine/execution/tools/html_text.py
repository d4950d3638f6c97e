"""Makes text of a page of HTML: words, headings, lists, links; no scripts, styles or hidden parts.

Not `html.parser`: that takes minutes for some megabytes of rubbish, and pages are hostile. Here every step goes
forward, so the time is linear in the length, and nothing is an error.
"""

from __future__ import annotations

import re
from html import unescape

_RAW_ELEMENTS = frozenset({"script", "style", "noscript", "iframe", "textarea", "xmp", "noembed"})
"""Elements whose content is no markup, and no text for a reader."""

_SKIPPED_ELEMENTS = frozenset({"template", "svg", "math", "object", "select", "canvas"})
_BLOCKS = frozenset(
    {
        "p", "div", "section", "article", "main", "header", "footer", "nav", "aside", "ul", "ol", "dl", "dt", "dd",
        "hr", "tr", "table", "figure", "form", "fieldset", "blockquote", "address", "details", "summary", "body",
    }
)  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_OPEN_ENDED = frozenset(
    {
        "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr", "p", "li",
        "td", "th", "tr", "dt", "dd", "option", "body", "html",
    }
)  # fmt: skip
"""Tags that need no end: a hidden one could hide everything that follows."""

_TAG = re.compile(r"(/?)([a-zA-Z][a-zA-Z0-9:-]{0,40})")
_HIDDEN = re.compile(r"\shidden(?=[\s>=/]|$)|\saria-hidden\s{0,9}=\s{0,9}[\"']?true", re.IGNORECASE)
_HREF, _ALT = (
    re.compile(rf"\s{name}\s{{0,9}}=\s{{0,9}}(?:\"([^\"]*)|'([^']*)|([^\s>]*))", re.IGNORECASE)
    for name in ("href", "alt")
)


class _TextWriter:
    """Collects the text; white space becomes one space, except in `pre`."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.title: list[str] = []
        self.in_title = False
        self.pre = 0
        self.links: list[str] = []
        self._last = "\n"

    def put_words(self, text: str) -> None:
        text = unescape(text)
        if self.in_title:
            self.title.append(text)
            return
        if not self.pre:
            text = " ".join(text.split()).join((" " if text[:1].isspace() else "", " " if text[-1:].isspace() else ""))
            if self._last in " \n":
                text = text.lstrip(" ")
        self.put(text)

    def put(self, text: str) -> None:
        if text:
            self.pieces.append(text)
            self._last = text[-1]

    def open_tag(self, tag: str, whole: str) -> None:
        if tag == "title":
            self.in_title = True
        elif tag in _HEADINGS:
            self.put(f"\n\n{_HEADINGS[tag]}")
        elif tag == "li":
            self.put("\n- ")
        elif tag == "br":
            self.put("\n")
        elif tag in ("td", "th"):
            self.put(" | ")
        elif tag == "pre":
            self.pre += 1
            self.put("\n```\n")
        elif tag == "a":
            href = _attribute(_HREF, whole)
            self.links.append(href if href.startswith(("http://", "https://", "/")) else "")
        elif tag == "img" and (alt := _attribute(_ALT, whole)):
            self.put(f"[{alt}]")
        elif tag in _BLOCKS:
            self.put("\n\n")

    def close_tag(self, tag: str) -> None:
        if tag == "title":
            self.in_title = False
        elif tag == "pre" and self.pre:
            self.pre -= 1
            self.put("\n```\n")
        elif tag == "a" and self.links:
            if href := self.links.pop():
                self.put(f" ({href})")
        elif tag in _HEADINGS or tag in _BLOCKS:
            self.put("\n\n")

    def page_text(self) -> str:
        text = "\n".join(line.rstrip() for line in "".join(self.pieces).split("\n"))
        text = re.sub(r"\n{3,}", "\n\n", text).strip()
        title = " ".join("".join(self.title).split())
        return f"{title}\n\n{text}" if title else text


def html_to_text(html: str) -> str:
    """The text of a page, its title first. Rubbish is read as far as it can be; takes time linear in the length."""
    out = _TextWriter()
    lower = html.lower() if len(html.lower()) == len(html) else html
    silent: list[str] = []
    place = search_from = 0
    length = len(html)
    while place < length:
        at = html.find("<", max(place, search_from))
        named = _TAG.match(html, at + 1) if at >= 0 else None
        if at >= 0 and named is None and html[at + 1 : at + 2] not in ("!", "?", "/"):
            search_from = at + 1  # only a sign among the words
            continue
        if at < 0:
            at = length
        if at > place and not silent:
            out.put_words(html[place:at])
        if at == length:
            break
        if html.startswith("<!--", at):
            end = html.find("-->", at + 4)
            place = length if end < 0 else end + 3
            continue
        end = html.find(">", at)
        if end < 0:  # no tag ends any more
            break
        place = end + 1
        if named is None:
            continue
        closes, tag = bool(named[1]), named[2].lower()
        if silent:
            if tag == silent[-1]:
                silent.pop() if closes else silent.append(tag)
        elif closes:
            out.close_tag(tag)
        elif tag in _RAW_ELEMENTS:
            over = lower.find(f"</{tag}", place)
            place = length if over < 0 else over
        elif tag in _SKIPPED_ELEMENTS or (tag not in _OPEN_ENDED and _HIDDEN.search(html[at : end + 1])):
            silent.append(tag)
        else:
            out.open_tag(tag, html[at : end + 1])
    return out.page_text()


def _attribute(pattern: re.Pattern[str], tag: str) -> str:
    match = pattern.search(tag)
    return unescape(match[match.lastindex or 0]).strip() if match else ""
