"""Lends a worktree the packages that only the operator's tree has."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine.execution.runners.flow import Job
from engine.execution.runners.toolchains.project_tools import ProjectTool
from engine.execution.runners.toolchains.tool_table import folders_up_to, language_of


@contextmanager
def linked_packages(job: Job, tools: Sequence[ProjectTool]) -> Iterator[None]:
    """Link folders that only the operator's tree has (`node_modules`) into the worktree of `job` during a run, for the
    projects of `tools` and the folders above them. The links are removed afterwards, so no change set has them."""
    used = tools if job.folder != job.workspace else ()
    folders = {above for tool in used for above in folders_up_to(tool.folder, job.folder)}
    names = {name for tool in used for name in language_of(tool.row.kind).linked_folders}
    links: list[Path] = []
    for place in sorted(folders):
        for name in sorted(names):
            link, source = place / name, job.workspace / place.relative_to(job.folder) / name
            if source.is_dir() and not os.path.lexists(link) and place.is_dir():
                links.append(link)
                link.symlink_to(source, target_is_directory=True)
    try:
        yield
    finally:
        for link in links:
            link.unlink(missing_ok=True)
