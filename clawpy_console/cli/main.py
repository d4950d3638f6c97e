"""`clawpy`: opens the console, or carries out a verb without a screen (SPEC 9.8).

Before the first frame of the console only what it needs is imported, so heavy modules are imported where they are used.
`cli.requests` gets the document of a verb. Here it becomes text and an exit code.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, TextIO

import engine
from clawpy_console import cli
from clawpy_console.attach import SHUTDOWN_S, exit_after, signal_handlers
from clawpy_console.cli import Invocation, OutputFailed, WrongUse, print_output, split_options
from engine import Home

if TYPE_CHECKING:
    import socket
    from argparse import Namespace

    from engine import Engine, Refusal

DONE, REFUSED, WRONG_USE, CANNOT_RUN, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit codes (SPEC 9.8)."""

PIPE_CLOSED = 128 + signal.SIGPIPE
"""The exit code when the reader closed the pipe, as a shell reports it."""

GC_THRESHOLD = (50_000, 20, 50)
"""Thresholds of `gc.set_threshold`. A screen consists of tens of thousands of objects, for which Python's default of
700 collects garbage far too often."""


def main(argv: Sequence[str] | None = None, terminal: socket.socket | None = None) -> int:
    """Run `clawpy` with `argv` (by default the process's own) and return the exit code. `terminal` is the client for
    which a console is opened (`clawpy_console.attach`)."""
    gc.set_threshold(*GC_THRESHOLD)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a sign shows another
    try:
        code = _run_command(list(sys.argv[1:] if argv is None else argv), terminal)
        flushed = [_flush(stream) for stream in (sys.stdout, sys.stderr)]
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    except (BrokenPipeError, OutputFailed) as error:
        return report_failed_output(error)
    return code if all(flushed) else code or PIPE_CLOSED


def report_failed_output(error: BrokenPipeError | OutputFailed) -> int:
    """Write nothing to standard output any more, and say why, unless its reader closed the pipe. Returns the exit
    code."""
    _discard_output(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return PIPE_CLOSED
    print(f"clawpy: {error}", file=sys.stderr)
    return REFUSED


def _flush(stream: TextIO) -> bool:
    """Write what is left. Returns False if the reader or the terminal is gone. Raises `OutputFailed`."""
    try:
        stream.flush()
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise OutputFailed(error) from error
        _discard_output(stream)
        return False
    return True


def _discard_output(stream: TextIO) -> None:
    """The stream cannot be written any more: write nowhere, or Python would report an error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run_command(argv: list[str], terminal: socket.socket | None) -> int:
    """Carry out the verb that `argv` names, or open the console if it names none. Prints what is refused. Returns the
    exit code."""
    invocation, options = Invocation(as_json="--json" in argv), None
    try:
        invocation, verb_words = split_options(argv)
        if verb_words[:1] == ["check"] and len(verb_words) > 1 and not verb_words[1].startswith("-"):
            verb_words.insert(1, "--")  # the command's own options are part of the command
        if verb_words:  # the console does not wait for the parser
            from clawpy_console.cli.verbs import parse

            options = parse(verb_words)
        with _locate_home(invocation):
            if options is None:
                return _open_console(invocation, terminal)
            with _interrupt_in_time():
                return _carry_out(options, invocation)
    except SystemExit as leaving:  # a signal, or after --help
        return leaving.code if isinstance(leaving.code, int) else DONE
    except WrongUse as error:
        _print_wrong_use(error, f"clawpy {options.verb}" if options else "clawpy", invocation)
        return WRONG_USE
    except engine.Refusal as error:
        _print_refusal(error, invocation)
        return WRONG_USE if error.code == "bad_arguments" else REFUSED
    except (BrokenPipeError, OutputFailed):
        raise
    except Exception as error:
        if not invocation.as_json:
            raise
        # The reader of the document learns of it too; the traceback is for a person.
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"
        _print_refusal(engine.Refusal("internal", message, "this is a bug; standard error has the details"), invocation)
        return REFUSED


@contextmanager
def _locate_home(invocation: Invocation) -> Iterator[None]:
    """Locate the home of the options; for the demo a temporary one, which is deleted at the end."""
    if not invocation.demo:
        invocation.locate()
        yield
        return
    from clawpy_console.cli.demo import temporary_home

    with _exit_on_signals(), temporary_home() as (home, workspace):
        invocation.home_name, invocation.workspace_names = str(home), [str(workspace)]
        invocation.locate()
        print(f"demo: a made-up project and organisation in {home.parent}, deleted when you leave", file=sys.stderr)
        yield


def _exit_on_signals() -> AbstractContextManager[None]:
    """SIGTERM and a closed terminal end the program in order, so that the engine is closed."""
    return signal_handlers(dict.fromkeys((signal.SIGTERM, signal.SIGHUP), _exit_on_signal))


def _interrupt_in_time() -> AbstractContextManager[None]:
    """Ctrl-C ends a verb within `SHUTDOWN_S` in any case: threads of an engine may wait for a git that does not answer.
    It stays ignored where it is, as in the background of a script."""
    ignores = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return signal_handlers({} if ignores else {signal.SIGINT: _interrupt})


def _interrupt(_number: int, _frame: object) -> None:
    exit_after(SHUTDOWN_S, INTERRUPTED)
    raise KeyboardInterrupt


def _exit_on_signal(number: int, _frame: object) -> None:
    """Exit in order, and within `SHUTDOWN_S` in any case."""
    exit_after(SHUTDOWN_S, 128 + number)
    sys.exit(128 + number)


def _open_console(invocation: Invocation, terminal: socket.socket | None) -> int:
    """Open a console for the client at `terminal`; returns the exit code once it is closed."""
    if invocation.as_json:
        raise WrongUse("--json needs a verb; `clawpy cards --json` for example")
    if terminal is None and sys.stdin.isatty() and sys.stdout.isatty():
        name = os.environ.get("TERM") or "not set"
        fix = "set TERM to what it is, for example TERM=xterm-256color, or use a verb, see `clawpy --help`"
        raise WrongUse(f"the console needs a terminal that draws a full screen; TERM is {name}", fix)
    workspaces = invocation.find_all_workspaces(needed=True)
    if terminal is None:
        raise engine.Refusal("no_terminal", "the console needs a terminal", "use a verb instead, see `clawpy --help`")
    from clawpy_console.attach.consoles import serve

    with _exit_on_signals():
        return serve(
            invocation.home,
            workspaces,
            open_demo if invocation.demo else cli.open_engine,
            terminal,
            demo=invocation.demo,
        )


def open_demo(home: Home, **options: Any) -> Engine:
    """An engine on the fresh home of the demo, filled with an organisation and some work."""
    from clawpy_console.cli.demo import add_organisation, start_work

    opened = cli.open_engine(home, **options)
    add_organisation(opened)
    start_work(opened, str(options["workspaces"][0]))
    return opened


def _print_wrong_use(error: WrongUse, verb: str, invocation: Invocation) -> None:
    if invocation.as_json:
        _print_refusal(engine.Refusal("bad_arguments", str(error), error.fix), invocation)
        return
    print(f"{error.command or verb}: {error}", file=sys.stderr)
    if error.fix:
        print(error.fix, file=sys.stderr)


def _print_refusal(error: Refusal, invocation: Invocation) -> None:
    if invocation.as_json:
        print_output(json.dumps(error.document(), ensure_ascii=False))
        return
    from clawpy_console.cli.printing import bad, clean, dim, strip_colours

    fix = f"\n        {dim(clean(error.fix))}" if error.fix else ""
    text = f"{bad('clawpy: ')}{clean(error.message)}{fix}"
    print(text if _has_colours(sys.stderr) else strip_colours(text), file=sys.stderr)


def _has_colours(stream: TextIO) -> bool:
    """Whether to print colours on `stream`; honours NO_COLOR and TERM=dumb."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def render_document(verb: str, document: Mapping[str, Any], action: str | None = None, *, colour: bool = False) -> str:
    """The text for the document of a verb or of one of its actions."""
    from clawpy_console.cli.printing import clean, strip_colours
    from clawpy_console.cli.verbs import VERBS

    text = "\n".join(find_printer(verb, action)(clean(document))) or VERBS[verb].if_empty
    return text if colour else strip_colours(text)


def find_printer(verb: str, action: str | None = None) -> Any:
    """The function of `cli.printing` that gives the lines of the document of a verb or of one of its actions."""
    from clawpy_console.cli.verbs import VERBS

    declared = VERBS[verb]
    module, name = declared.actions.get(action or "", declared).printer.split(".")
    return getattr(import_module(f"clawpy_console.cli.printing.{module}"), name)


# Verbs


def _carry_out(options: Namespace, invocation: Invocation) -> int:
    """Carry out a verb and print its output; returns the exit code."""
    code = _carry_out_printing_verb(options, invocation)
    if code is not None:
        return code
    from clawpy_console.cli.requests import get_document

    document = get_document(options, invocation)
    if invocation.as_json:
        print_output(json.dumps(document, ensure_ascii=False))
    else:
        if options.verb in ("config", "status") and (problem := document["settingsFault"]):
            fix = "until it is fixed, the settings stay as they were"
            _print_refusal(engine.Refusal("bad_config", problem, fix), invocation)
        action = getattr(options, "action", None)
        if text := render_document(options.verb, document, action, colour=_has_colours(sys.stdout)):
            print_output(text)
    if options.verb == "approve":
        return choose_approve_exit_code(document)
    return REFUSED if _has_failed(options.verb, document) else DONE


def _carry_out_printing_verb(options: Namespace, invocation: Invocation) -> int | None:
    """Carry out a verb that prints its output itself; returns the exit code. None for a verb with a document, which was
    not carried out."""
    match options.verb:
        case "run" | "serve":
            _run_headless(options, invocation)
        case "mcp":  # standard output belongs to the protocol from here on
            engine.serve_mcp(
                invocation.home,
                workspace=next(iter(invocation.find_chosen_workspaces()), ""),
                opener=cli.open_engine,
                agent=options.agent or "",
                version=engine.__version__,
            )
        case "check" | "recall" if options.batch is not None:
            from clawpy_console.cli import batch

            answer_batch = batch.check_batch if options.verb == "check" else batch.recall_batch
            return DONE if answer_batch(options, invocation) else REFUSED
        case "status" if options.format != "full" and not invocation.as_json:
            from clawpy_console.cli.requests import ask_engine
            from clawpy_console.cli.status_bar import format_status_line

            print_output(format_status_line(ask_engine(options, invocation), options.format))
        case "help" if not invocation.as_json:
            from clawpy_console.cli import help_pages

            help_pages.show_page(options.topic, invocation.home)
        case "completion" if not invocation.as_json:
            from clawpy_console.cli.verbs import make_completion_script

            print_output(make_completion_script(options.shell), end="")
        case _:
            return None
    return DONE


def choose_approve_exit_code(document: Mapping[str, Any]) -> int:
    """The exit code of `approve` (SPEC 9.8): `CANNOT_RUN` when the session lacked something; `REFUSED` when it failed,
    left failing tests, or did nothing so that the card is pending again."""
    session, card = document.get("session") or {}, document.get("prediction") or {}
    if session.get("result") == "cannot_run":
        return CANNOT_RUN
    did_nothing = card.get("status") == "pending"
    return REFUSED if did_nothing or session.get("result") in ("failed", "cancelled") else DONE


def _has_failed(verb: str, document: Mapping[str, Any]) -> bool:
    """Whether the document says that the request was not fulfilled."""
    match verb:
        case "doctor":
            return not document["ok"]
        case "discard":
            return not document["discarded"]
        case "forget":
            return not document["forgotten"]
        case "key":
            return document.get("reached") is False
        case "notify":
            return any(not surface["delivered"] for surface in document.get("tested", ()))
        case "remember":
            return document["badLines"] and not document["remembered"] + document["known"]
    return False


def _run_headless(options: Namespace, invocation: Invocation) -> None:
    """Run the engine without a screen; `serve` opens the gateway."""
    from clawpy_console.cli.headless import run, serve

    workspaces = invocation.find_all_workspaces(needed=True)
    if options.verb == "run":
        run(invocation.home, workspaces, seconds=options.seconds, as_json=invocation.as_json)
        return
    names = ("host", "port", "certificate", "certificate_key", "tunnel")
    gateway = {name: value for name in names if (value := getattr(options, name)) is not None}
    gateway["in_file"] = options.store == "file"
    serve(invocation.home, workspaces, seconds=options.seconds, as_json=invocation.as_json, gateway=gateway)
