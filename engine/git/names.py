"""Names: of sessions' branches, of a workspace in the status line, and of the project a repository is a clone of."""

from __future__ import annotations

import logging
import unicodedata
from pathlib import Path

from engine.git.command import Git
from engine.git.repository import repository_root
from engine.model import Refusal, sanitise

log = logging.getLogger(__name__)

PREFIXES = ("clawpy/", "clawpy-")
MAX_LENGTH = 50
"""Characters of a branch's name, before it is numbered."""


def session_branch(title: str, session_id: str, *, below: bool = True) -> str:
    """The branch that a session's changes become: `clawpy/` and the first words of its prompt in lower case, such as
    `clawpy/fix-lint-in-cart`, or the session's id where there is no word; `clawpy-` where none can be below `clawpy`.
    Always a name that git takes."""
    first = unicodedata.normalize("NFKC", title.strip().partition("\n")[0]).lower()
    words = "".join(letter if letter.isalnum() else " " for letter in first).split()
    name, max_length = "", MAX_LENGTH - len(PREFIXES[0])
    for word in words:
        if name and len(name) + 1 + len(word) > max_length:
            break
        name = f"{name}-{word}" if name else word[:max_length]
    return f"{PREFIXES[0] if below else PREFIXES[1]}{name or session_id}"


def is_session_branch(name: str, session: str) -> bool:
    """Whether a branch is one that a session's changes became. `session`: the trailer `Session` of its last commit,
    "" when it has none. A branch that you committed to is yours."""
    return name.startswith(PREFIXES) and bool(session.strip())


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
