"""The one place that runs git, and what can be read off a repository without running anything of it, one module a
subject (SPEC 3.9, 11.1).

`Git` is git in a folder: a fixed environment, a configuration of ours that names no program, no look into repositories
below. `repository` finds a repository by its files, makes that configuration and starts the one process;
`tree` brings an index up to date with files that somebody else wrote. Nothing else in the engine starts git.

What the other modules read are frozen values. Both the sensing of cards (SPEC 2.1) and the flows that a card runs
(SPEC 3.9) read here, so that a card and its result never disagree. Names and paths are as git has them: whoever shows
them makes them plain first. `reader` remembers what it saw until something moves. `calendars` reads the operator's own
files. `github` asks the server that a repository is on, through `gh`. May import engine.model, clock, plain_files and
programs.
"""

from engine.git.branch_names import is_session_branch, session_branch
from engine.git.command import Git, create, version
from engine.git.process import MIN_VERSION, GitError
from engine.git.repository import repository_root, submodule_paths
from engine.git.shadow import Repository

__all__ = [
    "MIN_VERSION",
    "Git",
    "GitError",
    "Repository",
    "create",
    "is_session_branch",
    "repository_root",
    "session_branch",
    "submodule_paths",
    "version",
]
