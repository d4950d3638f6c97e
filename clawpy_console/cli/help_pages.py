"""The pages of the documentation, which `clawpy help` shows: paged in a terminal and plain in a pipe (SPEC 9.8)."""

from __future__ import annotations

import difflib
import os
import sys
from pathlib import Path

import engine
from clawpy_console.cli import print_output
from engine import Home

KEYS_PAGE = "keys"
"""The page that is generated from the table of keys."""


def find_pages_folder() -> Path:
    """The folder of the pages: in the wheel, or beside an editable install."""
    inside = Path(__file__).parent.parent / "docs"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "docs"


def collect_topics() -> list[str]:
    """The names of all pages, in small letters."""
    return sorted({KEYS_PAGE, *(file.stem.lower() for file in find_pages_folder().glob("*.md"))})


def show_page(topic: str | None, home: Home) -> None:
    """Show a page, or the list of pages; keys are those of `home`. Raises `Refusal` `unknown_topic`."""
    if topic is None:
        rows = [f"- `clawpy help {name}`: {_read_title(name)}" for name in collect_topics()]
        text = "\n".join(["# Pages", "", *rows, "", "`clawpy VERB --help` explains a verb."])
    else:
        text = _get_page(topic.lower(), home)
    if not sys.stdout.isatty():
        print_output(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(width=min(Console().width, 100), no_color=bool(os.environ.get("NO_COLOR")) or None)
    # As git does: `less` ends at once where everything fits, and shows colours.
    os.environ.setdefault("LESS", "FRX")
    with console.pager(styles=True, links=False):
        console.print(Markdown(text))


def _read_title(topic: str) -> str:
    """The first heading of a page."""
    lines = ["# Keys of the console"] if topic == KEYS_PAGE else _read_page(topic).splitlines()
    return next((line.lstrip("# ") for line in lines if line.startswith("# ")), topic)


def _get_page(topic: str, home: Home) -> str:
    if topic == KEYS_PAGE:
        return _make_keys_page(home)
    names = collect_topics()
    if topic not in names:
        close = difflib.get_close_matches(topic, names, 3) or names
        raise engine.Refusal("unknown_topic", f"there is no page {topic!r}", f"one of {', '.join(close)}")
    return _read_page(topic)


def _read_page(topic: str) -> str:
    [file] = [file for file in find_pages_folder().glob("*.md") if file.stem.lower() == topic]
    return file.read_text(encoding="utf-8")


def _make_keys_page(home: Home) -> str:
    """The table of keys as a page, with the changes of the settings."""
    from clawpy_console.appearance import read_configured_keys
    from clawpy_console.keys import ACTIONS, GROUP_TITLES, check_keymap, format_key_with_letters

    keymap = check_keymap(read_configured_keys(home))[0]
    example = "clawpy config set 'keys.\"stack.approve\"' right,l,a"
    lines = ["# Keys of the console", "", f"To change the keys of an action, put its ID in quotes: `{example}`."]
    for group, title in GROUP_TITLES.items():
        rows = [
            f"| {format_key_with_letters(action.id, keymap)} | {action.tooltip} | `{action.id}` |"
            for action in ACTIONS
            if action.group == group
        ]
        lines += ["", f"## {title}", "", "| Key | What it does | ID |", "| --- | --- | --- |", *rows]
    return "\n".join(lines)


def make_page_document(topic: str, home: Home) -> dict[str, str]:
    """A page as JSON. Raises `Refusal` `unknown_topic`."""
    return {"topic": topic.lower(), "text": _get_page(topic.lower(), home)}


def make_pages_document() -> list[dict[str, str]]:
    """The list of pages as JSON."""
    return [{"topic": topic, "title": _read_title(topic)} for topic in collect_topics()]
