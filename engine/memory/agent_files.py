"""Layer A, the files of agents (SPEC 4.1): read, edited and watched, so that no file is torn and no edit is lost.

Nothing is kept in memory, so that the next read sees what another program wrote. An edit names the text that it was
made from, and is refused if the file has changed since. Edits by other programs are noticed while the engine runs.
Folders are watched, not files, because editors replace files. Contents are compared, so that our own writes and a mere
touch do not count as edits.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.events.engine import AgentFileChanged
from engine.files import write_atomic
from engine.hierarchy import AGENT_ID
from engine.model import AgentFile, Layer, LayerState, Refusal
from engine.storage.database import Database
from engine.text import sanitise

log = logging.getLogger(__name__)

Problem = tuple[Sequence[str | int], str]
"""A problem of a JSON document: the keys that lead to it, and the problem in words."""

AGENT_FILES = ("soul.md", "memory.md", "heartbeat.md", "comms.json", "tools.json")
"""The files in the folder of an agent, in the order in which they are shown."""

MAX_FILE_BYTES = 256 * 1024
"""Maximum size of a file; larger ones are neither read nor written."""

POLL_MS = 250
"""Milliseconds in which changes are collected before they are reported together."""

DEBOUNCE_MS = 1000
"""Milliseconds after which changes are reported even if more follow."""

CLOSE_TIMEOUT_S = 2.0
"""Seconds that `close` waits for the thread that watches."""


class AgentFiles:
    """The files of the agents in one folder. All methods may be called from any thread."""

    def __init__(
        self,
        folder: Path,
        database: Database,
        find_problem: Callable[[str, str, str], Problem | None],
        report: Callable[[str, str], None] = lambda where, message: None,
    ) -> None:
        """`find_problem(agent, name, text)` returns the problem of a JSON file that can be parsed, None for none.
        `report(where, message)` is called if the folder cannot be watched. Then changes are seen at the next read."""
        self.folder = folder
        self._database = database
        self._find_problem = find_problem
        self._report = report
        self._lock = threading.Lock()
        self._known_states: dict[tuple[str, str], str] = {}
        """The digest of each file, or its problem, as it was last written here or noticed."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.is_watched = threading.Event()
        """Set once changes are watched, or once it is clear that they cannot be."""

    # -- reading

    def list_agents(self) -> list[str]:
        """The agents that have a folder, by id."""
        folders = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted(path.name for path in folders if AGENT_ID.fullmatch(path.name) and path.is_dir())

    def read_files(self) -> list[AgentFile]:
        """The files of all agents. A file that does not exist is empty; one that cannot be read has a `problem`."""
        files = []
        for agent in self.list_agents():
            for name in AGENT_FILES:
                try:
                    files.append(self.read(agent, name))
                except Refusal as refusal:
                    files.append(AgentFile(agent, name, text="", digest="", written=None, problem=refusal.message))
        return files

    def read(self, agent: str, name: str) -> AgentFile:
        """One file. Raises `Refusal`: `unknown_file`, `unreadable_file`."""
        content = self._read_bytes(agent, name)
        if content is None:
            return AgentFile(agent, name, "", "")
        data, written = content
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Refusal(
                "unreadable_file",
                f"{agent}/{name} is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}",
                f"fix {self.folder / agent / name} with an editor",
            ) from error
        return AgentFile(
            agent,
            name,
            text=text,
            digest=_compute_digest(data),
            written=written,
            problem=self._describe_problem(agent, name, text),
        )

    def describe_layer(self) -> LayerState:
        """The state of layer A (SPEC 9.5)."""
        files = [file for file in self.read_files() if file.digest or file.problem]
        broken = [f"{file.agent}/{file.name}: {file.problem}" for file in files if file.problem]
        newest = max((file.written for file in files if file.written is not None), default=None)
        state = "degraded" if broken else "ready"
        return LayerState(
            Layer.MARKDOWN, len(files), fresh_at=newest, state=state, words=sanitise("; ".join(broken[:3]))
        )

    def _read_bytes(self, agent: str, name: str) -> tuple[bytes, datetime] | None:
        """The bytes of a file, and when it was written; None if it does not exist."""
        path = self._locate(agent, name)
        try:
            status = path.stat()
            if not path.is_file():
                raise Refusal("unreadable_file", f"{agent}/{name} is not a regular file", f"move {path} away")
            if status.st_size > MAX_FILE_BYTES:
                raise Refusal(
                    "unreadable_file", f"{agent}/{name} is larger than {MAX_FILE_BYTES // 1024} kB", f"shorten {path}"
                )
            return path.read_bytes(), datetime.fromtimestamp(status.st_mtime, UTC)
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = error.strerror or str(error)
            raise Refusal("unreadable_file", f"{agent}/{name} cannot be read: {reason}", f"see {path}") from error

    def _locate(self, agent: str, name: str) -> Path:
        if not AGENT_ID.fullmatch(agent) or name not in AGENT_FILES:
            name_given = sanitise(f"{agent}/{name}")
            raise Refusal("unknown_file", f"no agent has a file {name_given}", "files: " + ", ".join(AGENT_FILES))
        return self.folder / agent / name

    def _describe_problem(self, agent: str, name: str, text: str) -> str:
        """What is wrong with a JSON file, and at which key; "" for nothing."""
        if not name.endswith(".json"):
            return ""
        try:
            json.loads(text, object_pairs_hook=_require_unique_keys)
        except RecursionError:
            return "it is nested too deeply"
        except ValueError as error:
            return sanitise(str(error))
        problem = self._find_problem(agent, name, text)
        if problem is None:
            return ""
        keys, message = problem
        return sanitise(": ".join([".".join(map(str, keys)), message] if keys else [message]))

    # -- writing

    def write(self, agent: str, name: str, text: str, *, based_on: str) -> AgentFile:
        """Replace the text of a file; its mode and line ends stay. `based_on` is the digest of the text that was
        edited, "" if the file did not exist.

        Raises `Refusal`: `changed_meanwhile` (neither text is lost), `bad_file` (invalid JSON, or not what the engine
        expects, with its place), `unknown_file`, `unreadable_file`, `unwritable_file`.
        """
        with self._lock:
            before = self._read_bytes(agent, name)
            if (_compute_digest(before[0]) if before else "") != based_on:
                raise Refusal(
                    "changed_meanwhile",
                    f"{agent}/{name} was changed by another program while it was edited here",
                    "compare both texts and keep what you want; neither is lost",
                )
            data = _encode_like(before[0] if before else b"", text)
            if problem := self._describe_problem(agent, name, data.decode()):
                raise Refusal("bad_file", f"{agent}/{name}: {problem}", "fix it and save again; nothing was written")
            return self._replace(agent, name, data, "in the console")

    def append(self, agent: str, name: str, text: str) -> AgentFile:
        """Add `text` at the end of `memory.md` or `heartbeat.md`, on new lines. The engine adds its own notes there,
        and never to `soul.md`, which is the operator's. Raises `Refusal` as `write`."""
        if name not in ("memory.md", "heartbeat.md"):
            raise Refusal("unknown_file", f"nothing is added to {name} by itself", "edit it")
        with self._lock:
            before = self._read_bytes(agent, name)
            content = before[0] if before else b""
            newline = b"" if not content or content.endswith(b"\n") else b"\n"
            data = content + newline + sanitise(text).rstrip("\n").encode("utf-8", errors="replace") + b"\n"
            return self._replace(agent, name, data, "by the engine")

    def _replace(self, agent: str, name: str, data: bytes, how: str) -> AgentFile:
        """Write a file, and record the change. `how` says who made it, in words."""
        path = self._locate(agent, name)
        if not path.parent.is_dir():
            raise Refusal("unknown_file", f"there is no agent {agent}", "see `clawpy agents list`")
        if len(data) > MAX_FILE_BYTES:
            raise Refusal("bad_file", f"{agent}/{name} may have at most {MAX_FILE_BYTES // 1024} kB", f"shorten {path}")
        try:
            write_atomic(path, data)
        except OSError as error:
            reason = error.strerror or str(error)
            raise Refusal(
                "unwritable_file", f"{agent}/{name} cannot be written: {reason}", f"see {path}; nothing changed"
            ) from error
        self._known_states[agent, name] = _compute_digest(data)
        self._record(agent, name, how)
        return self.read(agent, name)

    def _record(self, agent: str, name: str, how: str) -> None:
        self._database.record(AgentFileChanged(subject=agent, file=name, how=how))

    # -- watching

    def start(self) -> None:
        """Watch the folder in the background. Returns at once. A second call changes nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="clawpy-agent-files", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End watching."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)

    def _watch(self) -> None:
        """Watch the folder until `close`, and report changes."""
        from watchfiles import watch

        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._lock:
                self._known_states = {
                    (agent, name): self._compute_digest_or_problem(agent, name)
                    for agent in self.list_agents()
                    for name in AGENT_FILES
                }
            for changes in watch(
                self.folder,
                watch_filter=None,
                debounce=DEBOUNCE_MS,
                step=POLL_MS,
                rust_timeout=POLL_MS,
                yield_on_timeout=True,
                stop_event=self._stop,
                raise_interrupt=False,
            ):
                places = {Path(path).relative_to(self.folder.resolve()).parts for _, path in changes}
                # The first time, also notice edits since the files were read and before the folder was watched.
                self._record_changes(places if self.is_watched.is_set() else places | self._known_states.keys())
                self.is_watched.set()
        except Exception as error:
            if not self._stop.is_set():  # else the engine closed while a change was recorded
                log.exception("the agents' files are no longer watched")
                message = f"edits by other programs are noticed only when a file is next read: {error}"
                self._report("agent files", message)
        finally:
            self.is_watched.set()

    def _record_changes(self, places: set[tuple[str, ...]]) -> None:
        """Record which of these files other programs changed, and which folders came or went."""
        for agent, *rest in sorted(places):
            name = rest[0] if rest else ""
            if agent.startswith(".") or len(rest) > 1 or (name and name not in AGENT_FILES):
                continue
            with self._lock:
                state = self._compute_digest_or_problem(agent, name) if name else ""
                is_news = not name or self._known_states.get((agent, name), "") != state
                self._known_states[agent, name] = state
            if is_news:
                self._record(sanitise(agent)[:80], name, "on disk")

    def _compute_digest_or_problem(self, agent: str, name: str) -> str:
        """The digest of a file, "" if it does not exist; for an unreadable file the problem, in words."""
        try:
            content = self._read_bytes(agent, name)
        except Refusal as refusal:
            return refusal.message
        return _compute_digest(content[0]) if content else ""


def _encode_like(before: bytes, text: str) -> bytes:
    """An edited text as it is written: with a line end at its end, and with the line ends of the file `before`."""
    edited = text.replace("\r\n", "\n")
    if edited and not edited.endswith("\n"):
        edited += "\n"
    if b"\r\n" in before:
        edited = edited.replace("\n", "\r\n")
    return edited.encode("utf-8", errors="replace")


def _compute_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _require_unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Raises ValueError for an object with the same key twice: a parser would silently drop one."""
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the key {name!r} appears twice")
    return dict(pairs)
