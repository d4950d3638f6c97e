"""A program that starts and follows one command as an engine does. Arguments: HOME ROOT RUNG SESSION CODE."""

import sys
from pathlib import Path

from engine.execution.processes import Processes
from engine.execution.sandbox import Confinement
from engine.execution.sandbox.host_paths import make_session_environment
from engine.execution.sandbox.ladder import find_rungs
from engine.execution.session_processes import get_pid_folder
from engine.home import Home


def main():
    home, root, rung, session, code = sys.argv[1:]
    sandbox = next(candidate for candidate in find_rungs() if candidate.name == rung)
    confinement = Confinement(Path(root, "folder"), Path(root, "scratch"), Path(root, "caches"))
    confinement.folder.mkdir()
    confinement.make()
    argv = sandbox.wrap([sys.executable, "-c", code], confinement, cwd=confinement.folder)
    folder = get_pid_folder(Home.locate(Path(home)))
    processes = Processes(session, folder, is_contained=sandbox.has_process_namespaces)
    processes.run(
        argv,
        cwd=confinement.folder,
        env=make_session_environment(confinement, sandbox, session),
        on_output=lambda chunk: print(chunk.decode(), end="", flush=True),
    )


main()
