"""The one place that runs git, and what can be read from a repository without running any of its code (SPEC 3.9, 11.1).

`Git` (`command`) is git in a folder: a fixed environment, a configuration of ours that names no program, and nested
repositories are left alone. `process` starts git, `repository` finds the repository of a folder by its files and makes
the configuration. Nothing else in the engine starts git.

The other modules read one subject each and return frozen values. `reader` reads the state of a repository (`state`) and
inspects it (`inspection`), and caches both until something changes. The sensing of cards (SPEC 2.1) and the flows that
a card runs (SPEC 3.9) read here, so that a card and its result never disagree. Names and paths are as git has them:
sanitise them before they are shown. `github` asks the server through `gh`.
May import engine.model, clock, files and programs.
"""

from engine.git.command import Git, create, version
from engine.git.names import is_session_branch, session_branch
from engine.git.process import MIN_VERSION, GitError, submodule_paths
from engine.git.repository import Repository, repository_root

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
