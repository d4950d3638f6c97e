"""Reads, watches and edits the settings of a home in `config.toml` (SPEC 7.4, 7.6).

If the file is invalid at the start, the engine does not start. If it becomes invalid later, the last valid settings
stay, and the fault is reported once. Edits keep comments and order.

`engine.config` says what settings are. This module is not in it, because it records changes in the database.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.clock import Clock, SystemClock
from engine.config.settings import Settings, WorkspaceSettings, resolve_workspace_path
from engine.config.settings_file import (
    MAX_FILE_BYTES,
    BadConfig,
    KeyPath,
    Problem,
    describe_accepted,
    find_overriding_variables,
    format_key,
    parse_key,
    parse_value,
    read_settings,
)
from engine.events import Event
from engine.events.engine import FaultReported, SettingChanged
from engine.files import read_plain, read_signature, write_atomic
from engine.model import Refusal
from engine.storage.database import Database, Transaction

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 1.0
"""Minimum number of seconds between two checks of the file."""


class _SettingsFile:
    """The file as a text. It knows which state of the file was read or written last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._signature = read_signature(path)
        self._is_missing = False
        """Whether it was missing or empty at the last check."""

    def check_for_change(self) -> bool:
        """Look at the file. Returns whether it is another than at the last check or write. A missing or empty file
        counts only at the second check: some editors empty or remove a file before they write it, and its limits must
        stay active meanwhile."""
        signature = read_signature(self.path)
        was_missing = self._is_missing
        if signature == self._signature:
            self._is_missing = False
            return False
        self._is_missing = signature is None or signature.size == 0
        if self._is_missing and not was_missing:
            return False
        self._signature = signature
        return True

    def read(self) -> str:
        """The text of the file, "" if there is none. Raises `BadConfig`."""
        try:
            raw = read_plain(self.path, MAX_FILE_BYTES)
        except FileNotFoundError:
            return ""
        except ValueError as error:
            raise BadConfig(Problem(str(self.path), "", str(error))) from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise BadConfig(Problem(str(self.path), "", f"cannot be read: {reason}")) from error
        try:
            return raw.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise BadConfig(Problem(f"{self.path}:{line}", "", "not UTF-8; save the file as UTF-8 text")) from error

    def write(self, text: str) -> None:
        """Write the file atomically. Raises `Refusal` `unwritable_config`."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(self.path, text.encode())
        except OSError as error:
            reason = error.strerror or str(error)
            raise Refusal(
                "unwritable_config", f"{self.path} cannot be written: {reason}", "nothing was changed"
            ) from error
        self._signature = read_signature(self.path)


class SettingsStore:
    """The `SettingsSource` of all services. Callable from any thread. Creating it raises `Refusal` `bad_config` with
    all problems if the file is invalid."""

    def __init__(
        self,
        file: Path,
        *,
        clock: Clock | None = None,
        environment: Mapping[str, str] | None = None,
        lenient: bool = False,
    ) -> None:
        """By default the clock and the environment are those of this machine. If `lenient`, an invalid file is only a
        `fault`, and the defaults are used."""
        self.file = file
        self._file = _SettingsFile(file)
        self._clock = clock or SystemClock()
        self._environment = dict(os.environ if environment is None else environment)
        self._lock = threading.RLock()
        self._database: Database | None = None
        self._values_for_this_run: dict[str, Any] = {}
        self.fault: str = ""
        try:
            self._settings = self._parse(self._file.read())
        except BadConfig as error:
            if not lenient:
                raise
            self._settings, self.fault = self._parse(""), error.message
        self._checked_at = self._clock.monotonic()

    def attach_database(self, database: Database) -> None:
        """Record changes and faults as events in `database` from now on."""
        self._database = database

    @property
    def current(self) -> Settings:
        """The present settings. If the file changed, it is read again, at most once a second."""
        if self._clock.monotonic() - self._checked_at >= CHECK_INTERVAL_S:
            with self._lock:
                if self._clock.monotonic() - self._checked_at >= CHECK_INTERVAL_S:
                    self._checked_at = self._clock.monotonic()
                    self._reload()
        return self._settings

    def make_document(self) -> dict[str, Any]:
        """Every setting as JSON, with the names of the file."""
        return self.current.model_dump(mode="json", by_alias=True)

    def get(self, key: str) -> Any:
        """The value at a dotted key as JSON. Raises `Refusal` `unknown_key`."""
        path, document = parse_key(key), self.make_document()
        if path[0] == "workspaces" and len(path) > 1:
            folder = resolve_workspace_path(path[1]) or path[1]
            path = (path[0], folder, *path[2:])
            document["workspaces"].setdefault(folder, WorkspaceSettings().model_dump(mode="json", by_alias=True))
        value: Any = document
        for depth, part in enumerate(path, 1):
            if part not in value:
                raise Refusal("unknown_key", f"nothing is set at {format_key(path[:depth])}", "see `clawpy config get`")
            value = value[part]
        return value

    def find_origin(self, key: str) -> str:
        """The source of the value at `key`: "default", the file's path, the name of a variable, or "this run"."""
        path = parse_key(key)
        if len(path) == 1 and any(Settings.model_fields[name].alias == path[0] for name in self._values_for_this_run):
            return "this run"
        if variable := find_overriding_variables(self._environment).get(path):
            return variable
        return str(self.file) if self._is_in_file(path) else "default"

    def set(self, key: str, value: Any) -> None:
        """Set a dotted key in the file; a `str` is parsed as the setting's type.

        All settings are validated, then the file is written atomically. Raises `Refusal`: `unknown_key`, `bad_config`,
        and `overridden` if an environment variable comes first.
        """
        import tomlkit

        path = parse_key(key)
        if name := find_overriding_variables(self._environment).get(path):
            fault = f"{name} in the environment sets {format_key(path)} and would win"
            raise Refusal("overridden", fault, f"unset {name}")
        parsed_value = parse_value(path, value) if isinstance(value, str) else value
        try:
            tomlkit.item(parsed_value).as_string().encode()
        except (TypeError, ValueError, RecursionError) as error:  # such as null, no Unicode, or too many brackets
            message = f"{format_key(path)}: this value is not accepted; expected {describe_accepted(path)}"
            raise Refusal("bad_config", message, "nothing was changed; give another value") from error
        with self._lock:
            document = tomlkit.parse(self._read_valid_text())
            path = _find_path_in_file(path, document)
            table: Any = document
            for part in path[:-1]:
                if part not in table:
                    # A section without values of its own needs no header.
                    table[part] = tomlkit.table(is_super_table=part == path[0] and len(path) > 2)
                table = table[part]
            table[path[-1]] = parsed_value
            self._write(tomlkit.dumps(document))
        self._record(SettingChanged(subject=format_key(path), value=str(parsed_value)))

    def set_for_this_run(self, values: Mapping[str, Any]) -> None:
        """Change settings, named as attributes, until this engine ends. All are changed or none; the file is not
        changed. Raises `Refusal` `bad_config`, and the errors of recording the event."""
        try:
            Settings.model_validate(self.current.model_dump() | self._values_for_this_run | dict(values))
        except ValueError as error:
            raise Refusal("bad_config", f"{', '.join(values)}: {error}", "nothing was changed") from error
        events = [
            SettingChanged(subject=Settings.model_fields[name].alias or name, value=f"{value} for this run")
            for name, value in values.items()
        ]

        def change() -> None:
            with self._lock:
                self._values_for_this_run |= values
                self._settings = self._settings.model_copy(update=dict(values))

        self._record(*events, change=change)

    def unset(self, key: str) -> Any:
        """Remove a key from the file. Returns its default, None if it has none."""
        import tomlkit

        path = parse_key(key, allow_former=True)
        with self._lock:
            document = tomlkit.parse(self._read_valid_text())
            path = _find_path_in_file(path, document)
            table: Any = document
            for part in path[:-1]:
                table = table.get(part, {})
            if path[-1] not in table:
                raise Refusal(
                    "not_set", f"{format_key(path)} is not set in {self.file}", "its default is already active"
                )
            del table[path[-1]]
            self._write(tomlkit.dumps(document))
        self._record(SettingChanged(subject=format_key(path), value=""))
        try:
            return self.get(key)
        except Refusal:  # a table that the operator added, such as a provider, has no default
            return None

    def _read_valid_text(self) -> str:
        """The text of the file. Raises `Refusal` if it is invalid, because an invalid file must not be edited."""
        text = self._file.read()
        self._parse(text)
        return text

    def _write(self, text: str) -> None:
        """Write the file, if the settings in `text` are valid. Raises `Refusal`: `bad_config`, `unwritable_config`."""
        if (size := len(text.encode())) > MAX_FILE_BYTES:
            message = f"{self.file} would have {size} bytes, and is read up to {MAX_FILE_BYTES}"
            raise Refusal("bad_config", message, "nothing was changed; give a shorter value")
        try:
            settings = self._parse(text)
        except BadConfig as error:
            # The file was valid before, so the new value is wrong, and naming a line of the file would mislead.
            problems = dict.fromkeys(str(replace(problem, where="")) for problem in error.problems)
            fix = "nothing was changed; give another value"
            if absent := [problem.key for problem in error.problems if problem.is_missing]:
                section, _, name = absent[0].rpartition(".")
                whole = f"clawpy config set {section} '{{{name} = …, …}}', or write it into {self.file}"
                fix = f"nothing was changed; set the values that belong together in one command: {whole}"
            raise Refusal("bad_config", "\n".join(problems), fix) from error
        self._file.write(text)
        self._settings, self.fault = settings, ""

    def _is_in_file(self, path: KeyPath) -> bool:
        """Whether the file sets the value at `path`."""
        import tomllib

        try:
            table: Any = tomllib.loads(self._file.read())
        except (tomllib.TOMLDecodeError, BadConfig):
            return False
        for part in _find_path_in_file(path, table):
            if not isinstance(table, dict) or part not in table:
                return False
            table = table[part]
        return True

    def _reload(self) -> None:
        """Read the file again if it changed, and record what did."""
        if not self._file.check_for_change():
            return
        try:
            settings = self._parse(self._file.read())
        except BadConfig as error:
            if error.message != self.fault:
                self.fault = error.message
                log.warning("settings unchanged: %s", error.message)
                self._record_later(FaultReported(subject=str(self.file), where="settings", message=error.message))
            return
        self.fault = ""
        former, self._settings = self._settings, settings
        for name, info in Settings.model_fields.items():
            value = getattr(settings, name)
            if value != getattr(former, name):
                shown_value = "" if hasattr(value, "model_dump") else str(value)
                self._record_later(SettingChanged(subject=info.alias or name, value=shown_value))

    def _parse(self, text: str) -> Settings:
        settings = read_settings(text, file=str(self.file), environment=self._environment)
        return settings.model_copy(update=self._values_for_this_run) if self._values_for_this_run else settings

    def _record(self, *events: Event, change: Callable[[], None] = lambda: None) -> None:
        """Record events. `change` is made once they are stored, before others learn of them."""

        def work(tx: Transaction) -> None:
            for event in events:
                tx.record(event)
            tx.after_commit(change)

        if self._database is not None:
            self._database.write(work)
        else:
            change()

    def _record_later(self, event: Event) -> None:
        """Record an event in a thread, because settings are also read inside transactions, which hold the writer."""
        if self._database is not None:
            try:
                self._database.submit(lambda tx: tx.record(event))
            except Refusal as error:
                if error.code != "engine_closed":
                    raise


def _find_path_in_file(path: KeyPath, document: Mapping[str, Any]) -> KeyPath:
    """The key as it is written in the file: a workspace may be named there by another path to its folder."""
    written = document.get("workspaces")
    if path[0] != "workspaces" or len(path) < 2 or not isinstance(written, Mapping) or path[1] in written:
        return path
    folder = resolve_workspace_path(path[1])
    return (path[0], next((name for name in written if resolve_workspace_path(name) == folder), path[1]), *path[2:])
