"""A program that starts and follows one command as an engine does. Arguments: HOME ROOT RUNG SESSION CODE."""

from __future__ import annotations

import sys
from pathlib import Path

from engine.execution.process_termination import pid_folder
from engine.execution.processes import Processes
from engine.execution.sandbox.ladder import find_rungs
from engine.home import Home
from tests.attacks.inside import Inside


def main() -> None:
    home, root, rung, session, code = sys.argv[1:]
    sandbox = next(candidate for candidate in find_rungs() if candidate.name == rung)
    inside = Inside(sandbox, Path(root), session)
    argv, environment = inside.wrap(code)
    folder = pid_folder(Home.locate(Path(home)))
    processes = Processes(session, folder, contained=sandbox.has_process_namespaces)
    processes.run(
        argv,
        cwd=inside.confinement.folder,
        env=environment,
        on_output=lambda chunk: print(chunk.decode(), end="", flush=True),
    )


main()
