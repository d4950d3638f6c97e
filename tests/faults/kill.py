"""Kills a program at a random instant, and returns the lines by which it acknowledged its work until then."""

import os
import random
import signal
import subprocess
import sys
import time


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
