"""Completions of the shell: the values of each argument, and the script that asks for them (SPEC 9.8).

`argcomplete` speaks with bash, zsh and fish. The shell runs `clawpy` with `_ARGCOMPLETE` set and waits for it, so
nothing heavy is imported here.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from argcomplete import autocomplete
from argcomplete.completers import DirectoriesCompleter, FilesCompleter, SuppressCompleter
from argcomplete.shell_integration import shellcode

from clawpy_console.cli import pages
from clawpy_console.cli.verbs import parser
from engine import Home, completion_names

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
            return dict.fromkeys(pages.topics(), "page of the documentation")
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
