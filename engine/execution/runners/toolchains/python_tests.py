"""Finds the tests of a Python project: its test files, and which of them belong to a changed file."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path, PurePosixPath

from engine.execution.runners.toolchains.tool_table import read_text, read_toml
from engine.git import Git, GitError

TEST_FILE_PATTERN = r"(^|/)(test_[^/]*|[^/]*_test)\.py$"
"""Names of files that pytest collects by default."""

SKIPPED_FOLDERS = {
    ".git",
    ".venv",
    "venv",
    "env",
    "node_modules",
    "__pycache__",
    ".tox",
    ".nox",
    "build",
    "dist",
    "target",
}
"""Folders without tests of the project."""

MAX_TEST_FILES = 3000
"""Maximum number of test files that a scan for imports reads."""


def is_test_file(path: str) -> bool:
    """Whether pytest would collect a file by its default names."""
    return re.search(TEST_FILE_PATTERN, path) is not None


def find_test_files(folder: Path) -> Iterator[Path]:
    """Every file of a project that pytest would collect by its default names, in order."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS and not name.startswith("."))
        yield from (Path(place, name) for name in sorted(files) if is_test_file(name))


def read_test_files(folder: Path) -> dict[str, str]:
    """The test files of a project with their text, at most `MAX_TEST_FILES`."""
    files = islice(find_test_files(folder), MAX_TEST_FILES)
    return {file.relative_to(folder).as_posix(): read_text(file, 200_000) for file in files}


def module_of(path: str) -> str:
    """The dotted module name of a source file: `src/shop/cart.py` is `shop.cart`, a package its folder."""
    parts = list(PurePosixPath(path).with_suffix("").parts)
    if len(parts) > 1 and parts[0] in ("src", "lib", "python"):
        parts = parts[1:]
    if parts[-1:] == ["__init__"]:
        parts = parts[:-1]
    return ".".join(parts)


def imports_module(text: str, module: str) -> bool:
    """Whether Python source imports a module, by its full dotted name (a quick look, not a parse)."""
    dotted = re.escape(module)
    if re.search(rf"^\s*(?:import\s+(?:[\w., ]+,\s*)?{dotted}(?![\w])|from\s+{dotted}\s+import\b)", text, re.M):
        return True
    package, _, name = module.rpartition(".")
    if not package:
        return False
    from_package = re.compile(rf"^\s*from\s+{re.escape(package)}\s+import\s+(\([^)]*\)|[^\n]*)", re.M)
    return any(re.search(rf"\b{re.escape(name)}\b", match.group(1)) for match in from_package.finditer(text))


def _imports_package(text: str, package: str) -> bool:
    """Whether names are taken from the package itself."""
    return re.search(rf"^\s*from\s+{re.escape(package)}\s+import\b", text, re.M) is not None


def related_tests(
    paths: Sequence[str], tests: dict[str, str], reexported: Collection[str] = ()
) -> dict[str, list[str]]:
    """For each changed path the test files that belong to it; `tests` maps test files to their source text.

    A test file belongs to itself; `x.py` has `test_x.py`, `x_test.py`, and whatever imports its module or names it in
    full; of several files of the same name the mirrored one wins; a `conftest.py` has all tests of its folder. Of
    `reexported_modules` paths the package hands names on: whatever imports the package may use them.
    """
    by_path: dict[str, list[str]] = {}
    for path in paths:
        pure = PurePosixPath(path)
        if is_test_file(path):
            by_path[path] = [path] if path in tests else []
        elif pure.name == "conftest.py":
            folder = "" if str(pure.parent) == "." else f"{pure.parent}/"
            by_path[path] = sorted(test for test in tests if test.startswith(folder))
        elif pure.suffix == ".py":
            stem = pure.parent.name if pure.stem in ("__init__", "__main__") else pure.stem
            stem = stem.strip("_") or stem
            named = [test for test in tests if PurePosixPath(test).stem in (f"test_{stem}", f"{stem}_test")]
            module = module_of(path)
            package = module.rpartition(".")[0] if path in reexported else ""
            named_in_full = re.compile(rf"(?<![\w.]){re.escape(module)}\.\w") if "." in module else None
            importing = [
                test
                for test, text in tests.items()
                if module
                and (
                    imports_module(text, module)
                    or (package and (imports_module(text, package) or _imports_package(text, package)))
                    or (named_in_full is not None and named_in_full.search(text))
                )
            ]
            by_path[path] = sorted({*_closest_folder(named, pure), *importing})
        else:
            by_path[path] = []
    return by_path


def _closest_folder(named: list[str], source: PurePosixPath) -> list[str]:
    """The test files of `named` whose folders have the largest overlap with the source's (`a/x.py`, `tests/a/…`)."""
    folders = set(source.parent.parts)
    shared = {test: len(folders & set(PurePosixPath(test).parent.parts)) for test in named}
    best = max(shared.values(), default=0)
    return [test for test in named if shared[test] == best]


def reexported_modules(folder: Path, paths: Sequence[str]) -> set[str]:
    """The `paths` from which the `__init__.py` of their package imports names."""
    modules = set()
    for path in paths:
        pure = PurePosixPath(path)
        if pure.suffix == ".py" and pure.stem != "__init__":
            text = read_text(folder / pure.parent / "__init__.py", 200_000)
            module = re.escape(module_of(path))
            if re.search(rf"^\s*from\s+(?:\.{re.escape(pure.stem)}|{module})\s+import\b", text, re.M):
                modules.add(path)
    return modules


def import_roots(folder: Path) -> list[str]:
    """The folders of PYTHONPATH: the folder under test wins over an editable install of another tree."""
    own = [str(folder / name) for name in ("src", "") if (folder / name).is_dir()]
    return [*own, *filter(None, [os.environ.get("PYTHONPATH")])]


def is_collected(folder: Path, inside: str) -> bool:
    """Whether pytest in `folder` is configured to collect the folder `inside` below it (`testpaths`)."""
    paths: list[str] = []
    try:
        own = read_toml(folder / "pyproject.toml")["tool"]["pytest"]["ini_options"]["testpaths"]
        paths += own.split() if isinstance(own, str) else map(str, own)
    except (KeyError, TypeError):
        pass
    for name in ("pytest.ini", "tox.ini", "setup.cfg"):
        for match in re.finditer(r"^testpaths\s*=(.*(?:\n[ \t]+.*)*)", read_text(folder / name), re.M):
            paths += match[1].split()
    return any(fnmatch(part, path.strip("/")) for path in paths for part in _path_and_parents(inside))


def _path_and_parents(path: str) -> list[str]:
    return [path, *(str(parent) for parent in PurePosixPath(path).parents)]


def is_external_module(module: str, folder: Path, workspace: Path) -> bool:
    """Whether a module was never part of the project, so that it can only be installed."""
    folders = [base / name for base in {folder, workspace} for name in ("", "src", "tests")]
    if any((place / module).is_dir() or (place / f"{module}.py").is_file() for place in folders):
        return False
    paths = [f":(glob)**/{module}.py", f":(glob)**/{module}/**/*.py"]
    try:
        return not Git(workspace).text("log", "-1", "--format=%h", "--", *paths)
    except GitError:  # nothing was ever committed
        return True
