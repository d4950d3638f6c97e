"""The command line of `clawpy` (SPEC 9.8). It uses the public face of the engine, and no screen.

Here is what every use of it has: an `Invocation` with its home and workspaces, errors, and output. The status bar and
the console's first frame wait for this, so it imports nothing at the start.
"""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing, which takes longer to import than this module
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    from engine import Engine, Home


class WrongUse(Exception):
    """The command line is invalid; exit code 2. `command` is the part of it that is meant, if not the whole verb."""

    def __init__(self, message: str, fix: str = "", *, command: str = "") -> None:
        super().__init__(message)
        self.fix = fix
        self.command = command


class OutputFailed(Exception):
    """Standard output cannot be written, for instance because its disk is full; exit code 1."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"the output cannot be written: {error.strerror}")


def print_output(text: str, *, end: str = "\n") -> None:
    """Print `text` and `end` at once. Raises `BrokenPipeError` if the reader closed the pipe, else `OutputFailed`."""
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputFailed(error) from error


def open_engine(home: Home, **options: Any) -> Engine:
    """`engine.open_engine`, imported when it is first needed."""
    import engine

    return engine.open_engine(home, **options)


class Invocation:
    """One use of `clawpy`: the options that stand before or after any verb, and what follows from them."""

    home: Home
    """Set by `locate`."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.demo = False
        self.home_name: str | None = None
        """The folder of `--home`, None where it is not given."""
        self.workspace_names: list[str] = []
        """The folders of `--workspace`."""

    def locate(self) -> None:
        """Find the home; creates nothing."""
        from engine.home import Home

        self.home = Home.locate(self.home_name)

    def call(self, verb: str, arguments: Mapping[str, Any], workspaces: Sequence[str] = ()) -> dict[str, Any]:
        """The document of a verb of the engine. Raises `Refusal`."""
        import engine

        return engine.call(self.home, verb, arguments, workspaces=workspaces, opener=open_engine)

    def connect(self) -> AbstractContextManager[Any]:
        """See `engine.connect`: one engine for several verbs on all workspaces."""
        import engine

        return engine.connect(self.home, workspaces=self.find_all_workspaces(), opener=open_engine)

    def find_chosen_workspaces(self, *, needed: bool = False) -> list[str]:
        """The workspaces given as options, else the repository of the current folder, else none.

        Raises `Refusal` when one that was given is no repository, or, with `needed`, the current folder is none.
        """
        from pathlib import Path

        from engine.git import find_repository_root
        from engine.home import expand_user
        from engine.model import Refusal

        needed = needed or bool(self.workspace_names)
        try:
            folders = [expand_user(name) for name in self.workspace_names] or [Path.cwd()]
            return list(dict.fromkeys(str(find_repository_root(folder)) for folder in folders))
        except FileNotFoundError as error:
            if needed:
                raise Refusal(
                    "no_folder", "the current folder does not exist any more", "cd to a folder that exists"
                ) from error
        except Refusal:
            if needed:
                raise
        return []

    def find_all_workspaces(self, *, needed: bool = False) -> list[str]:
        """The chosen workspaces and those of the settings. Raises `Refusal` as `find_chosen_workspaces` does."""
        workspaces = dict.fromkeys([*self.find_chosen_workspaces(), *self.home.read_configured_workspaces()])
        return list(workspaces) or self.find_chosen_workspaces(needed=needed)


def split_options(argv: Sequence[str]) -> tuple[Invocation, list[str]]:
    """Split `--home`, `--workspace`, `--json` and `--demo` from the other words, wherever they stand before `--`."""
    invocation, other_words = Invocation(), []
    arguments = iter(argv)
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if argument == "--":
            other_words += [argument, *arguments]
        elif argument == "--json":
            invocation.as_json = True
        elif argument == "--demo":
            invocation.demo = True
        elif name == "--home":
            invocation.home_name = _require_folder(name, value if equals else next(arguments, ""))
        elif name == "--workspace":
            invocation.workspace_names.append(_require_folder(name, value if equals else next(arguments, "")))
        else:
            other_words.append(argument)
    return invocation, other_words


def _require_folder(option: str, folder: str) -> str:
    """The folder after an option. Raises `WrongUse` where there is none, or an option in its place."""
    if not folder or folder.startswith("--"):
        raise WrongUse(f"{option} needs a folder, for example {option} ~/work")
    return folder
