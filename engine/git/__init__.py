"""The one place that runs git (SPEC 3.9, 11.1).

`Git` is git in a folder: a fixed environment, a configuration of ours that names no program, no look into repositories
below. `repository` finds a repository by its files and makes that configuration; `process` starts the one process;
`tree` brings an index up to date with files that somebody else wrote. Nothing else in the engine starts git.
May import engine.model, engine.plain_files and engine.programs.
"""

from engine.git.branches import is_own_branch, own_branch
from engine.git.command import Git, create, version
from engine.git.modules import submodule_paths
from engine.git.process import OLDEST, GitError
from engine.git.repository import Repository, repository_root

__all__ = [
    "OLDEST",
    "Git",
    "GitError",
    "Repository",
    "create",
    "is_own_branch",
    "own_branch",
    "repository_root",
    "submodule_paths",
    "version",
]
