"""What a flow that ran in a test leaves: its result, the lines and commands of its session, and its folder."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.execution.runners import CommandResult, WorkFailed
from engine.execution.runners.flow import FlowResult
from engine.model import CheckResult
from tests.support.repository import Repository


@dataclass
class ProcessSession:
    """A session without sandbox and transcript file: it remembers its lines and its commands."""

    scratch: Path
    lines: list[str] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)

    def say(self, text: str, *, error: bool = False):
        self.lines.append(text)

    def execute(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, quiet: bool = False
    ) -> CommandResult:
        self.commands.append(list(argv))
        started_at = time.monotonic()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        try:
            process = subprocess.run(
                argv,
                cwd=cwd,
                env=inherited | dict(env or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=120,
                check=False,
            )
        except FileNotFoundError as error:
            raise WorkFailed(f"{argv[0]} is not installed") from error
        return CommandResult(process.returncode, process.stdout, time.monotonic() - started_at)


@dataclass
class FlowRun:
    """A flow that ran to its end, and the folder in which it worked."""

    result: FlowResult
    session: ProcessSession
    folder: Path

    @property
    def summary(self) -> str:
        return self.result.summary

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.result.facts

    @property
    def check(self) -> CheckResult:
        return self.result.check

    @property
    def transcript(self) -> str:
        return "\n".join(self.session.lines)


RunFlow = Callable[..., FlowRun]
"""Runs a flow by name with these parameters; see the fixture `run_flow`."""


CART = "def total(prices):\n    return sum(prices)\n"
TEST_CART = "from shop.cart import total\n\ndef test_total():\n    assert total([1, 2]) == 3\n"
TEST_TAX = "def test_tax():\n    assert True\n"


def commit_shop(project: Repository) -> str:
    """Commit a package with two test files, and return the commit."""
    return project.commit(
        "shop",
        {
            "shop/__init__.py": "",
            "shop/cart.py": CART,
            "tests/test_cart.py": TEST_CART,
            "tests/test_tax.py": TEST_TAX,
        },
    )
