"""Layer A, the files of agents (SPEC 4.1): read, listed and edited without ever tearing one or losing an edit.

The folders are the truth and nothing of them is kept in memory: what another program wrote is seen at the next look.
An edit names what it was made of, and is refused when the file says something else by now.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from engine.config.json_problems import Fault, json_problem
from engine.events import AgentFileChanged
from engine.files import write_atomic
from engine.frozen import frozen
from engine.model import AgentFile, Layer, LayerState, Refusal, sanitise
from engine.storage.database import Database

FILES = ("soul.md", "memory.md", "heartbeat.md", "comms.json", "tools.json")
"""What a folder of an agent has, in the order in which it is shown."""

MAX_BYTES = 256 * 1024
"""Bytes; larger ones are neither read nor written."""

AGENT_ID = re.compile(r"[a-z][a-z0-9_-]{0,39}")


@frozen
class _Bytes:
    data: bytes
    written: datetime

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


class AgentFiles:
    """The files of the agents in one folder. All methods may be called from any thread."""

    def __init__(self, folder: Path, database: Database, fault: Callable[[str, str, str], Fault | None]) -> None:
        """`fault(agent, name, text)` says what is wrong with a JSON file that can be parsed, None when nothing is."""
        self.folder = folder
        self._database = database
        self._fault = fault
        self._lock = threading.Lock()
        self._digests: dict[tuple[str, str], str] = {}
        """See `_scan`; as it was last written here or noticed."""

    # Reading

    def agents(self) -> list[str]:
        """The agents that have a folder, by id."""
        try:
            return sorted(
                path.name for path in self.folder.iterdir() if AGENT_ID.fullmatch(path.name) and path.is_dir()
            )
        except FileNotFoundError:
            return []

    def list(self, agent: str = "") -> list[AgentFile]:
        """The files of one agent or of all, those that are not there included. What cannot be read has a `problem`."""
        return [self._read_or_problem(owner, name) for owner in ([agent] if agent else self.agents()) for name in FILES]

    def read(self, agent: str, name: str) -> AgentFile:
        """One file. Raises `Refusal`: `unknown_file`, `unreadable_file`."""
        content = self._bytes(agent, name)
        if content is None:
            return AgentFile(agent, name, "", "")
        try:
            text = content.data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Refusal(
                "unreadable_file",
                f"{agent}/{name} is not UTF-8: byte {error.start} is 0x{content.data[error.start]:02x}",
                f"fix {self.folder / agent / name} with an editor",
            ) from error
        problem = self._problem(agent, name, text)
        return AgentFile(agent, name, text, content.digest, content.written, problem)

    def layer_state(self) -> LayerState:
        """How layer A stands (SPEC 9.5)."""
        files = [item for item in self.list() if item.digest or item.problem]
        broken = [f"{file.agent}/{file.name}: {file.problem}" for file in files if file.problem]
        newest = max((file.written for file in files if file.written is not None), default=None)
        return LayerState(
            Layer.MARKDOWN, len(files), newest, "degraded" if broken else "ready", sanitise("; ".join(broken[:3]))
        )

    def _read_or_problem(self, agent: str, name: str) -> AgentFile:
        try:
            return self.read(agent, name)
        except Refusal as refusal:
            return AgentFile(agent, name, "", "", None, refusal.message)

    def _bytes(self, agent: str, name: str) -> _Bytes | None:
        path = self._path(agent, name)
        try:
            status = path.stat()
            if not path.is_file():
                raise Refusal("unreadable_file", f"{agent}/{name} is not a regular file", f"move {path} away")
            if status.st_size > MAX_BYTES:
                raise Refusal(
                    "unreadable_file", f"{agent}/{name} is larger than {MAX_BYTES // 1024} kB", f"shorten {path}"
                )
            return _Bytes(path.read_bytes(), datetime.fromtimestamp(status.st_mtime, UTC))
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = error.strerror or str(error)
            raise Refusal("unreadable_file", f"{agent}/{name} cannot be read: {reason}", f"see {path}") from error

    def _path(self, agent: str, name: str) -> Path:
        if not AGENT_ID.fullmatch(agent) or name not in FILES:
            name_given = sanitise(f"{agent}/{name}")
            raise Refusal("unknown_file", f"no agent has a file {name_given}", "files: " + ", ".join(FILES))
        return self.folder / agent / name

    # Writing

    def write(self, agent: str, name: str, text: str, *, read: str) -> AgentFile:
        """Replace a file by `text`, whole, with its mode kept. `read` is the digest of what the edit was made of, ""
        when there was no such file.

        Raises `Refusal`: `changed_meanwhile` (the file says something else by now: nothing is lost, both texts are
        there), `bad_file` (JSON that is none, or not what the engine expects, with line and column), `unknown_file`,
        `unreadable_file`, `unwritable_file`.
        """
        with self._lock:
            before = self._bytes(agent, name)
            if (before.digest if before else "") != read:
                raise Refusal(
                    "changed_meanwhile",
                    f"{agent}/{name} was changed by another program while it was edited here",
                    "compare both texts and keep what you want; neither is lost",
                )
            data = _with_line_ends(text, before).encode("utf-8", errors="replace")
            if problem := self._problem(agent, name, data.decode()):
                raise Refusal("bad_file", f"{agent}/{name}: {problem}", "fix it and save again; nothing was written")
            return self._put(agent, name, data, "in the console")

    def append(self, agent: str, name: str, text: str) -> AgentFile:
        """Add `text` at the end of `memory.md` or `heartbeat.md`, on new lines. Only for the engine's own notes:
        `soul.md` is the operator's. Raises `Refusal` as `write`."""
        if name not in ("memory.md", "heartbeat.md"):
            raise Refusal("unknown_file", f"nothing is added to {name} by itself", "edit it")
        with self._lock:
            before = self._bytes(agent, name)
            content = before.data if before else b""
            newline = b"" if not content or content.endswith(b"\n") else b"\n"
            data = content + newline + sanitise(text).rstrip("\n").encode("utf-8", errors="replace") + b"\n"
            return self._put(agent, name, data, "by the engine")

    def _put(self, agent: str, name: str, data: bytes, how: str) -> AgentFile:
        path = self._path(agent, name)
        if not path.parent.is_dir():
            raise Refusal("unknown_file", f"there is no agent {agent}", "see `clawpy agents list`")
        if len(data) > MAX_BYTES:
            raise Refusal("bad_file", f"{agent}/{name} may have at most {MAX_BYTES // 1024} kB", f"shorten {path}")
        digest = hashlib.sha256(data).hexdigest()
        self._digests[agent, name] = digest  # before the file is written, so that the watcher ignores our own write
        try:
            write_atomic(path, data)
        except OSError as error:
            self._digests.pop((agent, name), None)
            reason = error.strerror or str(error)
            raise Refusal(
                "unwritable_file", f"{agent}/{name} cannot be written: {reason}", f"see {path}; nothing changed"
            ) from error
        self._record(agent, name, how)
        return self.read(agent, name)

    def _record(self, agent: str, name: str, how: str) -> None:
        self._database.write(lambda tx: tx.record(AgentFileChanged(subject=agent, file=name, how=how)))

    # Watching

    def snapshot(self) -> None:
        """Take every file as known, before it is watched."""
        with self._lock:
            self._digests = self._scan()

    def record_changes(self) -> None:
        """Record which files changed since, and not by our own hand; of a folder that came or went without a known file
        the file name is ""."""
        with self._lock:
            before, self._digests = self._digests, self._scan()
            keys = before.keys() | self._digests.keys()
            changed = sorted(key for key in keys if before.get(key, "") != self._digests.get(key, ""))
        agents_with_files = {agent for agent, name in changed if name}
        for agent, name in changed:
            if name or agent not in agents_with_files:
                self._record(agent, name, "on disk")

    def _scan(self) -> dict[tuple[str, str], str]:
        """The digests of all files, and under the file name "" what stands in the folder, sound or not."""
        digests = {(agent, name): self._digest(agent, name) for agent in self.agents() for name in FILES}
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        return digests | {(sanitise(path.name)[:80], ""): "here" for path in paths if not path.name.startswith(".")}

    def _digest(self, agent: str, name: str) -> str:
        try:
            content = self._bytes(agent, name)
        except Refusal as refusal:
            return refusal.message  # an unreadable file counts as one more state, reported once
        return content.digest if content else ""

    def _problem(self, agent: str, name: str, text: str) -> str:
        """What is wrong with a file, with line and column, "" when nothing is."""
        return json_problem(text, lambda: self._fault(agent, name, text)) if name.endswith(".json") else ""


def _with_line_ends(text: str, before: _Bytes | None) -> str:
    """`text` with an end to its last line, and with the line ends that the file had."""
    lines = text.replace("\r\n", "\n")
    lines = lines if not lines or lines.endswith("\n") else lines + "\n"
    return lines.replace("\n", "\r\n") if before is not None and b"\r\n" in before.data else lines


# Edits of agents' files by other programs, noticed while the engine runs (SPEC 4.1).
#
# Folders are watched, not files: editors replace files. What changed is compared by content, so that our own writes and
# a mere touch are nothing new. While nothing changes it costs next to nothing.


log = logging.getLogger(__name__)

POLL_MS = 250
"""Milliseconds between two looks at what the system reported; bursts of changes within them come together."""

DEBOUNCE_MS = 1000
"""Milliseconds for which a burst that does not end is held back."""

CLOSE_TIMEOUT_S = 2.0


class AgentFileWatcher:
    """Watches the folder of `AgentFiles` in a background thread."""

    def __init__(self, agent_files: AgentFiles, *, report: Callable[[str, str], None]) -> None:
        """`report(where, message)` is called when the folder cannot be watched: changes are then seen at the next
        read."""
        self._agent_files = agent_files
        self._report = report
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.is_ready = threading.Event()
        """Set when changes are seen from now on, or never will be."""

    def start(self) -> None:
        """Begin; returns at once. A second time changes nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="clawpy-agent-files", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End it."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._watch(self._agent_files.folder)
        except Exception as error:
            if self._stop.is_set():
                return  # the engine closed while a change was recorded
            log.exception("the agents' files are no longer watched")
            self._report(
                "agent files",
                f"edits by other programs are noticed only when a file is next read: {error}",
            )
        finally:
            self.is_ready.set()

    def _watch(self, folder: Path) -> None:
        from watchfiles import watch

        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._agent_files.snapshot()
        for _ in watch(
            folder,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            step=POLL_MS,
            rust_timeout=0,
            stop_event=self,
            raise_interrupt=False,
        ):
            self._agent_files.record_changes()

    def is_set(self) -> bool:
        """Whether to end: asked by the watcher between two looks, for the first time when it is there."""
        if not self.is_ready.is_set():
            self._agent_files.record_changes()  # edits since we first read
            self.is_ready.set()
        return self._stop.is_set()
