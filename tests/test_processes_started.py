"""Only the modules that are listed here, each with a reason, start other programs, and only one of them runs git
(SPEC 3.8). A fork is no other program."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

STARTERS = {
    "engine/git/environment.py": "git, the only place",
    "engine/git/__init__.py": "names the type of a finished process",
    "engine/background.py": "helper processes of the engine's own code",
    "engine/execution/processes.py": "what sessions run, in the sandbox",
    "engine/execution/session_commands.py": "names the type of a session's process",
    "engine/execution/runners/acp/conversation.py": "names the type of a session's process",
    "engine/execution/runners/acp/pipe.py": "names the type of a session's process",
    "engine/execution/sandbox/__init__.py": "tries whether a sandbox works here",
    "engine/execution/sandbox/ladder.py": "tries what a sandbox holds here",
    "engine/execution/sandbox/supervisor/__init__.py": "becomes the command that it holds",
    "engine/execution/sandbox/port_forwarder.py": "becomes the command, inside the sandbox",
    "engine/execution/runners/toolchains/python_projects.py": "asks the operator's interpreter, outside projects",
    "engine/git/github.py": "gh, outside of every repository",
    "engine/api/notify/delivery.py": "the operator's own notifier",
    "engine/learning/decisions/training_provider.py": "names the type of a helper process",
    "clawpy_console/attach/client.py": "the operator's shell and editor, at a key",
    "clawpy_console/external_programs.py": "the same in a window of tmux",
}
"""Modules that start programs or name the type of a process, and why."""

MAKERS_OF_REPOSITORIES = {"clawpy_console/cli/demo.py": "a repository that the program made itself"}
"""Modules that may add files to a repository, and to which."""

_STARTS = re.compile(
    r"^\s*(?:import|from) (?:subprocess|pty|multiprocessing)\b"
    r"|\bos\.(?:system|popen|exec[lv]\w*|spawn\w+|posix_spawnp?)\("
    r"|\bcreate_subprocess_(?:exec|shell)\(",
    re.MULTILINE,
)
_RUNS_GIT = re.compile(r"""(?:find_program|which)\(\s*["']git["']|\[\s*["']git["']""")

_NESTING_COMMANDS = re.compile(
    r"""\.(?:git|run|text|output)\(\s*["'](add|submodule|stash|fetch|pull|push|gc|difftool|mergetool|archive)["']"""
)
"""Commands of git that look into nested repositories, or fetch."""


def find_in_modules(pattern: re.Pattern[str]) -> dict[str, list[str]]:
    """What the pattern finds in the modules of the product, by their paths."""
    files = sorted(file for folder in ("engine", "clawpy_console") for file in (ROOT / folder).rglob("*.py"))
    matches = {str(file.relative_to(ROOT)): pattern.findall(file.read_text()) for file in files}
    return {path: hits for path, hits in matches.items() if hits}


@pytest.mark.long
def test_only_the_listed_modules_start_processes():
    assert set(find_in_modules(_STARTS)) == set(STARTERS), "start git by engine.git, commands by a session"


def test_only_one_module_runs_git():
    assert set(find_in_modules(_RUNS_GIT)) == {"engine/git/environment.py"}


def test_no_command_of_git_enters_nested_repositories():
    assert set(find_in_modules(_NESTING_COMMANDS)) == set(MAKERS_OF_REPOSITORIES)
