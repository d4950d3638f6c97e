"""Where pages of entries are, under the home's data folder (SPEC 6.1). Pure.

    learnings/global/
    learnings/projects/KEY/                              KEY: the workspace's name and a mark of its path
    learnings/projects/KEY/sessions/SESSION/
    learnings/projects/KEY/sessions/SESSION/teams/LEADER/

and in each of them `institutional.md`, `tasks/*.md`, `proxy.md`, `proxy-tasks/*.md`. Sessions without a workspace are
those of the project `none`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from engine.learning.learnings.entries import Place
from engine.model import LearningKind, LearningScope

ROOT = "learnings"
NOWHERE = "none"

PAGES = {LearningKind.INSTITUTIONAL: "institutional.md", LearningKind.PROXY: "proxy.md"}
FOLDERS = {"tasks": LearningKind.TASK, "proxy-tasks": LearningKind.PROXY}

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")


@dataclass(frozen=True, slots=True)
class Scope:
    """One scope: what of `project` (its key), `session` and `team` (the leader) is set says which."""

    project: str = ""
    session: str = ""
    team: str = ""

    @property
    def level(self) -> LearningScope:
        if self.team:
            return LearningScope.TEAM
        if self.session:
            return LearningScope.SESSION
        return LearningScope.PROJECT if self.project else LearningScope.GLOBAL

    @property
    def id(self) -> str:
        """The leader, the session's id, the project's key, or ""."""
        return self.team or self.session or self.project

    @property
    def folder(self) -> str:
        """Its folder under the home's data folder."""
        parts = [ROOT, *(("projects", self.project) if self.project else ("global",))]
        parts += ["sessions", safe(self.session)] if self.session else []
        parts += ["teams", safe(self.team)] if self.team else []
        return "/".join(parts)

    def page(self, kind: LearningKind, entry: str = "") -> str:
        """The page of an entry: one for all, but each piece of work has its own."""
        return f"{self.folder}/tasks/{entry}.md" if kind is LearningKind.TASK else f"{self.folder}/{PAGES[kind]}"


GLOBAL = Scope()


def project_key(workspace: str) -> str:
    """The name of a workspace's folder: readable, and no other workspace's."""
    if not workspace:
        return NOWHERE
    name = re.sub(r"[^a-z0-9]+", "-", PurePosixPath(workspace).name.lower()).strip("-")[:40] or "project"
    return f"{name}-{hashlib.sha256(workspace.encode(errors='replace')).hexdigest()[:8]}"


def place_of(path: str) -> Place | None:
    """What a page is, by its path; None for a file that is no page of entries."""
    scope = scope_at(path)
    rest = path[len(scope.folder) + 1 :].split("/") if path.startswith(f"{scope.folder}/") else []
    kind = None
    if len(rest) == 1:
        kind = next((kind for kind, name in PAGES.items() if name == rest[0]), None)
    elif len(rest) == 2 and rest[1].endswith(".md") and not rest[1].startswith("."):
        kind = FOLDERS.get(rest[0])
    if kind is None:
        return None
    return Place(scope.level, scope.id, scope.project, scope.session, kind, path)


def safe(name: str) -> str:
    """A name as a folder; another where it is none."""
    if _SAFE.fullmatch(name):
        return name
    return f"x-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:16]}"


def scope_at(path: str) -> Scope:
    """The scope that a page is in."""
    parts = path.split("/")
    if parts[:2] != [ROOT, "projects"] or len(parts) < 4:
        return GLOBAL
    project, session, team = parts[2], "", ""
    if parts[3] == "sessions" and len(parts) > 5:
        session = parts[4]
        if parts[5] == "teams" and len(parts) > 7:
            team = parts[6]
    return Scope(project, session, team)
