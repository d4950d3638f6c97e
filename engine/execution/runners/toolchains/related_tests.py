"""Finds the test files of a Python project, and which of them belong to a changed file."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath

from engine.execution.runners.toolchains.tool_table import read_text

TEST_FILE_PATTERN = r"(^|/)(test_[^/]*|[^/]*_test)\.py$"
"""Names of files that pytest collects by default."""

SKIPPED_FOLDERS = {"venv", "env", "node_modules", "__pycache__", "build", "dist", "target"}
"""Folders that contain no tests of the project. Folders that begin with a dot are skipped as well."""

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
    """The dotted module name of a source file: `shop.cart` for `src/shop/cart.py`, `shop` for `shop/__init__.py`."""
    parts = list(PurePosixPath(path).with_suffix("").parts)
    if len(parts) > 1 and parts[0] in ("src", "lib", "python"):
        parts = parts[1:]
    if parts[-1:] == ["__init__"]:
        parts = parts[:-1]
    return ".".join(parts)


_IMPORT = re.compile(r"^\s*(?:import\s+([\w., ]+)|from\s+([\w.]+)\s+import\b[ \t]*(\([^)]*\)|[^\n]*))", re.M)


def _imported_names(text: str) -> set[str]:
    """The full dotted names that Python source imports, of modules and of names in modules. The source is searched with
    an expression and not parsed, because that is faster."""
    names = set()
    for modules, source, taken in _IMPORT.findall(text):
        names |= {source, *(f"{source}.{name}" for name in re.findall(r"\w+", taken))}
        for dotted in (part.split()[0] for part in modules.split(",") if part.strip()):
            names |= {dotted, *(dotted[: dot.start()] for dot in re.finditer(r"\.", dotted))}
    return names


def related_tests(
    paths: Sequence[str], tests: Mapping[str, str], reexported: Collection[str] = ()
) -> dict[str, list[str]]:
    """For each changed path, the test files that belong to it. `tests` has the source of each test file.

    A test file belongs to itself. All tests of a folder belong to its `conftest.py`. To `x.py` belong `test_x.py` and
    `x_test.py`, and every test that imports its module or contains its full name. If several files have that name, the
    one in the most similar folder is taken. A module in `reexported` has names that its package exports, so tests that
    import the package belong to it, too.
    """
    imported = {test: _imported_names(text) for test, text in tests.items()}
    return {path: _tests_of(path, tests, imported, is_reexported=path in reexported) for path in paths}


def _tests_of(
    path: str, tests: Mapping[str, str], imported: Mapping[str, set[str]], *, is_reexported: bool
) -> list[str]:
    pure = PurePosixPath(path)
    if is_test_file(path):
        return [path] if path in tests else []
    if pure.name == "conftest.py":
        folder = "" if str(pure.parent) == "." else f"{pure.parent}/"
        return sorted(test for test in tests if test.startswith(folder))
    module = module_of(path)
    if pure.suffix != ".py" or not module:
        return []
    stem = pure.parent.name if pure.stem in ("__init__", "__main__") else pure.stem
    stem = stem.strip("_") or stem
    named = [test for test in tests if PurePosixPath(test).stem in (f"test_{stem}", f"{stem}_test")]
    package = module.rpartition(".")[0]
    wanted = {module, package} - {""} if is_reexported else {module}
    mention = re.compile(rf"(?<![\w.]){re.escape(module)}\.\w")
    using = [test for test in tests if wanted & imported[test] or (package and mention.search(tests[test]))]
    return sorted({*_closest_folder(named, pure), *using})


def _closest_folder(named: list[str], source: PurePosixPath) -> list[str]:
    """Those of `named` whose path has the most folders in common with the source, as `tests/a/…` with `a/x.py`."""
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
