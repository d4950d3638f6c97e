"""A change set of several files and hunks, for tests that land parts of it."""

from collections.abc import Mapping
from pathlib import Path


def make_text(lines: Mapping[int, str]) -> str:
    """Forty numbered lines, of which these are others: `make_text({3: "three"})`."""
    return "".join(f"{lines.get(number, f'line {number}')}\n" for number in range(40))


TEXT = make_text({})

FILES = {"a.txt": TEXT, "b.txt": "b\n", "old.txt": TEXT}


def edit_four_files(folder: Path):
    """Change three places of a file, delete one, rename one with two changes, and make one."""
    (folder / "a.txt").write_text(make_text({2: "first", 20: "second", 38: "third"}))
    (folder / "b.txt").unlink()
    (folder / "old.txt").rename(folder / "new.txt")
    (folder / "new.txt").write_text(make_text({5: "five", 30: "thirty"}))
    (folder / "c.txt").write_text("c\n")
