"""The program `clawpy`, also `python -m clawpy_console`. What must be quick is done before anything heavy is imported
(SPEC 9.8, 10.3)."""

from __future__ import annotations

import gc
import os
import sys

from clawpy_console.cli import OutputFailed, WrongUse, print_output, split_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from socket import socket


def main() -> int:
    """Run `clawpy` with the process's arguments. Returns the exit code."""
    _open_closed_streams()
    if "_ARGCOMPLETE" in os.environ:
        from clawpy_console.cli.verbs import complete

        complete()
    argv = sys.argv[1:]
    try:
        invocation, verb_words = split_options(argv)
    except WrongUse:
        return _run_verb(argv)  # which prints the error
    if verb_words[:1] == ["status"] and not (invocation.as_json or invocation.demo):
        from clawpy_console.cli.status_bar import read_line

        line = read_line(invocation.home_name, verb_words)
        if line is not None:
            return _print_line(line)
    if verb_words or invocation.as_json or not _can_draw_screen():
        return _run_verb(argv)
    gc.disable()  # until the client serves its terminal, and until the first frame (`GarbageCollector`)
    from functools import partial

    from clawpy_console.attach import client

    invocation.locate()
    try:
        return client.main(
            None if invocation.demo else invocation.home, invocation.workspace_names, partial(_serve, argv)
        )
    except KeyboardInterrupt:  # before the console had the terminal, or after
        print(file=sys.stderr)
        return 130


def _open_closed_streams() -> None:
    """Open the standard streams that were closed, as by `>&-`."""
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:
            file = open(os.devnull, mode)  # noqa: PTH123, SIM115 - it gets the number of that stream
            os.set_inheritable(file.fileno(), True)
            setattr(sys, stream, file)


def _print_line(line: str) -> int:
    """Print a line for a status bar. Returns the exit code."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a sign shows another
    try:
        print_output(line)
    except (BrokenPipeError, OutputFailed) as error:
        from clawpy_console.cli.main import report_failed_output

        return report_failed_output(error)
    return 0


def _can_draw_screen() -> bool:
    """Whether standard input and output are a terminal that draws a full screen."""
    is_dumb = os.environ.get("TERM", "") in ("", "dumb", "unknown")
    return sys.stdin.isatty() and sys.stdout.isatty() and not is_dumb


def _run_verb(argv: Sequence[str], terminal: socket | None = None) -> int:
    """Run `clawpy` in this process; see `cli.main.main`."""
    from clawpy_console.cli.main import main as run

    return run(argv, terminal)


def _serve(argv: Sequence[str], terminal: socket) -> int:
    """Open the console of the client at `terminal`, or say on standard error why not."""
    from contextlib import suppress

    from clawpy_console.attach.protocol import ClientEnd

    with terminal:
        code = _run_verb(argv, terminal)
        with suppress(OSError):  # a client that had a console was ended with it
            terminal.sendall(ClientEnd(code).encode())
    return code


if __name__ == "__main__":
    sys.exit(main())
