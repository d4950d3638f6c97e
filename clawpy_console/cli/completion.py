"""Completes the words of `clawpy` in bash, zsh and fish (SPEC 9.8).

To complete a word, the shell runs `clawpy` with `_ARGCOMPLETE` set and waits for the answer of `argcomplete`. Therefore
heavy modules are imported where they are used.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from clawpy_console.cli.verbs import make_parser

INSTALLATION = {
    "bash": 'add this line to ~/.bashrc:\n#     eval "$(clawpy completion bash)"',
    "zsh": 'add this line to ~/.zshrc, after compinit:\n#     eval "$(clawpy completion zsh)"',
    "fish": "run this command once:\n#     clawpy completion fish > ~/.config/fish/completions/clawpy.fish",
}


def completion_script(shell: str) -> str:
    """The completion script of a shell, with how to install it."""
    from argcomplete.shell_integration import shellcode

    code = shellcode(["clawpy"], use_defaults=False, shell=shell).strip()
    return f"{code}\n# To install these completions, {INSTALLATION[shell]}\n"


def complete() -> None:
    """Answer the shell that waits for completions, and exit."""
    from argcomplete import autocomplete
    from argcomplete.completers import SuppressCompleter

    top = make_parser(os.environ.get("COMP_LINE", "").split())
    _add_completers(top)
    autocomplete(top, always_complete_options=False, default_completer=SuppressCompleter())


def _add_completers(to: argparse.ArgumentParser) -> None:
    for action in to._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                _add_completers(subparser)
        elif action.choices is None:
            action.completer = partial(_values, getattr(action, "values", ""))  # type: ignore[attr-defined]


def _values(kind: str, prefix: str, parsed_args: argparse.Namespace, **_: Any) -> Iterable[str]:
    """The values of a kind. They need not begin with `prefix`, because `argcomplete` filters them."""
    from argcomplete.completers import DirectoriesCompleter, FilesCompleter

    from engine import Home, completion_names

    home = Home.locate(getattr(parsed_args, "home", None))
    match kind:
        case "":
            return ()
        case "file":
            return list(FilesCompleter()(prefix))
        case "topics":
            from clawpy_console.cli.help import topics

            return dict.fromkeys(topics(), "page of the documentation")
        case "workspaces":
            return [*completion_names(home, "workspaces"), *DirectoriesCompleter()(prefix)]
        case "flows":
            return _flows_or_parameters(completion_names(home, "flows"), parsed_args.text or [])
    return _ids(completion_names(home, kind), prefix)


def _ids(titles_by_name: Mapping[str, str], prefix: str) -> Mapping[str, str]:
    """The names with their titles. If no name begins with `prefix`, the names are offered without what stands before
    their underscore: `7k2m` for `card_7k2m`."""
    if any(name.startswith(prefix) for name in titles_by_name):
        return titles_by_name
    return {name.partition("_")[2]: title for name, title in titles_by_name.items()}


def _flows_or_parameters(flows: Mapping[str, Any], words: list[str]) -> Mapping[str, str]:
    """The flows, or the parameters of a flow if `words` begin with its name."""
    if not words:
        return {name: flow["title"] for name, flow in flows.items()}
    flow = flows.get(words[0], {"parameters": {}})
    present = {word.partition("=")[0] for word in words[1:] if "=" in word}
    return {f"{name}=": description for name, description in flow["parameters"].items() if name not in present}
