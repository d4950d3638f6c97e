"""What a verb asks, and the document that answers it: the engine's, or one that is made here (SPEC 9.8).

`cli.main` prints the documents. `verbs.toml` declares what is sent of each argument.
"""

from __future__ import annotations

import gc
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import engine
from clawpy_console.cli import Invocation, WrongUse, batch
from clawpy_console.cli.verbs import VERBS, Document, Verb, make_completion_script, make_verbs_document
from engine import Home


def get_document(options: Namespace, invocation: Invocation) -> Any:
    """The document of the verb in `options`. Raises `WrongUse`, `Refusal`."""
    action = f"{options.verb} {getattr(options, 'action', None)}"
    answer = ANSWERS.get(action) or ANSWERS.get(options.verb, ask_engine)
    return answer(options, invocation)


# Answers of the engine


def ask_engine(options: Namespace, invocation: Invocation) -> Any:
    """The document of the verb in `options`, from the engine."""
    request, ended = make_request(options, invocation), threading.Event()
    if options.verb == "approve" and (card_id := request.get("id")):
        threading.Thread(target=_announce_permissions, args=(invocation.home, card_id, ended), daemon=True).start()
    try:
        return invocation.call(options.verb, request, invocation.find_all_workspaces())
    finally:
        ended.set()


def make_request(options: Namespace, invocation: Invocation) -> Document:
    """The arguments of a verb for the engine: its options, the workspaces that it is about, and whether a person looks
    at the answer, so without `--json`: only such cards can count as passed over. Raises `WrongUse`, and `Refusal` when
    a workspace is missing."""
    verb = VERBS[options.verb]
    arguments: Document = {"shown": not invocation.as_json} if verb.shown else {}
    if verb.actions:
        arguments["action"] = options.action or next(iter(verb.actions))
        verb = verb.actions[arguments["action"]]
    arguments |= _collect_declared_arguments(verb, options)
    return arguments | choose_workspaces(verb, arguments, invocation)


def _collect_declared_arguments(verb: Verb, options: Namespace) -> Document:
    """The arguments that the table declares for a verb or an action, without those that have no value."""
    arguments: Document = {}
    for argument in verb.arguments:
        name = argument.settings.get("dest") or argument.name.removeprefix("--")
        value = getattr(options, name, None)
        if isinstance(value, list) and argument.settings.get("action") != "append":
            value = " ".join(value)
        if value is None or value is False or (value == "" and not argument.may_be_empty):
            continue
        arguments |= SENT_AS[argument.sent_as](value, options) if argument.sent_as else {name: value}
    return arguments


def _select_hunks(hunks: Any, options: Namespace) -> Document:
    """The part of changes that `--hunk` names. Raises `WrongUse` for hunks of no single file."""
    if len(options.only or ()) != 1:
        raise WrongUse("--hunk needs one --only: the file that it is a hunk of")
    return {"only": [{"path": options.only[0], "hunks": hunks}]}


def _parse_line(location: Any, options: Namespace) -> Document:
    """The file and the line of a comment, in `FILE:LINE`. Raises `WrongUse`."""
    file, _, line = location.rpartition(":")
    if not file or not line.isdecimal() or not options.text:
        raise WrongUse(f"{location!r}: write FILE:LINE and a text, for example cart.py:12 'use Decimal here'")
    return {"file": file, "line": int(line)}


def _read_profile(file: Any, options: Namespace) -> Document:
    """The text of an edited profile. Raises `WrongUse`."""
    if options.undo:
        raise WrongUse("--undo takes no file")
    try:
        return {"text": sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise WrongUse(f"{file} cannot be read: {reason}") from error


def _end_do_not_disturb(_: Any, options: Namespace) -> Document:
    """The end of do not disturb. Raises `WrongUse`."""
    if options.seconds:
        raise WrongUse("off ends it: give no --for SPAN with it")
    return {"off": True}


SENT_AS: Mapping[str, Callable[[Any, Namespace], Document]] = {
    "hunks": _select_hunks,
    "line": _parse_line,
    "profile": _read_profile,
    "off": _end_do_not_disturb,
    "nothing": lambda _value, _options: {},
}
"""What is sent in place of the value of an argument, by its `sent-as` in the table of verbs."""


def choose_workspaces(verb: Verb, arguments: Mapping[str, Any], invocation: Invocation) -> Document:
    """The workspaces of a verb, as the table declares them: "all" chosen ones; the same where one is "needed"; the
    "first"; the same if it is "named" by an option; or the only "one". Raises `WrongUse`, `Refusal`."""
    match verb.workspaces:
        case "all":
            return {"workspaces": invocation.find_chosen_workspaces()}
        case "needed":
            invocation.find_all_workspaces(needed=True)
            return {"workspaces": invocation.find_chosen_workspaces()}
        case "first":
            return {"workspace": workspaces[0]} if (workspaces := invocation.find_chosen_workspaces()) else {}
        case "named" if invocation.workspace_names:
            return {"workspace": invocation.find_chosen_workspaces()[0]}
        case "one" if _is_about_workspace(arguments):
            workspaces = invocation.find_chosen_workspaces(needed=True)
            if len(workspaces) > 1:
                raise WrongUse("this verb needs one workspace; give a single --workspace")
            return {"workspace": workspaces[0]}
    return {}


def _is_about_workspace(arguments: Mapping[str, Any]) -> bool:
    """Whether a request is about a workspace. Others name a session, or are about all workspaces."""
    names_session = "continues" in arguments or "session" in arguments
    return not names_session and arguments.get("scope") != "global"


PERMISSIONS_INTERVAL_S = 1.0
"""Seconds between two looks at what a session asks for while `approve` waits for its end."""


def _announce_permissions(home: Home, card_id: str, ended: threading.Event) -> None:
    """Until the verb has `ended`, print each permission that the session of the card asks for, and how to answer."""
    announced: set[str] = set()
    while not ended.wait(PERMISSIONS_INTERVAL_S):
        requests = engine.ask_running(home, "permissions").get("permissions", ())
        new_requests = [request for request in requests if request["id"] not in announced]
        session = engine.ask_running(home, "work", id=card_id).get("session") if new_requests else None
        for request in new_requests:
            if session is not None and request["session"] == session["id"]:
                announced.add(request["id"])
                answers = f"clawpy permissions allow {request['id']}  (or: deny)"
                print(f"{request['targetAgent']} asks: {request['title']}: {request['reason']}", file=sys.stderr)
                print(f"  {answers}", file=sys.stderr, flush=True)


# Answers that are made here


def _get_token(options: Namespace, invocation: Invocation) -> Any:
    is_new = options.action == "new"
    return engine.get_gateway_token(invocation.home, new=is_new, in_file=is_new and options.store == "file")


def _simulate(options: Namespace, _: Invocation) -> Any:
    """The month that was simulated in a home of its own; the home that is named is not touched."""
    gc.freeze()  # what was imported stays to the end: no collection of garbage need look at it
    return engine.simulate(options.days, options.seed)


def _set_setting(options: Namespace, invocation: Invocation) -> Any:
    """Set a setting, after a check of those that only the console can judge."""
    from clawpy_console.appearance import check_setting

    check_setting(options.key, options.value, invocation.home)
    return ask_engine(options, invocation)


def _get_help(options: Namespace, invocation: Invocation) -> Any:
    """A page of the documentation; without a topic the verbs and the pages that there are."""
    from clawpy_console.cli import help_pages

    if options.topic is not None:
        return help_pages.make_page_document(options.topic, invocation.home)
    return make_verbs_document() | {"pages": help_pages.make_pages_document()}


def _store_key(options: Namespace, invocation: Invocation) -> Any:
    """Ask for the key of a provider, and store it."""
    key = _read_secret(options, "key", "clawpy key set NAME")
    return engine.store_key(invocation.home, options.name, key, in_file=options.store == "file")


def _store_address(options: Namespace, invocation: Invocation) -> Any:
    """Ask for the address of a notification surface, which may contain a secret, and store it."""
    address = _read_secret(options, "address", f"clawpy notify set {options.surface}")
    return engine.store_address(
        invocation.home,
        options.surface,
        address,
        in_file=options.store == "file",
        write=lambda setting, value: invocation.call("config", {"action": "set", "key": setting, "value": value}),
    )


MAX_SECRET_CHARS = 8192
"""Maximum number of characters of a secret that are read from a pipe."""


def _read_secret(options: Namespace, secret_name: str, command: str) -> str:
    """A secret, such as a "key", typed without echo or read from a pipe. Raises `WrongUse` when the command line has
    it."""
    if options.secret_words:
        raise WrongUse(
            f"do not give the {secret_name} as an argument: other programs can read it there, and the shell keeps it. "
            f"Run `{command}` and paste it when you are asked. If this was a real one, get a new one from the provider"
        )
    if not sys.stdin.isatty():
        return sys.stdin.read(MAX_SECRET_CHARS).strip()
    import getpass

    try:
        return getpass.getpass(f"{secret_name.capitalize()} (not shown): ")
    except EOFError:
        return ""


def _run_doctor(options: Namespace, invocation: Invocation) -> Document:
    """The findings of the engine, and those about the keys and the theme of the console."""
    try:
        workspaces = invocation.find_all_workspaces()
    except engine.Refusal:
        workspaces = invocation.workspace_names  # what is wrong with them is one of its findings
    document = invocation.call("doctor", {"online": options.online}, workspaces)
    if document["settings"] is None:
        return document
    problems = _find_console_problems(document["settings"], invocation.home)
    if problems:  # in place of the check that found nothing wrong in the file
        checks = document["checks"]
        index = [check["name"] for check in checks].index("config")
        checks[index : index + 1] = problems
        document["ok"] = document["ok"] and all(problem["state"] != "fail" for problem in problems)
    return document


def _find_console_problems(settings: Document, home: Home) -> list[Document]:
    """Checks of `doctor` for what is wrong with the keys and the theme in the settings."""
    from clawpy_console.appearance import find_settings_problems

    return [
        {
            "name": "config",
            "state": "fail" if problem.code == "bad_keys" else "warn",
            "message": problem.message,
            "fix": problem.fix,
        }
        for problem in find_settings_problems(settings, home)
    ]


ANSWERS: Mapping[str, Callable[[Namespace, Invocation], Any]] = {
    "check": batch.check,
    "completion": lambda options, _: {"shell": options.shell, "script": make_completion_script(options.shell)},
    "config set": _set_setting,
    "doctor": _run_doctor,
    "help": _get_help,
    "key set": _store_key,
    "notify set": _store_address,
    "recall": batch.recall,
    "remember": lambda options, invocation: batch.remember(options.file, invocation, wait=not options.no_wait),
    "simulate": _simulate,
    "stop": lambda options, invocation: engine.stop(invocation.home, " ".join(options.reason)),
    "token": _get_token,
}
"""What makes the document of a verb, or of one of its actions. The engine answers the others."""
