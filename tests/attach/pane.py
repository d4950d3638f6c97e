"""A terminal with a shell: a pane of a tmux server."""

import re
import subprocess
from pathlib import Path

from tests.support.checks import wait_until


class Pane:
    """A shell in a terminal. Columns x rows."""

    def __init__(self, tmux: str, folder: Path, width: int, height: int):
        self._tmux = tmux
        options = ("-d", "-P", "-F", "#{pane_id} #{pane_pid}", "-x", str(width), "-y", str(height), "-c", str(folder))
        shell = "ulimit -c 0; exec env -u COLUMNS -u LINES -u TMUX PS1='$ ' sh"
        self.id, shell_id = self.tmux("new-session", *options, shell).split()
        self.shell = int(shell_id)
        self.wait_for(r"^\$")  # what is typed before the prompt stands before it

    def tmux(self, *arguments: str) -> str:
        """Give tmux a command; returns its output."""
        command = ["tmux", "-L", self._tmux, "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    def type(self, line: str):
        """Type a line into the shell."""
        self.tmux("send-keys", "-t", self.id, "-l", line)
        self.press("Enter")

    def press(self, *keys: str):
        self.tmux("send-keys", "-t", self.id, *keys)

    def open(self, line: str):
        """Type a line that opens a console, and wait for the two cards of `project`."""
        self.type(line)
        self.wait_for(r"CARDS\s+1 of 2")

    def quit(self, key: str = "q") -> str:
        """Leave the console; all that the terminal shows then."""
        self.press(key)
        return self.wait_for(r"^code 0")

    def read_text(self) -> str:
        """What it shows; lines that only the pane's width broke are whole."""
        return self.tmux("capture-pane", "-p", "-J", "-t", self.id)

    def read_history(self) -> str:
        """What it shows, and the lines that have left its top."""
        return self.tmux("capture-pane", "-p", "-J", "-S", "-", "-t", self.id)

    def wait_for(self, pattern: str, *, gone: bool = False) -> str:
        """Wait until it shows `pattern`, or with `gone` until it no longer does; all that it shows then."""
        wait_until(
            lambda: bool(re.search(pattern, self.read_text(), re.MULTILINE)) is not gone,
            60,
            lambda: f"{pattern}\n{self.read_text()}",
        )
        return self.read_text()

    def find_client_pid(self) -> int:
        """The process id of the program in front."""
        children = Path(f"/proc/{self.shell}/task/{self.shell}/children").read_text().split()
        return int(children[-1])

    def resize(self, width: int, height: int):
        self.tmux("resize-window", "-t", self.id, "-x", str(width), "-y", str(height))

    def is_restored(self) -> bool:
        """Whether the terminal is as a shell wants it: it echoes, the cursor shows, no mouse, no second screen."""
        self.press("C-u")
        self.type("stty -a | tr -s ' ;' '\\n\\n' | grep -x -e icanon -e echo -e isig | tr '\\n' +")
        self.wait_for(r"isig\+icanon\+echo\+")
        flags = "#{alternate_on}#{mouse_any_flag}#{cursor_flag}"
        return self.tmux("display-message", "-p", "-t", self.id, flags).strip() == "001"
