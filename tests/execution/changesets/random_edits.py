"""Random edits of the files of a folder: of a session, of the operator meanwhile and before, and later ones."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

ALL_PATHS = ("a.txt", "b.txt", "d", "d/c.txt", "d/e.txt", "d/f/g.txt", "x/y/z.txt", "x/y", 'ü "q"\n.txt', "A.TXT")
EXISTING = ("a.txt", "b.txt", "d/c.txt", "x/y/z.txt")
"""The files at the beginning."""
LINES = tuple(f"line {number} of a text that is long enough" for number in range(12))


@dataclass(frozen=True)
class Edit:
    """One edit of the files of a folder. An edit that is impossible there is skipped."""

    kind: str
    """A key of `KINDS`."""
    name: str
    """The path of the file."""
    other: str = "a.txt"
    """A second path: the new name of a file, or a word for its text."""
    number: int = 0
    """Which line, text, mode or target: each kind takes what it needs from it."""
    record: str = ""
    """What the operator then tells git: "stage", "commit" or nothing."""

    def apply(self, root: Path):
        try:
            KINDS[self.kind](self, root, root / self.name)
        except (OSError, UnicodeDecodeError):
            return


def change_line(edit: Edit, root: Path, path: Path):
    """Change one line."""
    lines = path.read_text().splitlines()
    changed = edit.number % max(len(lines), 1)
    lines[changed : changed + 1] = [f"changed to {edit.other}"]
    path.write_text("\n".join(lines) + "\n")


def write_text(edit: Edit, root: Path, path: Path):
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        path.write_text("\n".join(LINES[edit.number :]) + "\n")


def write_binary(edit: Edit, root: Path, path: Path):
    path.write_bytes(bytes([0, edit.number, 255, 13, 10]))


def delete_file(edit: Edit, root: Path, path: Path):
    path.unlink()


def delete_folder(edit: Edit, root: Path, path: Path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)


def rename_file(edit: Edit, root: Path, path: Path):
    (root / edit.other).parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(root / edit.other):
        path.rename(root / edit.other)


def change_mode(edit: Edit, root: Path, path: Path):
    if path.is_file() and not path.is_symlink():
        path.chmod((0o755, 0o600, 0o444, 0o700)[edit.number % 4])


def make_link(edit: Edit, root: Path, path: Path):
    path.unlink(missing_ok=True)
    path.symlink_to(("nowhere", "./b.txt", "../shop", "d")[edit.number % 4])


def make_empty_folder(edit: Edit, root: Path, path: Path):
    (path / "empty").mkdir(parents=True)


def make_ignored_file(edit: Edit, root: Path, path: Path):
    """An ignored file: what nothing may ever overwrite. Operator only."""
    if os.path.lexists(path):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    exclude = root / ".git/info/exclude"
    pattern = "/" + edit.name.replace("\n", "?").replace('"', "?")
    exclude.write_text((exclude.read_text() if exclude.exists() else "") + pattern + "\n")
    path.write_text("ignored\n")


KINDS: dict[str, Callable[[Edit, Path, Path], None]] = {
    "line": change_line,
    "write": write_text,
    "binary": write_binary,
    "delete": delete_file,
    "delete_folder": delete_folder,
    "rename": rename_file,
    "mode": change_mode,
    "link": make_link,
    "empty_folder": make_empty_folder,
    "ignored": make_ignored_file,
}
"""What an edit of each kind does, below the root and at the path."""

SESSION_KINDS = tuple(kind for kind in KINDS if kind != "ignored")
"""The kinds of edits that a session makes too."""

PATHS = st.sampled_from((*EXISTING, *EXISTING, *ALL_PATHS))
NUMBERS = st.integers(0, 11)
SESSION_EDITS = st.lists(
    st.builds(Edit, st.sampled_from(("write", *SESSION_KINDS)), PATHS, PATHS, NUMBERS), min_size=2, max_size=5
)
OPERATOR_EDITS = st.builds(
    Edit,
    st.sampled_from((*SESSION_KINDS, "ignored", "ignored")),
    PATHS,
    PATHS,
    NUMBERS,
    st.sampled_from(["", "", "stage", "commit"]),
)
LATER_EDITS = st.lists(st.builds(Edit, st.sampled_from(SESSION_KINDS), PATHS, PATHS, NUMBERS), max_size=3)
