"""Turns the parsed options of a verb into the arguments of a request to the engine (SPEC 9.8)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from clawpy_console.cli.options import CommonOptions, WrongUse
from clawpy_console.cli.verbs import VERBS, Document, Table


def make_request(options: argparse.Namespace, common: CommonOptions) -> Document:
    """The arguments of a verb for the engine: its options, the workspaces that it is about, and the text of files that
    it names. Raises `WrongUse`, and `Refusal` when a workspace is missing."""
    verb = VERBS[options.verb]
    arguments: Document = {}
    if verb.actions:
        arguments["action"] = options.action or next(iter(verb.actions))
        verb = verb.actions[arguments["action"]]
    for argument in verb.arguments:
        name = argument.settings.get("dest") or argument.name.removeprefix("--")
        value = getattr(options, name, None)
        if isinstance(value, list) and argument.settings.get("action") != "append":
            value = " ".join(value)
        if value not in (None, False, "") and not argument.local:
            arguments[name] = value
    arguments |= _workspace_arguments(options.verb, arguments, common)
    match options.verb:
        case "predict":
            arguments["shown"] = True
        case "cards":
            arguments["shown"] = not options.all
        case "work" if options.id:
            arguments["shown"] = not common.as_json
        case "land":
            only = arguments.get("only", [])
            if options.hunk and len(only) != 1:
                raise WrongUse("--hunk needs one --only: the file that it is a hunk of")
            arguments = {"id": options.id, "only": [{"path": path, "hunks": options.hunk or []} for path in only]}
        case "comment" if place := arguments.pop("place", ""):
            file, _, line = place.rpartition(":")
            if not file or not line.isdecimal() or not options.text:
                raise WrongUse(f"{place!r}: write FILE:LINE and a text, for example cart.py:12 'use Decimal here'")
            arguments |= {"file": file, "line": int(line)}
        case "profile" if options.file is not None:
            if options.undo:
                raise WrongUse("--undo takes no file")
            arguments = {"id": options.id, "text": _text(options.file), "yes": options.yes}
        case "dnd" if options.off and options.seconds:
            raise WrongUse("give --for SPAN or --off, not both")
    return arguments


def _workspace_arguments(verb: str, arguments: Table, common: CommonOptions) -> Document:
    """The workspaces that a verb is about: all in scope, the first, or the only one. Raises `WrongUse`, `Refusal`."""
    match verb, arguments.get("action"):
        case "predict", _:
            common.all(needed=True)
            return {"workspaces": common.scope()}
        case ("cards", _) | ("work", _):
            return {"workspaces": common.scope()}
        case "metrics", _ if not common.workspace_names:
            return {}
        case ("tasks", "list" | "add") | ("metrics", _):
            return {"workspace": scope[0]} if (scope := common.scope()) else {}
        case "propose", _ if "continues" in arguments:
            return {}
        case "learnings", "list" if arguments.get("scope") == "global" or "session" in arguments:
            return {}
        case ("propose", _) | ("learnings", "list" | "write"):
            return {"workspace": _one_workspace(common)}
    return {}


def _one_workspace(common: CommonOptions) -> str:
    scope = common.scope(needed=True)
    if len(scope) > 1:
        raise WrongUse("this verb needs one workspace; give a single --workspace")
    return scope[0]


def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"{file} cannot be read: {error}") from error
