"""Which repository a folder belongs to, and which project a repository is a clone of."""

from __future__ import annotations

import logging
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


class ProjectIds:
    """The project that a workspace is a clone of: the first commit of its history, which all its clones have."""

    def __init__(self) -> None:
        self._cache: dict[str, str] = {}

    def of(self, workspace: str) -> str:
        """ "" where git cannot say, and for a history that is cut off."""
        if not self._cache.get(workspace):
            try:
                git = Git(Path(workspace), timeout=10)
                is_complete = git.text("rev-parse", "--is-shallow-repository") == "false"
                roots = git.text("rev-list", "--max-parents=0", "HEAD", allowed=(0, 128)).split() if is_complete else []
            except Refusal as refusal:
                log.warning("%s is not a project that could be shared: %s", workspace, refusal)
                roots = []
            self._cache[workspace] = min(roots, default="")
        return self._cache[workspace]
