"""Completions of the shell, and `clawpy help TOPIC`: pages of the documentation (SPEC 9.8).

`argcomplete` speaks with bash, zsh and fish. The shell runs `clawpy` with `_ARGCOMPLETE` set and waits for it, so
nothing heavy is imported here. A page is paged in a terminal and plain in a pipe.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from argcomplete import autocomplete
from argcomplete.completers import DirectoriesCompleter, FilesCompleter, SuppressCompleter
from argcomplete.shell_integration import shellcode

import engine
from clawpy_console.cli.verbs import parser
from engine import Home, completion_names

# `clawpy help TOPIC`: pages of the documentation, paged in a terminal and plain in a pipe (SPEC 9.8).


KEYS = "keys"
"""The page that is generated from the table of keys."""


def folder() -> Path:
    """The folder of the pages: in the wheel, or beside an editable install."""
    inside = Path(__file__).parent.parent / "docs"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "docs"


def topics() -> list[str]:
    """The names of all pages, in small letters."""
    return sorted({KEYS, *(file.stem.lower() for file in folder().glob("*.md"))})


def show(topic: str | None, home: Home) -> None:
    """Show a page, or the list of pages; keys are those of `home`. Raises `Refusal` `unknown_topic`."""
    text = _list() if topic is None else _page(topic.lower(), home)
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(width=min(Console().width, 100), no_color=bool(os.environ.get("NO_COLOR")) or None)
    # As git does: `less` ends at once where everything fits, and shows colours.
    os.environ.setdefault("LESS", "FRX")
    with console.pager(styles=True, links=False):
        console.print(Markdown(text))


def _list() -> str:
    rows = [f"- `clawpy help {topic}`: {_title(topic)}" for topic in topics()]
    return "\n".join(["# Pages", "", *rows, "", "`clawpy VERB --help` explains a verb."])


def _title(topic: str) -> str:
    """The first heading of a page."""
    lines = ["# Keys of the console"] if topic == KEYS else _read(topic).splitlines()
    return next((line.lstrip("# ") for line in lines if line.startswith("# ")), topic)


def _page(topic: str, home: Home) -> str:
    if topic == KEYS:
        return _keys(home)
    names = topics()
    if topic not in names:
        close = difflib.get_close_matches(topic, names, 3) or names
        raise engine.Refusal("unknown_topic", f"there is no page {topic!r}", f"one of {', '.join(close)}")
    return _read(topic)


def _read(topic: str) -> str:
    return next(file for file in folder().glob("*.md") if file.stem.lower() == topic).read_text(encoding="utf-8")


def _keys(home: Home) -> str:
    """The table of keys as a page, with the changes of the settings."""
    from clawpy_console.cli.settings import configured_keys
    from clawpy_console.keys import ACTIONS, GROUPS, check_keymap, shown_keys

    keymap = check_keymap(configured_keys(home))[0]
    example = "clawpy config set 'keys.\"stack.approve\"' right,l,a"
    lines = ["# Keys of the console", "", f"To change the keys of an action, put its ID in quotes: `{example}`."]
    for group, title in GROUPS.items():
        rows = [
            f"| {shown_keys(action.id, keymap)} | {action.tooltip} | `{action.id}` |"
            for action in ACTIONS
            if action.group == group
        ]
        lines += ["", f"## {title}", "", "| Key | What it does | ID |", "| --- | --- | --- |", *rows]
    return "\n".join(lines)


SCRIPT = """{code}
# To install these completions, {how}
"""

HOW = {
    "bash": 'add this line to ~/.bashrc:\n#     eval "$(clawpy completion bash)"',
    "zsh": 'add this line to ~/.zshrc, after compinit:\n#     eval "$(clawpy completion zsh)"',
    "fish": "run this command once:\n#     clawpy completion fish > ~/.config/fish/completions/clawpy.fish",
}


def script(shell: str) -> str:
    """The completion script of a shell, with how to install it."""
    return SCRIPT.format(code=shellcode(["clawpy"], use_defaults=False, shell=shell).strip(), how=HOW[shell])


def answer() -> None:
    """Answer the shell, and exit."""
    root = parser(os.environ.get("COMP_LINE", "").split())
    _complete(root)
    autocomplete(root, always_complete_options=False, default_completer=SuppressCompleter())


def _complete(root: argparse.ArgumentParser) -> None:
    for action in root._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action.choices.values():
                _complete(choice)
        elif action.choices is None:
            action.completer = partial(_values, getattr(action, "values", ""))  # type: ignore[attr-defined]


def _values(kind: str, prefix: str, parsed_args: argparse.Namespace, **_: Any) -> Iterable[str]:
    """The values of a kind that begin with `prefix`."""
    home = Home.locate(getattr(parsed_args, "home", None))
    match kind:
        case "":
            return ()
        case "file":
            return list(FilesCompleter()(prefix))
        case "topics":
            return dict.fromkeys(topics(), "page of the documentation")
        case "workspaces":
            return [*completion_names(home, "workspaces"), *DirectoriesCompleter()(prefix)]
        case "flows":
            return _flow_or_parameter(completion_names(home, "flows"), parsed_args.text or [])
    return _ids(completion_names(home, kind), prefix)


def _ids(titles_by_name: Mapping[str, str], prefix: str) -> Mapping[str, str]:
    """The names that begin with `prefix`; the prefix of an id before its underscore may be left out."""
    if any(name.startswith(prefix) for name in titles_by_name):
        return titles_by_name
    return {name.partition("_")[2]: title for name, title in titles_by_name.items()}


def _flow_or_parameter(flows: Mapping[str, Any], words: list[str]) -> Mapping[str, str]:
    """The flows, or behind the name of a flow its parameters."""
    if not words:
        return {name: flow["title"] for name, flow in flows.items()}
    flow = flows.get(words[0], {"parameters": {}})
    present = {word.partition("=")[0] for word in words[1:] if "=" in word}
    return {f"{name}=": description for name, description in flow["parameters"].items() if name not in present}
