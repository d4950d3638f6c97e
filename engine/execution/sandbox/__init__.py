"""The sandbox ladder (SPEC 3.8): what a session's commands may touch, and who holds them to it."""

from engine.execution.sandbox.base import (
    PRIVATE,
    SESSION_MARK,
    UNCONFINED,
    Confinement,
    NoSandbox,
    RungReport,
    Sandbox,
)
from engine.execution.sandbox.bubblewrap import Bubblewrap
from engine.execution.sandbox.environment import (
    PASSED,
    SECRET_PLACES,
    SECRET_POINTERS,
    secret_places,
    session_environment,
)
from engine.execution.sandbox.gate import HostGate
from engine.execution.sandbox.installations import tools_in
from engine.execution.sandbox.ladder import best_sandbox, ladder_reports
from engine.execution.sandbox.limits import disk_shortage

__all__ = [
    "PASSED",
    "PRIVATE",
    "SECRET_PLACES",
    "SECRET_POINTERS",
    "SESSION_MARK",
    "UNCONFINED",
    "Bubblewrap",
    "Confinement",
    "HostGate",
    "NoSandbox",
    "RungReport",
    "Sandbox",
    "best_sandbox",
    "disk_shortage",
    "ladder_reports",
    "secret_places",
    "session_environment",
    "tools_in",
]
