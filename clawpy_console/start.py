"""The program `clawpy`: what has to be quick is done before anything heavy is imported (SPEC 9.8, 10.3)."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from socket import socket


def main() -> int:
    """Run `clawpy` with the process's arguments; its exit code."""
    if "_ARGCOMPLETE" in os.environ:
        from clawpy_console.cli.completion import answer as complete

        complete()
    argv = sys.argv[1:]
    if "status" in argv:
        from clawpy_console.cli.status_bar import answer

        said = answer(argv)
        if said is not None:
            if hasattr(sys.stdout, "reconfigure"):
                sys.stdout.reconfigure(errors="replace")
            print(said)
            return 0
    console = _console(argv)
    if console is not None and sys.stdin.isatty() and sys.stdout.isatty():
        from functools import partial

        from clawpy_console.attach import client
        from engine.home import Home

        home, workspaces, demo = console
        try:
            return client.main(None if demo else Home.locate(home), workspaces, partial(_serve, argv))
        except KeyboardInterrupt:  # before the console had the terminal, or after
            print(file=sys.stderr)
            return 130
    return _verb(argv)


def _verb(argv: Sequence[str], terminal: socket | None = None) -> int:
    from clawpy_console.cli.main import main as run

    return run(argv, terminal)


def _serve(argv: Sequence[str], terminal: socket) -> int:
    """Open the console of the client at `terminal`, or say on standard error why not."""
    import json
    from contextlib import suppress

    from clawpy_console.attach import wire

    with terminal:
        code = _verb(argv, terminal)
        with suppress(OSError):  # it was told already, if it had a console
            terminal.sendall(wire.message(wire.EXIT, json.dumps({"code": code, "text": ""}).encode()))
    return code


def _console(argv: Sequence[str]) -> tuple[str | None, list[str], bool] | None:
    """Home, workspaces and whether it is the demo, when a console is asked for and nothing else."""
    home, workspaces, demo = None, [], False
    items = iter(argv)
    for item in items:
        name, equals, value = item.partition("=")
        if item == "--demo":
            demo = True
        elif name in ("--home", "--workspace") and (given := value if equals else next(items, "")):
            if name == "--home":
                home = given
            else:
                workspaces.append(given)
        else:
            return None
    return home, workspaces, demo
