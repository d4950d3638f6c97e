"""The program `clawpy`: a status bar's question is answered before anything else is even imported (SPEC 10.3)."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run `clawpy` with the process's arguments; its exit code."""
    if "_ARGCOMPLETE" in os.environ:
        from clawpy_console.cli.completion import answer as complete

        complete()
    if "status" in sys.argv:
        from clawpy_console.cli.status_bar import answer

        said = answer(sys.argv[1:])
        if said is not None:
            if hasattr(sys.stdout, "reconfigure"):
                sys.stdout.reconfigure(errors="replace")
            print(said)
            return 0
    from clawpy_console.cli.main import main as everything

    return everything()
