"""The name and branch of a workspace, as the status line shows them."""

from __future__ import annotations

from pathlib import Path

from engine.git.command import Git
from engine.model import Refusal, sanitise


def workspace_label(workspace: str) -> str:
    """The name and branch of a workspace, such as `shop main*`, with a star for uncommitted changes."""
    folder = Path(workspace)
    git = Git(folder, timeout=5)
    try:
        branch = git.text("symbolic-ref", "--short", "-q", "HEAD", allowed=(0, 1)) or "detached"
        dirty = git.output("status", "--porcelain", "-uno")
    except Refusal as refusal:
        return sanitise(f"{folder.name} ({refusal.code})")
    return sanitise(f"{folder.name} {branch}{'*' if dirty else ''}")
