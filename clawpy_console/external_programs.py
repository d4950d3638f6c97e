"""Other programs for the operator: a shell in a folder, and an editor on a file (SPEC 9.6).

In tmux they get a window of their own. Elsewhere they have the terminal until they end.

The screens that show a folder or a file call `open_shell` and `open_editor`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from clawpy_console.attach import PASSED_VARIABLES
from engine.model import Refusal, sanitise

if TYPE_CHECKING:
    from clawpy_console.card_controller import CardConsole


PRINT_AND_RUN = r"""printf '\n%s\n\n' "$1"; exec "$2" """
"""A command of `sh` that prints its first argument and then becomes the program that is its second."""


def open_shell(app: CardConsole, folder: str, *, banner: str, notice: str, if_gone: str) -> None:
    """Open a shell in `folder`: in a new tmux window where there is tmux, else in this terminal until the shell ends.

    `banner` is the line before the shell. Toasts show `notice`, unless it is "", and `if_gone` if there is no such
    folder.
    """

    def on_checked(exists: bool) -> None:
        if exists:
            _run_shell(app, folder, sanitise(f"{banner}. Type exit to come back to the console."), notice)
        else:
            app.show_toast(if_gone, "warning")

    app.call_engine(lambda _: Path(folder).is_dir(), on_checked)


def _run_shell(app: CardConsole, folder: str, first_line: str, notice: str) -> None:
    """Run the operator's shell in `folder`; it begins with `first_line`."""
    environment = _read_environment(app)
    shell = shutil.which(environment.get("SHELL", "")) or "/bin/sh"
    if environment.get("TMUX"):
        message = f"A shell opened in a new tmux window. To come back: exit it, or tmux prefix + l. {notice}"
        command = ("/bin/sh", "-c", PRINT_AND_RUN, "sh", first_line, shell)
        app.call_engine(
            lambda _: _open_tmux_window(environment, "-c", folder, *command), lambda _: app.show_toast(message)
        )
        return
    if notice:
        app.show_toast(notice)
    if app.terminal is not None:
        app.terminal.run([shell], folder, first_line)


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
        elif environment.get("TMUX"):
            app.call_engine(lambda _: _open_tmux_window(environment, shlex.join([*command, path])))
        elif app.terminal is not None:
            app.terminal.run([*command, path], str(Path(path).parent), "")

    app.call_engine(lambda _: Path(path).is_file(), on_checked)


def _read_environment(app: CardConsole) -> Mapping[str, str]:
    """The environment of the terminal, which may not be that of the engine's process."""
    if app.terminal is None:
        return os.environ
    return {name: value for name, value in os.environ.items() if name not in PASSED_VARIABLES} | dict(
        app.terminal.environment
    )


TMUX_TIMEOUT_S = 5
"""Seconds that tmux may take to open a window."""


def _open_tmux_window(environment: Mapping[str, str], *arguments: str) -> None:
    """Open a new window of the tmux that the terminal is in. Raises `Refusal` with what tmux says."""
    command = ["tmux", "new-window", *arguments]
    try:
        subprocess.run(command, check=True, timeout=TMUX_TIMEOUT_S, capture_output=True, text=True, env=environment)
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", "") or str(error)
        raise Refusal(
            "no_window", f"tmux opened no window: {detail.strip()}", "is this terminal still in tmux?"
        ) from error
