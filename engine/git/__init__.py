"""The only package that runs git. It reads repositories without running any of their code (SPEC 3.9, 11.1).

`Git` (`command`) runs git in a folder. `environment` starts it with fixed variables and a configuration that names no
program. `repository` finds the repository of a folder by its files.

Each of the other modules reads one subject and returns frozen values:

| module | what it reads or finds |
|---|---|
| `history` | commits, tags, reflogs and stashes; what a merge of two commits would bring |
| `habits` | which files change together, and how the project is released |
| `state` | branches and the files of the working tree |
| `unfinished` | the merge, rebase or the like that is not finished |
| `patch`, `own_changes`, `leftovers` | your own work as one patch, and what it left behind: debugging, outdated names |
| `unpushed` | secrets and other problems in what is not pushed or not committed |
| `lost_commits` | commits that are on no branch |

`reader` reads the state of a repository and inspects it (`inspection`), and keeps both results until something changes.
`github` asks the server through `gh`.

The sensing of cards (SPEC 2.1) and the flows of cards (SPEC 3.9) use the same functions, so that a card and its result
agree. Names and paths are not changed, so sanitise them before they are shown.
It may import engine.model, background, clock, files, frozen, inference and installed.
"""

from engine.git.command import Git, create_repository, read_git_version
from engine.git.environment import MIN_VERSION, GitError, Repository
from engine.git.repository import find_repository_root, read_submodule_paths

__all__ = [
    "MIN_VERSION",
    "Git",
    "GitError",
    "Repository",
    "create_repository",
    "find_repository_root",
    "read_git_version",
    "read_submodule_paths",
]
