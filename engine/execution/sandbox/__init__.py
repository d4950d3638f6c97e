"""The sandbox ladder (SPEC 3.8): what a session's commands may touch, and who holds them to it."""

from engine.execution.sandbox.base import (
    PRIVATE_FOLDERS,
    SESSION_MARK,
    UNCONFINED,
    Confinement,
    NoSandbox,
    RungReport,
    Sandbox,
    disk_shortage,
)
from engine.execution.sandbox.bubblewrap import Bubblewrap
from engine.execution.sandbox.gate import HostGate
from engine.execution.sandbox.host_paths import CACHED_PACKAGES, link_tools, secret_places, session_environment
from engine.execution.sandbox.ladder import best_sandbox, ladder_reports
from engine.execution.sandbox.mounts import Caches, written_files

__all__ = [
    "CACHED_PACKAGES",
    "PRIVATE_FOLDERS",
    "SESSION_MARK",
    "UNCONFINED",
    "Bubblewrap",
    "Caches",
    "Confinement",
    "HostGate",
    "NoSandbox",
    "RungReport",
    "Sandbox",
    "best_sandbox",
    "disk_shortage",
    "ladder_reports",
    "link_tools",
    "secret_places",
    "session_environment",
    "written_files",
]
