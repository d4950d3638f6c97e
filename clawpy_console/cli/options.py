"""The options that stand before or after any verb, and what follows from them: home, workspaces, form of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import engine
from engine import Home


class WrongUse(Exception):
    """The command line makes no sense; exit code 2."""


@dataclass
class Where:
    """The options that stand before or after any verb, and what follows from them."""

    home_name: str | None = None
    workspace_names: list[str] = field(default_factory=list)
    as_json: bool = False
    demo: bool = False
    home: Home = field(init=False)

    def locate(self) -> None:
        """Find the home; creates nothing."""
        self.home = Home.locate(self.home_name)

    def scope(self, *, needed: bool = False) -> list[str]:
        """The workspaces named, else the repository of the current folder, else none.

        Raises `Refusal` when a named one is no repository, or, when it is `needed`, the current folder is none.
        """
        from engine.git import repository_root

        if self.workspace_names:
            return list(dict.fromkeys(str(repository_root(Path(name).expanduser())) for name in self.workspace_names))
        try:
            return [str(repository_root(Path.cwd()))]
        except FileNotFoundError as error:
            if needed:
                raise engine.Refusal(
                    "no_folder", "the current folder does not exist any more", "cd to a folder that exists"
                ) from error
        except engine.Refusal:
            if needed:
                raise
        return []

    def all(self) -> list[str]:
        """The scope and the workspaces that the settings name."""
        return list(dict.fromkeys([*self.scope(), *self.home.configured_workspaces()]))


def split_options(argv: Sequence[str]) -> tuple[Where, list[str]]:
    """Take `--home`, `--workspace`, `--json` and `--demo` out, wherever they stand before `--`."""
    where, rest = Where(), []
    items = iter(argv)
    for item in items:
        name, equals, value = item.partition("=")
        if item == "--":
            rest += [item, *items]
        elif item == "--json":
            where.as_json = True
        elif item == "--demo":
            where.demo = True
        elif name in ("--home", "--workspace"):
            given = value if equals else next(items, None)
            if not given:
                raise WrongUse(f"{name} needs a folder, for example {name} ~/work")
            if name == "--home":
                where.home_name = given
            else:
                where.workspace_names.append(given)
        else:
            rest.append(item)
    return where, rest
