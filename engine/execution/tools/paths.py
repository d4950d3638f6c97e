"""From what a model wrote as a path to the names along it: pure, and strict about what is no plain path (SPEC 3.8)."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence

from engine.model import Refusal, sanitise

LONGEST_PATH = 4_096
LONGEST_NAME = 255
"""Bytes, as POSIX file systems have them."""

DEEPEST = 256


def parts_of(path: str, roots: Sequence[str]) -> list[str]:
    """The names of `path` below the folder, `..` among them. An absolute path must begin with one of `roots`, the
    spellings of the folder itself. Raises `Refusal` `bad_path`, `outside`."""
    if not path.strip():
        raise Refusal("bad_path", "the path is empty", "name a file of the project, for example src/main.py")
    if sanitise(path) != path or "\n" in path:
        raise Refusal("bad_path", "the path has control characters in it", "write it as plain text")
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise Refusal("bad_path", f"the path is longer than {LONGEST_PATH} bytes", "name a file of the project")
    if path == "~" or path.startswith("~/"):
        raise outside(path)
    parts = split(path)
    if len(parts) > DEEPEST:
        raise Refusal("bad_path", f"the path is more than {DEEPEST} folders deep", "name a file of the project")
    return below(parts, roots, path) if path.startswith("/") else parts


def split(path: str) -> list[str]:
    """The names of a path; what means nothing is left out, `..` is kept."""
    return [name for name in path.split("/") if name not in ("", ".")]


def below(parts: list[str], roots: Sequence[str], path: str) -> list[str]:
    """What of an absolute path lies below one of `roots`. Raises `Refusal` `outside`."""
    for root in roots:
        names = split(root)
        if parts[: len(names)] == names:
            return parts[len(names) :]
    raise outside(path)


def outside(path: str) -> Refusal:
    """That a path leads out of the folder."""
    return Refusal(
        "outside",
        f"{shown(path)} is not in the project",
        "only files of the project can be used; write the path relative to its top folder",
    )


def check_name(name: str) -> None:
    """Raises `Refusal` for a name that no file may be reached by: git's own folder, in any spelling that some file
    system takes for it, and names that are too long."""
    if len(os.fsencode(name)) > LONGEST_NAME:
        raise Refusal("bad_path", f"{shown(name)} is longer than {LONGEST_NAME} bytes", "use a shorter name")
    if is_git(name):
        raise Refusal(
            "git_folder", ".git is not for the file tools: what is in it runs on the operator's machine", "use exec git"
        )


def is_git(name: str) -> bool:
    """Whether some file system takes this name for `.git`."""
    # HFS+ does not see invisible characters, NTFS neither trailing dots and spaces nor what follows a colon.
    letters = unicodedata.normalize("NFKC", name)
    folded = "".join(one for one in letters if unicodedata.category(one) not in ("Cf", "Cc"))
    return folded.split(":")[0].rstrip(". ").casefold() in (".git", "git~1")


def shown(path: str) -> str:
    """A path for words: harmless and short."""
    text = sanitise(path)
    return text if len(text) <= 200 else f"{text[:200]}…"
