"""Types of parameters that flows share. No value can become an option of a command or leave the repository."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, Field

from engine.execution.runners.flow import Flow
from engine.execution.runners.toolchains.tool_table import is_inside
from engine.model.text import one_line


def check_argument(text: str) -> str:
    """`text`, if it is safe on a command line: no option, no control characters. Raises `ValueError` when not."""
    if not text.strip() or text != text.strip():
        raise ValueError("must not be empty or begin or end with white space")
    if text.startswith("-"):
        raise ValueError("must not begin with a dash")
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in text):
        raise ValueError("must not contain control characters")
    return text


def _check_repo_path(text: str) -> str:
    if not is_inside(text):
        raise ValueError("must be a path inside the repository, relative to its top folder")
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise ValueError("must not contain control characters")
    return text.removeprefix("./")


RepoPath = Annotated[str, AfterValidator(_check_repo_path)]
"""A file of the repository, relative to its top folder, `/` between folders."""

ProjectPath = Annotated[str, AfterValidator(lambda text: _check_repo_path(text).rstrip("/") if text else "")]
"""The folder of a project, relative to the top of the repository; "" is the top."""

Revision = Annotated[str, AfterValidator(check_argument)]
"""A commit, tag or branch as git writes it; it cannot be an option."""

Line = Annotated[str, AfterValidator(lambda text: one_line(text))]
"""One line of text."""

TestId = Annotated[str, AfterValidator(check_argument)]
"""A test as its own tool names it, for instance `tests/test_cart.py::test_total`."""


class ProjectFlow(Flow):
    """A flow that works with the tools of one project of the repository."""

    project: ProjectPath = Field(default="", description='its folder, for example `packages/py`; "" = the top')

    @property
    def path_prefix(self) -> str:
        """The beginning of every path in the project."""
        return f"{self.project}/" if self.project else ""

    def paths_inside(self, paths: Iterable[str]) -> list[str]:
        """Those of `paths` (relative to the top) that lie in the project, relative to it."""
        return [path.removeprefix(self.path_prefix) for path in paths if path.startswith(self.path_prefix)]
