"""The lines of the documentation for tmux and starship, in the real programs (SPEC 10.3)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Home
from tests.attach.conftest import until

pytestmark = pytest.mark.long

USAGE = Path(__file__).parents[2] / "docs" / "USAGE.md"


def documented(beginning: str) -> str:
    """The indented block of the documentation that begins with this, without its comments."""
    [block] = re.findall(rf"(?m)^(    {re.escape(beginning)}.*(?:\n    .*)*)", USAGE.read_text())
    return "\n".join(re.sub(r"\s+# ~/.*", "", line[4:]) for line in block.splitlines()) + "\n"


@pytest.fixture
def environment(home: Home, project: Path) -> dict[str, str]:
    """With a home whose engine made cards and ended, and `clawpy` on the path."""
    clawpy = [sys.executable, "-m", "clawpy_console", "--home", str(home.root)]
    subprocess.run([*clawpy, "predict"], cwd=project, check=True, capture_output=True)
    subprocess.run([*clawpy, "run", "--for", "1s"], cwd=project, check=True, capture_output=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "CLAWPY_HOME": str(home.root), "TERM": "xterm-256color", "LANG": "C.UTF-8"}


@pytest.fixture
def tmux(environment: dict[str, str], tmp_path: Path) -> Iterator[list[str]]:
    (tmp_path / "tmux.conf").write_text(documented("set -g status-right"))
    command = ["tmux", "-L", f"clawpy-bar-{os.getpid()}", "-f", str(tmp_path / "tmux.conf")]
    yield command
    subprocess.run([*command, "kill-server"], check=False, env=environment)


def test_tmux_shows_the_number_of_cards(tmux: list[str], environment: dict[str, str]) -> None:
    subprocess.run([*tmux, "new-session", "-d", "-x", "80", "-y", "5"], check=True, env=environment)
    outer = [*tmux[:2], f"{tmux[2]}-outer", "-f", "/dev/null"]  # a status line shows to who is attached
    shown = [*outer, "capture-pane", "-p"]
    attach = f"env -u TMUX {' '.join(tmux[:3])} attach"
    subprocess.run([*outer, "-u", "new-session", "-d", "-x", "80", "-y", "6", attach], check=True, env=environment)
    try:
        until(lambda: "🔮 2" in subprocess.run(shown, capture_output=True, text=True, check=True).stdout)
    finally:
        subprocess.run([*outer, "kill-server"], check=False)
