"""Which repository a folder belongs to, which project a repository is a clone of, and which files it lost."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from engine.git.command import Git
from engine.git.repository import repository_root
from engine.model import Refusal

log = logging.getLogger(__name__)


def top_folder(folder: str) -> str:
    """The workspace that a folder belongs to; itself where it is in none."""
    try:
        return str(repository_root(Path(folder)))
    except Refusal:
        return folder


class Projects:
    """The project that a workspace is a clone of: the first commit of its history, which all its clones have."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, workspace: str) -> str:
        """ "" where git cannot say, and for a history that is cut off."""
        if not self._known.get(workspace):
            try:
                git = Git(Path(workspace), timeout=10)
                whole = git.text("rev-parse", "--is-shallow-repository") == "false"
                roots = git.text("rev-list", "--max-parents=0", "HEAD", allowed=(0, 128)).split() if whole else []
            except Refusal as refusal:
                log.warning("%s is not a project that could be shared: %s", workspace, refusal)
                roots = []
            self._known[workspace] = min(roots, default="")
        return self._known[workspace]


def lost_files(workspace: str, paths: Sequence[str]) -> list[str]:
    """Of these paths those that the repository had once and the folder has no longer; [] where git cannot say."""
    folder = Path(workspace)
    try:
        git = Git(folder, timeout=5)
        missing = [path for path in paths if not (folder / path).exists()]
        return [one for one in missing if git.text("log", "-1", "--format=%H", "HEAD", "--", f":(literal){one}")]
    except Refusal as refusal:
        log.warning("%s was not searched for missing files: %s", workspace, refusal)
        return []
