"""`clawpy`: opens the console, or carries out a verb without a screen (SPEC 9.8).

Before the first frame of the console only what it needs is imported, so heavy modules are imported where they are used.
The engine carries a verb out; this module turns arguments into a request, and the document into text.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import engine
from clawpy_console.attach.client import signal_handlers
from clawpy_console.cli.options import CommonOptions, WrongUse, split_options
from engine import Home

if TYPE_CHECKING:
    import argparse
    import socket

    from engine import Engine, Refusal

DONE, REFUSED, WRONG_USE, CANNOT_RUN, INTERRUPTED = 0, 1, 2, 3, 130

PIPE_CLOSED = 128 + signal.SIGPIPE
"""The exit code when the reader closed the pipe, as a shell reports it."""

GC_THRESHOLD = (50_000, 20, 50)
"""Thresholds of `gc.set_threshold`. With Python's default of 700 garbage collection took two fifths of the time,
because a screen consists of tens of thousands of objects."""


def main(argv: Sequence[str] | None = None, terminal: socket.socket | None = None) -> int:
    """Run `clawpy` with `argv` (by default the process's own) and return the exit code. `terminal` is the client for
    which a console is opened (`clawpy_console.attach`)."""
    gc.set_threshold(*GC_THRESHOLD)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a sign shows another
    try:
        code = _main(list(sys.argv[1:] if argv is None else argv), terminal)
    except SystemExit as leaving:  # a signal, or a verb that does not exist
        code = leaving.code if isinstance(leaving.code, int) else DONE
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output(sys.stdout)
        return PIPE_CLOSED
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            _discard_output(stream)
            code = code or PIPE_CLOSED
    return code


def _discard_output(stream: TextIO) -> None:
    """The reader or the terminal is gone: write nowhere, or Python would report an error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _main(argv: list[str], terminal: socket.socket | None) -> int:
    common, options = CommonOptions(), None
    try:
        common, rest = split_options(argv)
        if rest and rest[0] == "check" and len(rest) > 1 and not rest[1].startswith("-"):
            rest.insert(1, "--")  # the command's own options are part of the command
        if rest:  # the console does not wait for the parser
            from clawpy_console.cli.verbs import parse

            options = parse(rest)
        with _home_of(common):
            return _console(common, terminal) if options is None else _verb(options, common)
    except WrongUse as error:
        print(f"clawpy{f' {options.verb}' if options else ''}: {error}", file=sys.stderr)
        return WRONG_USE
    except engine.Refusal as error:
        _print_refusal(error, common)
        return WRONG_USE if error.code == "bad_arguments" else REFUSED
    except BrokenPipeError:
        raise
    except Exception as error:
        if not common.as_json:
            raise
        # Whoever reads the document must hear of it too; the whole story is for the person behind.
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"
        _print_refusal(engine.Refusal("internal", message, "this is a bug; standard error has the details"), common)
        return REFUSED


@contextmanager
def _home_of(common: CommonOptions) -> Iterator[None]:
    if not common.demo:
        common.locate()
        yield
        return
    from clawpy_console.cli.demo import throw_away

    with _exit_on_signals(), throw_away() as (home, workspace):
        common.home_name, common.workspace_names = str(home), [str(workspace)]
        common.locate()
        print(f"demo: a made-up project and organisation in {home.parent}, deleted when you leave", file=sys.stderr)
        yield


def _exit_on_signals() -> AbstractContextManager[None]:
    """SIGTERM and a closed terminal end the program in order, so that the engine is closed."""
    return signal_handlers({signal.SIGTERM: _exit_on_signal, signal.SIGHUP: _exit_on_signal})


def _exit_on_signal(number: int, _frame: object) -> None:
    """Exit in order, and within `SHUTDOWN_S` in any case."""
    from clawpy_console.attach.consoles import SHUTDOWN_S, exit_after

    exit_after(SHUTDOWN_S, 128 + number)
    sys.exit(128 + number)


def _console(common: CommonOptions, terminal: socket.socket | None) -> int:
    if common.as_json:
        raise WrongUse("--json needs a verb; `clawpy cards --json` for example")
    workspaces = common.all(needed=True)
    if terminal is None:
        raise engine.Refusal("no_terminal", "the console needs a terminal", "use a verb instead, see `clawpy --help`")
    from clawpy_console.attach.consoles import serve

    with _exit_on_signals():
        return serve(common.home, workspaces, _open_demo if common.demo else open_engine, terminal, demo=common.demo)


def open_engine(home: Home, **options: Any) -> Engine:
    """`engine.open_engine`, imported when it is first needed."""
    return engine.open_engine(home, **options)


def _open_demo(home: Home, **options: Any) -> Engine:
    """An engine on the fresh home of the demo, filled with an organisation and some work."""
    from clawpy_console.cli.demo import begin, tell

    opened = open_engine(home, **options)
    tell(opened)
    begin(opened, str(options["workspaces"][0]))
    return opened


def _print_refusal(error: Refusal, common: CommonOptions) -> None:
    if common.as_json:
        print(
            json.dumps({"error": {"code": error.code, "message": error.message, "fix": error.fix}}, ensure_ascii=False)
        )
        return
    from clawpy_console.cli.printing import render_refusal
    from clawpy_console.cli.printing.style import has_colours

    print(render_refusal(error, colour=has_colours(sys.stderr)), file=sys.stderr)


# -- verbs: what each comes to is its document, or an exit code where it has said everything itself


def _verb(options: argparse.Namespace, common: CommonOptions) -> int:
    """Carry out a verb and print its document."""
    document = _do(options, common)
    if isinstance(document, int):
        return document
    if common.as_json:
        print(json.dumps(document, ensure_ascii=False))
    else:
        from clawpy_console.cli.printing import render_document
        from clawpy_console.cli.printing.style import has_colours

        action = getattr(options, "action", None)
        if text := render_document(options.verb, document, action, colour=has_colours(sys.stdout)):
            print(text)
    if options.verb == "approve":
        return approval_status(document)
    return REFUSED if _failed(options.verb, document) else DONE


def approval_status(document: Mapping[str, Any]) -> int:
    """The exit code of `approve` (SPEC 9.8): `CANNOT_RUN` when the session lacked something; `REFUSED` when it failed,
    left failing tests, or did nothing so that the card is pending again."""
    session, card = document.get("session") or {}, document.get("prediction") or {}
    if session.get("result") == "cannot_run":
        return CANNOT_RUN
    did_nothing = card.get("status") == "pending"
    return REFUSED if did_nothing or session.get("result") in ("failed", "cancelled") else DONE


def _failed(verb: str, document: Mapping[str, Any]) -> bool:
    """Whether the document says that the request was not fulfilled."""
    match verb:
        case "doctor":
            return not document["ok"]
        case "forget":
            return not document["forgotten"]
        case "key":
            return document.get("reached") is False
        case "notify":
            return any(not surface["delivered"] for surface in document.get("tested", ()))
        case "remember":
            return document["badLines"] and not document["remembered"] + document["known"]
    return False


def _do(options: argparse.Namespace, common: CommonOptions) -> Any:
    """The document of a verb, or an exit code when it printed everything itself."""
    match options.verb:
        case "run":
            return _run(options, common)
        case "serve":
            return _serve(options, common)
        case "mcp":  # standard output belongs to the protocol from here on
            workspace, version = next(iter(common.scope()), ""), engine.__version__
            agent = options.agent or ""
            engine.mcp_serve(common.home, workspace=workspace, opener=open_engine, agent=agent, version=version)
            return DONE
        case "stop":
            return engine.stop(common.home, " ".join(options.reason))
        case "token":
            new = options.action == "new"
            return engine.gateway_token(common.home, new=new, in_file=new and options.store == "file")
        case "simulate":  # in a home of its own that is removed at the end: the one that is named is not touched
            gc.freeze()  # what was imported stays to the end: no collection of garbage need look at it
            return engine.simulate(options.days, options.seed)
        case "doctor":
            return _doctor(options, common)
        case "check":
            return _check(options, common)
        case "recall":
            return _recall(options, common)
        case "remember":
            from clawpy_console.cli.batch import remember

            return remember(options.file, common, opener=open_engine, wait=not options.no_wait)
        case "key" if options.action == "set":
            from clawpy_console.cli.settings import store_key

            return store_key(options, common)
        case "notify" if options.action == "set":
            from clawpy_console.cli.settings import store_address

            return store_address(options, common, opener=open_engine)
        case "config" if options.action == "set":
            from clawpy_console.cli.settings import check_value

            check_value(options.key, options.value, common.home)
        case "status" if options.format != "full" and not common.as_json:
            from clawpy_console.cli.status_bar import line_of_status

            print(line_of_status(_ask(options, common), options.format))
            return DONE
        case "help":
            from clawpy_console.cli.help import show

            show(options.topic, common.home)
            return DONE
        case "completion":
            from clawpy_console.cli.help import script

            print(script(options.shell), end="")
            return DONE
    return _ask(options, common)


def _call_engine(verb: str, arguments: Mapping[str, Any], common: CommonOptions, workspaces: Sequence[str]) -> Any:
    """The document of a verb of the engine. Raises `Refusal`."""
    return engine.call(common.home, verb, arguments, workspaces=workspaces, opener=open_engine)


def _ask(options: argparse.Namespace, common: CommonOptions) -> Any:
    from clawpy_console.cli.verbs import request

    return _call_engine(options.verb, request(options, common), common, common.all())


def _run(options: argparse.Namespace, common: CommonOptions, gateway: Mapping[str, Any] | None = None) -> int:
    """Run the engine without a screen."""
    from clawpy_console.cli.headless import run

    run(common.home, common.all(needed=True), seconds=options.seconds, as_json=common.as_json, gateway=gateway)
    return DONE


def _serve(options: argparse.Namespace, common: CommonOptions) -> int:
    """Run the engine without a screen, with the gateway."""
    names = ("host", "port", "certificate", "certificate_key", "tunnel")
    options_given = {name: value for name in names if (value := getattr(options, name)) is not None}
    try:
        return _run(options, common, options_given | {"in_file": options.store == "file"})
    except engine.Refusal as error:
        if error.code != "home_held":
            raise
        holder = engine.read_holder(common.home)
        fix = "the running engine can open it: clawpy config set gateway.enabled true, or Gateway on in its palette"
        if holder is not None and holder.gateway:
            fix = f"it already listens at {holder.gateway}; to change that, stop it first: kill {holder.pid}"
        raise engine.Refusal(error.code, error.message, fix) from error


def _doctor(options: argparse.Namespace, common: CommonOptions) -> Any:
    try:
        workspaces = common.all()
    except engine.Refusal:
        workspaces = common.workspace_names  # what is wrong with them is one of its findings
    document = _call_engine("doctor", {"online": options.online}, common, workspaces)
    if document["settings"] is not None:
        from clawpy_console.cli.settings import find_problems

        # Only here is known what the screen can use of them.
        document["checks"] += [
            {"name": "config", "state": "warn", "message": problem.message, "fix": problem.fix}
            for problem in find_problems(document["settings"], common.home)
        ]
    return document


def _check(options: argparse.Namespace, common: CommonOptions) -> Any:
    if [bool(options.command), options.prompt is not None, options.batch is not None].count(True) != 1:
        raise WrongUse("give a command, or --prompt TEXT, or --batch FILE.jsonl")
    if options.batch is not None:
        from clawpy_console.cli.batch import answer_lines

        def ask(line: dict[str, Any]) -> Any:
            return _call_engine("check", line, common, ())

        return DONE if answer_lines(options.batch, ("command", "prompt"), ask) else REFUSED
    words = options.command
    command = words[0] if len(words) == 1 else shlex.join(words)
    arguments = {"prompt": options.prompt} if options.prompt is not None else {"command": command}
    return _call_engine("check", arguments, common, ())


def _recall(options: argparse.Namespace, common: CommonOptions) -> Any:
    if bool(options.query) == (options.batch is not None):
        raise WrongUse("give a question, or --batch FILE.jsonl")
    scope: dict[str, Any] = {"agent": options.agent} if options.agent else {}
    if common.workspace_names:
        scope["workspaces"] = common.scope()
    if options.batch is None:
        return _call_engine("recall", {"query": " ".join(options.query), "k": options.k, **scope}, common, common.all())
    from clawpy_console.cli.batch import answer_lines

    settle = iter([30.0])  # the first question waits for vectors, for all of them

    def ask_memory(line: dict[str, Any]) -> Any:
        return ask("recall", scope | line | {"settle": next(settle, 0.0)})

    with engine.connect(common.home, workspaces=common.all(), opener=open_engine) as ask:
        return DONE if answer_lines(options.batch, ("query", "k"), ask_memory) else REFUSED
