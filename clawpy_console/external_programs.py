"""Opens other programs for the operator: a shell in a folder, an editor on a file (SPEC 9.6).

In tmux they get a window of their own. Elsewhere they have the terminal until they end.

The screens that show a folder or a file call `open_shell` and `open_editor`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clawpy_console.attach.client import PASSED_VARIABLES
from engine.model import Refusal
from engine.text import sanitise

if TYPE_CHECKING:
    from clawpy_console.card_controller import CardConsole


PRINT_AND_RUN = r"""printf '\n%s\n\n' "$1"; shift; exec "$@" """
"""A command of `sh` that prints its first argument and then becomes the program that follows."""

TMUX_TIMEOUT_S = 5
"""Seconds that tmux may take to open a window."""


def open_shell(app: CardConsole, folder: str, *, banner: str, gone_message: str) -> None:
    """Open the operator's shell in `folder`, below the line `banner`; if there is no such folder, a toast shows
    `gone_message`."""

    def on_checked(exists: bool) -> None:
        if exists:
            environment = _read_environment(app)
            shell = shutil.which(environment.get("SHELL", ""), path=environment.get("PATH")) or "/bin/sh"
            _run_program(app, [shell], folder, sanitise(f"{banner}. Type exit to come back to the console."))
        else:
            app.show_toast(gone_message, "warning")

    app.call_engine(lambda _: Path(folder).is_dir(), on_checked)


def open_editor(app: CardConsole, path: str) -> None:
    """Open `path` in the operator's editor (`VISUAL`, `EDITOR`). Without an editor or the file a toast says so."""
    environment = _read_environment(app)
    editor = environment.get("VISUAL") or environment.get("EDITOR") or ""
    try:
        command = shlex.split(editor)
    except ValueError:  # a quotation mark that nothing closes: no program has this name
        command = [editor]

    def on_checked(exists: bool) -> None:
        if not exists:
            app.show_toast(f"{path} no longer exists", "warning")
        elif not command or shutil.which(command[0], path=environment.get("PATH")) is None:
            app.copy_to_clipboard(path)
            advice = f"Your editor was not found: {editor}" if editor else "Set EDITOR to open it there"
            app.show_toast(f"{path} (copied). {advice}", "warning" if editor else "information")
        else:
            _run_program(app, [*command, path], str(Path(path).parent))

    app.call_engine(lambda _: Path(path).is_file(), on_checked)


def _read_environment(app: CardConsole) -> Mapping[str, str]:
    """The environment of the terminal, which may not be that of the engine's process."""
    if app.terminal is None:
        return os.environ
    of_process = {name: value for name, value in os.environ.items() if name not in PASSED_VARIABLES}
    return of_process | dict(app.terminal.environment)


def _run_program(app: CardConsole, command: Sequence[str], folder: str, banner: str = "") -> None:
    """Run a program below the line `banner`: in a new window of the tmux that the terminal is in, else in the terminal
    until it ends."""
    if (environment := _read_environment(app)).get("TMUX"):
        arguments = ["-c", folder, "/bin/sh", "-c", PRINT_AND_RUN, "sh", banner, *command]
        notice = "It opened in a new tmux window. To come back: exit it, or tmux prefix + l."
        app.call_engine(lambda _: _open_tmux_window(environment, arguments), lambda _: app.show_toast(notice))
    elif app.terminal is not None:
        app.terminal.run(command, folder, banner)


def _open_tmux_window(environment: Mapping[str, str], arguments: Sequence[str]) -> None:
    """Open a new window of tmux. Raises `Refusal` with what tmux says."""
    command = ["tmux", "new-window", *arguments]
    try:
        subprocess.run(command, check=True, timeout=TMUX_TIMEOUT_S, capture_output=True, text=True, env=environment)
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", "") or str(error)
        raise Refusal(
            "no_window", f"tmux opened no window: {detail.strip()}", "is this terminal still in tmux?"
        ) from error
