"""The folders and files of one installation (SPEC 7.6). It imports little, because it is needed before the first
frame."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from platformdirs import PlatformDirs

from engine.frozen import frozen


def expand_user(path: str | Path) -> Path:
    """A path whose beginning `~` or `~USER` is the home of that user. Raises `Refusal` `unknown_user`."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        from engine.model import Refusal

        raise Refusal("unknown_user", f"{path} is in the home of no user", "write the path from / on") from error


@frozen
class Home:
    """The four folders of a home, all absolute paths. `root` is the folder of `--home`, None if the folders are those
    of the platform."""

    config: Path
    data: Path
    cache: Path
    logs: Path
    root: Path | None = None

    @classmethod
    def locate(cls, named: str | Path | None = None) -> Home:
        """The home in the folder `named`, else in that of CLAWPY_HOME, else in the platform's folders. Creates
        nothing. Raises `Refusal` `unknown_user` for `~NAME/…` without such a user."""
        name = named or os.environ.get("CLAWPY_HOME")
        if name:
            root = expand_user(name).absolute()
            return cls(root / "config", root / "data", root / "cache", root / "logs", root)
        dirs = PlatformDirs("clawpy", appauthor=False)
        return cls(dirs.user_config_path, dirs.user_data_path, dirs.user_cache_path, dirs.user_log_path)

    @property
    def config_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def database(self) -> Path:
        return self.data / "clawpy.db"

    @property
    def agents(self) -> Path:
        return self.data / "agents"

    @property
    def transcripts(self) -> Path:
        return self.data / "transcripts"

    @property
    def worktrees(self) -> Path:
        return self.cache / "worktrees"

    def holds_worktree(self, folder: str) -> bool:
        """Whether a folder is the worktree of a session."""
        return Path(folder).resolve().is_relative_to(self.worktrees.resolve())

    def has_data_folder(self, folder: str) -> bool:
        """Whether `folder` is `data`, by this path or another. That of a home from which this one was copied is not."""
        with contextlib.suppress(OSError, ValueError):  # it does not exist, a NUL
            return self.data.samefile(folder)
        return False

    @property
    def last_screen(self) -> Path:
        return self.cache / "last_screen.json"

    @property
    def status_bar_file(self) -> Path:
        return self.cache / "complication.json"

    @property
    def engine_note(self) -> Path:
        """The note about the engine that holds the home (`engine.lock`)."""
        return self.data / "engine.json"

    @property
    def lock(self) -> Path:
        return self.data / "engine.lock"

    def read_configured_workspaces(self) -> list[str]:
        """The workspaces in the settings file that exist and are not off."""
        folders = []
        for path, section in self.read_settings_section("workspaces").items():
            with contextlib.suppress(RuntimeError, ValueError):  # an unknown user's home, a NUL
                folder = Path(path).expanduser()
                if isinstance(section, dict) and section.get("autonomy") != "off" and folder.is_dir():
                    folders.append(str(folder))
        return folders

    def read_settings_section(self, name: str) -> dict[str, Any]:
        """A section of the settings file.

        It is fast and not validated, for use before the settings are loaded. If the file cannot be read, the section is
        empty; opening the engine reports the error.
        """
        import tomllib

        if not self.config_file.is_file():  # opening a pipe would wait
            return {}
        try:
            section = tomllib.loads(self.config_file.read_text(encoding="utf-8-sig")).get(name)
        except (OSError, ValueError, RecursionError):
            return {}
        return section if isinstance(section, dict) else {}

    def list_paths(self) -> dict[str, str]:
        """All paths by name, as in `paths` of `doctor --json`."""
        paths = {
            "config": self.config_file,
            "data": self.data,
            "cache": self.cache,
            "logs": self.logs,
            "database": self.database,
            "agents": self.agents,
            "chroma": self.data / "chroma",
            "taskGraph": self.data / "task_graph.json",
            "para": self.data / "para",
            "predictions": self.data / "predictions.jsonl",
            "dpoPairs": self.data / "dpo-pairs.jsonl",
            "wisdomCascadeConfig": self.data / "wisdom_cascade_config.json",
        }
        return {name: str(path) for name, path in paths.items()}
