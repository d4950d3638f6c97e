"""The stop from outside (SPEC 3.7): a file named STOP in the home's data folder.

Whoever can write that file stops the engine, whatever state it is in: `clawpy stop` writes it before it even tries
to reach the engine, so it works when the console hangs; `touch DATA/STOP` does too. The kill switch looks for it on
every question, and its watcher every tenth of a second: it ends running sessions, makes the file a stop hold, which
survives a restart, and takes the file away. Only `resume stop` lifts the hold. An engine that is not running finds
the file when it starts.

Standard library and engine.files only, so that a verb can import it at once.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from engine.files import write_json
from engine.frozen import frozen

FILE_NAME = "STOP"

STOPPED = "stopped by `clawpy stop`"
"""The reason of a stop that was given none."""


@frozen
class StopRequest:
    """The content of the stop file. An empty or unreadable file is a stop too."""

    reason: str
    by: str


def stop_file(data: Path) -> Path:
    """Where the file of a home with this data folder is."""
    return data / FILE_NAME


def request_stop(data: Path, reason: str = STOPPED, by: str = "clawpy stop") -> Path:
    """Write the stop file, whole and on disk; needs no engine. Raises OSError when the folder cannot be written."""
    data.mkdir(parents=True, exist_ok=True)
    path = stop_file(data)
    write_json(path, {"reason": reason, "by": by})
    return path


def is_requested(path: Path) -> bool:
    """Whether there is a stop file. A folder that cannot be searched counts as a stop: the switch fails closed."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def read_request(path: Path) -> StopRequest:
    """The request in the stop file, with defaults for missing values."""
    try:
        content = json.loads(path.read_bytes()[:4096])
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        content = {}
    return StopRequest(str(content.get("reason") or "stop file found"), str(content.get("by") or "outside"))


def clear(path: Path) -> None:
    """Take the file away. Raises OSError when it cannot be."""
    path.unlink(missing_ok=True)
