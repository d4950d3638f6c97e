"""Which tools a project has: the first module to ask, one module a tool in `toolchains/` (SPEC 3.9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine.execution.runners.toolchains.base import Command, Finding, Linter, LintResult, Toolchain
from engine.execution.runners.toolchains.cargo import find_cargo
from engine.execution.runners.toolchains.go import find_go
from engine.execution.runners.toolchains.make import MakeLint, find_make
from engine.execution.runners.toolchains.make import targets as make_targets
from engine.execution.runners.toolchains.node import find_npm, node_linter, package_scripts
from engine.execution.runners.toolchains.python import find_pytest, is_python_project, python_linter

__all__ = ["Command", "Finding", "LintResult", "Linter", "Toolchain", "borrowed", "detect", "detect_all", "linters"]

FINDERS: tuple[Callable[[Path, Path, list[str]], Toolchain | None], ...] = (
    find_pytest,
    find_npm,
    find_cargo,
    find_go,
    find_make,
)


def detect(folder: Path, workspace: Path | None = None) -> Toolchain | None:
    """The first tool that can test the project in `folder`, or None.

    `workspace` is where the tools are installed when `folder` is a worktree; by default `folder` itself. Asks
    interpreters whether they have pytest, which takes some tens of milliseconds.
    """
    return next(iter(detect_all(folder, workspace)), None)


def detect_all(folder: Path, workspace: Path | None = None, looked: list[str] | None = None) -> list[Toolchain]:
    """Every tool that can test the project, in the order pytest, npm, cargo, go; make only when no other can.

    `looked` is told what was looked for, in words, for the message that there is none.
    """
    looked = [] if looked is None else looked
    found: list[Toolchain] = []
    for finder in FINDERS:
        if finder is find_make and found:
            continue
        tool = finder(folder, workspace or folder, looked)
        if tool is not None:
            found.append(tool)
    return found


def linters(folder: Path, workspace: Path | None = None) -> list[Linter]:
    """The project's own linters, whether or not it has tests; `make lint` only when there is no other."""
    workspace = workspace or folder
    found: list[Linter | None] = []
    if is_python_project(folder) or any(folder.glob("*.py")):
        found.append(python_linter(folder, workspace))
    if (folder / "package.json").is_file():
        found.append(node_linter(folder, workspace, package_scripts(folder)))
    for finder in (find_cargo, find_go):
        tool = finder(folder, workspace, [])
        found.append(tool.linter() if tool else None)
    own = [linter for linter in found if linter is not None]
    return own or ([MakeLint()] if "lint" in make_targets(folder) else [])


@contextmanager
def borrowed(toolchains: Sequence[Toolchain], folder: Path, workspace: Path) -> Iterator[None]:
    """For the time of a run, folders which only the operator's tree has (`node_modules`) are linked into a worktree.

    The links are gone afterwards, so that they can be part of no change set.
    """
    names = {name for toolchain in toolchains for name in toolchain.borrows()} if folder != workspace else set()
    links = [folder / name for name in sorted(names) if (workspace / name).is_dir() and not (folder / name).exists()]
    try:
        for link in links:
            link.symlink_to(workspace / link.name, target_is_directory=True)
        yield
    finally:
        for link in links:
            link.unlink(missing_ok=True)
