"""The parser of the command line, made from `VERBS`: a command line needs the parsers of its own verb alone."""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NoReturn

import engine
from clawpy_console.cli.verbs import COMMON, GROUPS, VERBS, Argument, Verb

DESCRIPTION = """An operator's console for a swarm of AI agents. Without a verb it opens the console.

{verbs}

`clawpy VERB --help` explains a verb, `clawpy help` lists the pages of the documentation."""

EXAMPLES = "examples:\n  clawpy\n  clawpy predict\n  clawpy approve 7k2m --wait\n  clawpy --demo"


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without what could be a key or an escape sequence, and exits with 2."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)
        self._positionals.title = "arguments"
        common = self.add_argument_group("options before or after any verb")
        for one in COMMON:
            add(common, one, default=argparse.SUPPRESS)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            self.error(_unknown(action.dest, value, action.choices))
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        from engine.model import sanitise
        from engine.model.secrets import redact

        self.exit(2, f"{self.prog}: {sanitise(redact(message))}\nsee `{self.prog} --help`\n")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options of a command line. Prints help or what is wrong, and raises SystemExit."""
    made = parser(words)
    known, left = made.parse_known_args(words)
    if left and hasattr(known, "never"):  # it may hold a secret: `keys_entry` refuses it without printing it
        known.never = [*known.never, *left]
    elif left:
        made.prog = f"clawpy {known.verb}"
        made.error(f"unknown argument: {' '.join(left)}")
    return known


def parser(words: Sequence[str]) -> Parser:
    """The parser of a command line: it knows the names of all verbs, and the options of those that `words` name."""
    top = Parser(
        prog="clawpy",
        usage="clawpy [--workspace DIR]... [--home DIR] [--demo] [--version] [VERB ...]",
        description=DESCRIPTION.format(verbs="\n\n".join(_group(title, verbs) for title, verbs in GROUPS.items())),
        epilog=EXAMPLES,
    )
    top.add_argument("--version", action="version", version=f"clawpy {engine.__version__}", help="print the version")
    top.add_argument(
        "--demo", action="store_true", help="open the console on a made-up project that is deleted when you leave"
    )
    _add_verbs(top, VERBS.values(), "verb", words)
    top._action_groups = [one for one in top._action_groups if one.title != "verbs"]  # the description lists them
    return top


def _group(title: str, verbs: Sequence[Verb]) -> str:
    return "\n".join([f"{title}:", *(f"  {one.name:12} {one.summary}" for one in verbs)])


def _add_verbs(to: Parser, verbs: Collection[Verb], name: str, words: Sequence[str]) -> None:
    of_all = to.add_subparsers(
        dest=name,
        required=name == "verb",
        prog=to.prog,
        metavar=name.upper(),
        title=f"{name}s",
        parser_class=Parser,
    )
    for verb in verbs:
        if verb.name not in words:
            of_all.add_parser(verb.name, help=verb.summary, add_help=False)
            continue
        default = f" Without an action: {verb.actions[0].name}." if verb.actions else ""
        made = of_all.add_parser(
            verb.name,
            help=verb.summary,
            description=f"{verb.summary[0].upper()}{verb.summary[1:]}.{default}",
        )
        made.epilog = f"example:\n  {verb.example or made.prog}"
        for one in verb.arguments:
            add(made, one)
        if verb.actions:
            _add_verbs(made, verb.actions, "action", words)


def add(to: argparse._ActionsContainer, one: Argument, **settings: Any) -> None:
    """Add an argument, with the values that a shell offers for it."""
    made = to.add_argument(one.name, **settings, **one.settings)
    if not made.option_strings and not made.choices:
        made.metavar = made.metavar or made.dest.upper()
    made.values = one.values  # type: ignore[attr-defined]


def _unknown(kind: str, word: str, known: Collection[str]) -> str:
    """What is wrong with a word that is no verb or action, and what may have been meant."""
    if kind == "verb" and (os.sep in word or Path(word).is_dir()):
        return f"{word} is not a verb; to name a repository: clawpy --workspace {shlex.quote(word)}"
    near = difflib.get_close_matches(word, known, 3)
    meant = (
        f"; did you mean {' or '.join(near)}?" if near else f"; one of {', '.join(known)}" if kind == "action" else ""
    )
    return f"unknown {kind} {word}{meant}"
