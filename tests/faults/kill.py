"""Programs and forked processes, which a test kills at a random instant."""

import os
import random
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable


def run_until_killed(chance: random.Random, max_seconds: float, code: str, *arguments: object) -> list[str]:
    """Run Python code, and kill it with its children at most `max_seconds` after its first line. Returns the complete
    lines that it printed until then."""
    argv = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as program:
        first = program.stdout.readline()
        time.sleep(chance.uniform(0, max_seconds))
        os.killpg(program.pid, signal.SIGKILL)
        text = (first + program.stdout.read()).decode()
    return [line for line in text.split("\n")[:-1] if line]


def fork_child(work: Callable[..., object], *arguments: object) -> int:
    """Fork, and run `work` in a process group of its own; returns the child's pid."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pytest's own threads do not matter to the child
        pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        work(*arguments)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
