"""Other programs for the operator: a shell in a folder, and an editor on a file (SPEC 9.6).

They have the terminal until they end.

The screens that show a folder or a file call `open_shell` and `open_editor`.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine.model import sanitise

if TYPE_CHECKING:
    from clawpy_console.card_controller import CardConsole


def open_shell(app: CardConsole, folder: str, *, banner: str, if_gone: str) -> None:
    """Open the operator's shell in `folder`, below the line `banner`; if there is no such folder, a toast shows
    `if_gone`."""

    def on_checked(exists: bool) -> None:
        if exists:
            shell = shutil.which(_read_environment(app).get("SHELL", "")) or "/bin/sh"
            _run(app, [shell], folder, sanitise(f"{banner}. Type exit to come back to the console."))
        else:
            app.show_toast(if_gone, "warning")

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
            _run(app, [*command, path], str(Path(path).parent))

    app.call_engine(lambda _: Path(path).is_file(), on_checked)


def _read_environment(app: CardConsole) -> Mapping[str, str]:
    """The environment of the terminal, which may not be that of the engine's process."""
    return os.environ if app.terminal is None else app.terminal.environment


def _run(app: CardConsole, command: Sequence[str], folder: str, banner: str = "") -> None:
    """Give the terminal to a program; without a client there is none to give."""
    if app.terminal is not None:
        app.terminal.run(command, folder, banner)
