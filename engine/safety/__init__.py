"""Safety rails (SPEC 3.1-3.7): no work starts without a permit, and only the pipeline issues permits.

| modules | subject |
|---|---|
| `trigger_history`, `costs`, `content`, `gate`, `kill_switch` | the six rails, which return a `RailVerdict` |
| `production_targets` | the branches, hosts and paths about which the gate asks |
| `pipeline`, `permits` | asks all six, and issues permits |
| `safety` | the service for other packages |

Here is the stop file (3.7), a file named STOP in the home's data folder that stops the engine from outside. It works in
any state of the engine. `clawpy stop` writes it before it connects to the engine, so the verb works even if the console
hangs; `touch DATA/STOP` does the same. The kill switch looks for the file at every question, and its watcher five times
a second. The watcher ends running sessions, replaces the file by the hold `stop`, which survives a restart, and deletes
the file. Only `resume stop` ends the hold. An engine that is not running finds the file when it starts.

It may import learning.decisions, storage, config, events, clock, installed and model. This module itself imports the
standard library and engine.files only, so that verbs load it quickly.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from engine.files import write_json
from engine.frozen import frozen

FILE_NAME = "STOP"
"""The name of the stop file."""

STOPPED = "stopped by `clawpy stop`"
"""The reason of a stop without a given reason."""


@frozen
class StopRequest:
    """The content of a stop file. An empty or unreadable file is a stop too."""

    reason: str
    by: str


def get_stop_file(data: Path) -> Path:
    """The path of the stop file in the data folder of a home."""
    return data / FILE_NAME


def request_stop(data: Path, reason: str, by: str) -> Path:
    """Write the stop file atomically and durably, without an engine. Raises OSError if the folder cannot be written."""
    data.mkdir(parents=True, exist_ok=True)
    path = get_stop_file(data)
    write_json(path, {"reason": reason, "by": by})
    return path


def is_stop_requested(path: Path) -> bool:
    """Whether there is a stop file. If the folder cannot be searched, this is true: the switch fails closed."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def read_stop_request(path: Path) -> StopRequest:
    """The request in the stop file, with defaults for missing values."""
    try:
        content = json.loads(path.read_bytes()[:4096])
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        content = {}
    return StopRequest(str(content.get("reason") or "stop file found"), str(content.get("by") or "outside"))
