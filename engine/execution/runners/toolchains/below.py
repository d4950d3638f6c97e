"""Projects below the top of a repository: not worked with yet, but told of."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from engine.git import Git
from engine.values import Refusal, sanitise

MANIFESTS = (
    "pyproject.toml", "setup.py", "tox.ini", "package.json", "Cargo.toml", "go.mod", "pom.xml", "build.gradle",
    "build.gradle.kts", "Gemfile", "composer.json", "mix.exs",
)  # fmt: skip

DEEPEST = 4
"""Folders below the top that are looked at."""


def manifests_below(folder: Path) -> tuple[str, ...]:
    """Folders of the repository, not its top, that hold a manifest which git tracks, in order; () where git cannot be
    asked."""
    try:
        listed = Git(folder).output("ls-files", "-z", "--", *(f"*/{name}" for name in MANIFESTS))
    except Refusal:
        return ()
    folders = {PurePosixPath(os.fsdecode(path)).parent for path in listed.split(b"\0") if path}
    return tuple(sorted(sanitise(str(one)) for one in folders if len(one.parts) <= DEEPEST))
