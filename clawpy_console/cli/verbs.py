"""The verbs of `clawpy`, as the table `verbs.toml` declares them: their parser, and what a shell completes (SPEC 9.8).

To complete a word, the shell runs `clawpy` with `_ARGCOMPLETE` set and waits for the answer of `argcomplete`. Therefore
heavy modules are imported where they are used.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import engine
from clawpy_console.cli import WrongUse

Document = dict[str, Any]
"""A table of TOML, or a value as JSON."""


# The table


class Argument(NamedTuple):
    """An argument or option. `settings` are those of `argparse.add_argument`, and `values` is the kind of values that a
    shell completes. `sent_as` names what is sent to the engine in its place (`requests.SENT_AS`). An empty text is sent
    if it `may_be_empty`."""

    name: str
    settings: Document
    values: str
    sent_as: str
    may_be_empty: bool


class Verb(NamedTuple):
    """A verb or one of its actions. Without an `example` its own words are one. `workspaces` says which of the chosen
    workspaces are sent; see `requests.choose_workspaces`. With `shown`, the engine gets to know whether a person looks
    at the answer. `printer` names the function of `cli.printing` that prints its document, and `if_empty` is printed
    when that has nothing to list."""

    name: str
    summary: str
    printer: str
    arguments: Sequence[Argument]
    actions: Mapping[str, Verb]
    group: str = ""
    example: str = ""
    workspaces: str = ""
    shown: bool = False
    if_empty: str = ""


def parse_span(text: str) -> int:
    """The seconds of `90s`, `30m`, `2h`, `1h30m` or `1d`."""
    match = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text.strip().lower())
    days, hours, minutes, seconds = (int(number or 0) for number in match.groups()) if match else (0, 0, 0, 0)
    seconds += 60 * minutes + 3600 * hours + 86400 * days
    if seconds > 30 * 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is too long: at most 30d")
    if not seconds:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time span: write 90s, 30m, 2h or 1d")
    return seconds


TYPE_FUNCTIONS: Document = {"number": int, "span": parse_span, "path": lambda path: str(Path(path).resolve())}
"""The functions behind the names that a `type` has in the table."""


def _read_argument(table: Document) -> Argument:
    settings = dict(table)
    sent_as, may_be_empty = settings.pop("sent-as", ""), settings.pop("may-be-empty", False)
    return Argument(settings.pop("name"), settings, settings.pop("values", ""), sent_as, may_be_empty)


def _read_arguments(entries: Iterable[str | Document]) -> list[Argument]:
    return [SHARED_ARGUMENTS[entry] if isinstance(entry, str) else _read_argument(entry) for entry in entries]


def _read_verb(name: str, table: Document, printer: str) -> Verb:
    """A verb or an action, which is printed by `printer` unless its table names another."""
    printer = table.get("printer", printer)
    fields = {key.replace("-", "_"): value for key, value in table.items()}
    fields["printer"] = printer
    fields["arguments"] = _read_arguments(table.get("arguments", ()))
    fields["actions"] = _read_verbs(table, "actions", printer)
    return Verb(name, **fields)


def _read_verbs(table: Document, key: str, printer: str) -> dict[str, Verb]:
    return {name: _read_verb(name, verb, printer) for name, verb in table.get(key, {}).items()}


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
SHARED_ARGUMENTS = {name: _read_argument(table) for name, table in _TABLE["shared"].items()}
COMMON_ARGUMENTS = _read_arguments(_TABLE["common"]["arguments"])
"""Options before or after any verb."""

VERBS = _read_verbs(_TABLE, "verbs", "work.format_card_with_session")


def make_verbs_document() -> Document:
    """All verbs with their arguments as JSON, and the options of all."""
    return {
        "verbs": [_make_verb_document(verb) for verb in VERBS.values()],
        "options": [_make_argument_document(argument) for argument in COMMON_ARGUMENTS],
    }


def _make_verb_document(verb: Verb) -> Document:
    return {
        "name": verb.name,
        "group": verb.group,
        "summary": verb.summary,
        "example": verb.example.strip(),
        "arguments": [
            _make_argument_document(argument)
            for argument in verb.arguments
            if argument.settings.get("help") != "hidden"
        ],
        "actions": [_make_verb_document(action) for action in verb.actions.values()],
    }


DOCUMENTED_SETTINGS = ("help", "metavar", "type", "choices", "nargs", "default", "required")
"""The settings of an argument that its document has."""


def _make_argument_document(argument: Argument) -> Document:
    settings = argument.settings
    return {"name": argument.name} | {name: settings[name] for name in DOCUMENTED_SETTINGS if name in settings}


# The parser


class Parser(argparse.ArgumentParser):
    """Raises `WrongUse` for an error, without secrets and escape sequences."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)
        self._positionals.title = "arguments"
        common = self.add_argument_group("options before or after any verb")
        for argument in COMMON_ARGUMENTS:
            _add_argument(common, argument, default=argparse.SUPPRESS)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            self.error(_explain_unknown_word(action.dest, value, action.choices))
        is_name = action.nargs in (None, "?") and getattr(action, "values", "") not in ("", "file")
        if is_name and not action.option_strings and not str(value).strip():
            # A script's variable was empty; some verbs would list everything.
            self.error(f"the argument {action.dest}: it is missing or empty")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        from engine.redaction import redact
        from engine.text import sanitise

        raise WrongUse(sanitise(redact(message)), f"see `{self.prog} --help`", command=self.prog)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options of a command line. Raises `WrongUse`, and SystemExit after it has printed the help."""
    top = make_parser(words)
    options, unknown = top.parse_known_args(words)
    if unknown and hasattr(options, "secret_words"):
        # An unknown option may be a secret. `main` refuses all of these words without printing them.
        options.secret_words = [*options.secret_words, *unknown]
    elif unknown:
        top.prog = f"clawpy {options.verb}"
        top.error(f"unknown argument: {' '.join(unknown)}")
    return options


DESCRIPTION = """An operator's console for a swarm of AI agents. Without a verb it opens the console.

{verbs}

`clawpy VERB --help` explains a verb, `clawpy help` lists the pages of the documentation."""

EXAMPLES = "examples:\n  clawpy\n  clawpy predict\n  clawpy approve 7k2m --wait\n  clawpy --demo"


def make_parser(words: Sequence[str]) -> Parser:
    """The parser of a command line. It knows the names of all verbs, and the options of those that `words` name."""
    groups = groupby(VERBS.values(), key=lambda verb: verb.group)
    verb_list = "\n\n".join(
        "\n".join([f"{group}:", *(f"  {verb.name:12} {verb.summary}" for verb in verbs)]) for group, verbs in groups
    )
    top = Parser(
        prog="clawpy",
        usage="clawpy [--workspace DIR]... [--home DIR] [--demo] [--version] [VERB ...]",
        description=DESCRIPTION.format(verbs=verb_list),
        epilog=EXAMPLES,
    )
    top.add_argument("--version", action="version", version=f"clawpy {engine.__version__}", help="print the version")
    top.add_argument(
        "--demo", action="store_true", help="open the console on a made-up project that is deleted when you leave"
    )
    _add_verbs(top, VERBS.values(), "verb", words)
    top._action_groups = [group for group in top._action_groups if group.title != "verbs"]  # the description lists them
    return top


def _add_verbs(parent: Parser, verbs: Collection[Verb], name: str, words: Sequence[str]) -> None:
    """Add the parsers of `verbs`, or of the actions of a verb. Only those named in `words` get their arguments: to make
    all of them takes long."""
    subparsers = parent.add_subparsers(
        dest=name,
        required=name == "verb",
        prog=parent.prog,
        metavar=name.upper(),
        title=f"{name}s",
        parser_class=Parser,
    )
    for verb in verbs:
        if verb.name not in words:
            subparsers.add_parser(verb.name, help=verb.summary, add_help=False)
            continue
        default = f" Without an action: {next(iter(verb.actions))}." if verb.actions else ""
        description = f"{verb.summary[0].upper()}{verb.summary[1:]}.{default}"
        subparser = subparsers.add_parser(verb.name, help=verb.summary, description=description)
        subparser.epilog = f"example:\n  {verb.example or subparser.prog}"
        for argument in verb.arguments:
            _add_argument(subparser, argument)
        if verb.actions:
            _add_verbs(subparser, verb.actions.values(), "action", words)


def _add_argument(parent: argparse._ActionsContainer, argument: Argument, **settings: Any) -> None:
    """Add an argument of the table to a parser."""
    settings |= argument.settings
    if "type" in settings:
        settings["type"] = TYPE_FUNCTIONS[settings["type"]]
    if settings.get("help") == "hidden":
        settings["help"] = argparse.SUPPRESS
    action = parent.add_argument(argument.name, **settings)
    if not action.option_strings and not action.choices:
        action.metavar = action.metavar or action.dest.upper()
    action.values = argument.values  # type: ignore[attr-defined]


def _explain_unknown_word(kind: str, word: str, words: Collection[str]) -> str:
    """The error for an unknown verb or action, with the words that may have been meant."""
    if kind == "verb" and (os.sep in word or Path(word).is_dir()):
        return f"{word} is not a verb; to name a repository: clawpy --workspace {shlex.quote(word)}"
    advice = f"; one of {', '.join(words)}" if kind == "action" else ""
    if similar_words := difflib.get_close_matches(word, words, 3):
        advice = f"; did you mean {' or '.join(similar_words)}?"
    return f"unknown {kind} {word}{advice}"


# Completions


INSTALLATION = {
    "bash": 'add this line to ~/.bashrc:\n#     eval "$(clawpy completion bash)"',
    "zsh": 'add this line to ~/.zshrc, after compinit:\n#     eval "$(clawpy completion zsh)"',
    "fish": "run this command once:\n#     clawpy completion fish > ~/.config/fish/completions/clawpy.fish",
}
"""How to install the completions, by shell."""


def make_completion_script(shell: str) -> str:
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


def _add_completers(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                _add_completers(subparser)
        elif action.choices is None:
            action.completer = partial(_complete_value, getattr(action, "values", ""))  # type: ignore[attr-defined]


def _complete_value(kind: str, prefix: str, parsed_args: argparse.Namespace, **_: Any) -> Iterable[str]:
    """The values of a kind. They need not begin with `prefix`, because `argcomplete` filters them."""
    from argcomplete.completers import DirectoriesCompleter, FilesCompleter

    from engine import Home, read_completion_names

    home = Home.locate(getattr(parsed_args, "home", None))
    match kind:
        case "":
            return ()
        case "file":
            return list(FilesCompleter()(prefix))
        case "topics":
            from clawpy_console.cli.help_pages import collect_topics

            return dict.fromkeys(collect_topics(), "page of the documentation")
        case "workspaces":
            return [*read_completion_names(home, "workspaces"), *DirectoriesCompleter()(prefix)]
        case "flows":
            return _offer_flows_or_parameters(read_completion_names(home, "flows"), parsed_args.text or [])
    return _offer_names(read_completion_names(home, kind), prefix)


def _offer_names(titles_by_name: Mapping[str, str], prefix: str) -> Mapping[str, str]:
    """The names with their titles. If no name begins with `prefix`, the names are offered without what stands before
    their underscore: `7k2m` for `card_7k2m`."""
    if any(name.startswith(prefix) for name in titles_by_name):
        return titles_by_name
    return {name.partition("_")[2]: title for name, title in titles_by_name.items()}


def _offer_flows_or_parameters(flows: Mapping[str, Any], words: list[str]) -> Mapping[str, str]:
    """The flows, or the parameters of a flow if `words` begin with its name."""
    if not words:
        return {name: flow["title"] for name, flow in flows.items()}
    flow = flows.get(words[0], {"parameters": {}})
    given_names = {word.partition("=")[0] for word in words[1:] if "=" in word}
    return {f"{name}=": description for name, description in flow["parameters"].items() if name not in given_names}
