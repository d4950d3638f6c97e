"""Programs outside the console: a shell in a folder, an editor on a file. In tmux each gets a window of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from engine.values import Refusal

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp

TMUX_WITHIN = 5
"""Seconds that tmux may take to open a window."""


def open_shell(app: ConsoleApp, folder: str, *, says: str = "", banner: str = "") -> None:
    """A shell in `folder`: a new tmux window where there is tmux, else this terminal until the shell ends. `says` is
    told to you, `banner` is the line before the shell. A folder that is gone is said, and nothing opens."""

    def found(there: bool) -> None:
        if not there:
            app.say(f"{folder} is gone: only the diff is left, in the pane on the right", "warning")
            return
        if os.environ.get("TMUX"):
            back = "A shell opened in a new tmux window. To come back: exit it, or tmux prefix + l."
            app.ask(lambda: _tmux("-c", folder), lambda _: app.say(" ".join(filter(None, [back, says]))))
            return
        if says:
            app.say(says)
        with app.suspend():
            print(f"\n{banner or f'A shell in {folder}'}. Type exit to come back to the console.\n", flush=True)
            subprocess.run([os.environ.get("SHELL", "/bin/sh")], cwd=folder, check=False)

    app.ask(lambda: Path(folder).is_dir(), found)


def open_editor(app: ConsoleApp, path: str) -> None:
    """The operator's editor (`VISUAL`, `EDITOR`) on `path`; without one, or without the file, its path is said."""
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")

    def looked(there: bool) -> None:
        if not there:
            app.say(f"{path} is not there any more", "warning")
        elif not command or shutil.which(command[0]) is None:
            app.copy_to_clipboard(path)
            app.say(f"{path} (copied); set EDITOR, and it opens there")
        elif os.environ.get("TMUX"):
            app.ask(lambda: _tmux(shlex.join([*command, path])))
        else:
            with app.suspend():
                subprocess.run([*command, path], check=False)

    app.ask(lambda: Path(path).is_file(), looked)


def _tmux(*arguments: str) -> None:
    """A new window. Raises `Refusal` with what tmux says."""
    try:
        subprocess.run(
            ["tmux", "new-window", *arguments], check=True, timeout=TMUX_WITHIN, capture_output=True, text=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise Refusal(
            "no_window", f"tmux opened no window: {said.strip()}", "is this terminal still in tmux?"
        ) from error
