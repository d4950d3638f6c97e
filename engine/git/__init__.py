"""The one place that runs git, and what can be read from a repository without running any of its code (SPEC 3.9, 11.1).

`Git` (`command`) is git in a folder. `process` starts git, with a fixed environment and a configuration of ours that
names no program; `repository` finds the repository of a folder by its files. Nothing else in the engine starts git.

The other modules read one subject each and return frozen values: `history`, `state` of the working tree, `patch` of
your own work … `reader` reads the state of a repository and inspects it (`inspection`), and caches both until something
changes. The sensing of cards (SPEC 2.1) and the flows that a card runs (SPEC 3.9) read here, so that a card and its
result never disagree. Names and paths are as git has them: sanitise them before they are shown. `github` asks the
server through `gh`.
May import engine.model, clock, files and programs.
"""

from engine.git.command import Git, create, version
from engine.git.process import MIN_VERSION, GitError, Repository
from engine.git.repository import repository_root, submodule_paths

__all__ = [
    "MIN_VERSION",
    "Git",
    "GitError",
    "Repository",
    "create",
    "repository_root",
    "submodule_paths",
    "version",
]
