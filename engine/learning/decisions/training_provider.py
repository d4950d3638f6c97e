"""A client of a provider's fine-tuning API, which runs `training_host.py` as a child process while it is needed."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from engine import helper_process
from engine.frozen import frozen
from engine.model import extras, sanitise
from engine.model.secrets import redact

COMMAND = (sys.executable, "-m", "engine.learning.decisions.training_host")

CALL_TIMEOUT_S, UPLOAD_TIMEOUT_S = 180.0, 1_800.0

EPOCHS = {"sft": 3, "dpo": 1}
"""Rounds over the examples: providers' own defaults for few examples."""

TRANSIENT_STATUSES = frozenset({0, 408, 409, 425, 429, 500, 502, 503, 504})


@frozen
class Job:
    """A fine-tuning job at the provider."""

    id: str
    state: str
    """Running, done, failed or cancelled."""
    status: str
    """The provider's own word."""
    model: str
    """The trained model, "" until the job is done."""
    dollars: float | None
    """Its price, None when the provider does not state it."""


class TrainingError(Exception):
    """A failed call. A `transient` one may succeed later (no network, an overloaded server)."""

    def __init__(self, words: str, *, transient: bool) -> None:
        super().__init__(words)
        self.transient = transient


@frozen
class Account:
    """Where to train, and with which key, which its repr does not show."""

    api: str
    base_url: str
    key: str = field(repr=False)


class Provider:
    """A provider's API, called by a child process that starts with the first call and ends with `close`. One call at a
    time; it may take minutes and raise `TrainingError`."""

    def __init__(self, account: Account, command: Sequence[str] = COMMAND) -> None:
        self._account = account
        self._command = tuple(command)
        self._process: subprocess.Popen[bytes] | None = None

    def upload(self, path: Path) -> str:
        """Send a file; returns its id there."""
        return str(self._call("upload", timeout_s=UPLOAD_TIMEOUT_S, path=str(path))["file"])

    def find_file(self, name: str) -> str:
        """The id of a file of this name that is there already, "" when none is."""
        return str(self._call("find_file", name=name)["file"])

    def start(self, file: str, *, model: str, checkpoint: str, method: str, suffix: str) -> Job:
        """Start a job on a file. `method` is sft or dpo; it starts from the result of the job `checkpoint`, else from
        `model`."""
        fields: dict[str, Any] = {"file": file, "model": model, "checkpoint": checkpoint, "method": method}
        return _job(self._call("start", suffix=suffix, epochs=EPOCHS[method], **fields))

    def find_job(self, file: str) -> Job | None:
        """The job that was started on a file, None when none was."""
        reply = self._call("find_job", file=file)
        return _job(reply) if reply["job"] else None

    def job(self, job: str) -> Job:
        """Read a job."""
        return _job(self._call("job", job=job))

    def cancel(self, job: str) -> None:
        """End a job."""
        self._call("cancel", job=job)

    def close(self) -> None:
        """End the process; the next call starts another."""
        process, self._process = self._process, None
        if process is not None:
            helper_process.kill_helper(process)
            process.communicate()

    def _call(self, call: str, *, timeout_s: float = CALL_TIMEOUT_S, **fields: Any) -> dict[str, Any]:
        account = self._account
        request = {"call": call, "api": account.api, "baseUrl": account.base_url, "key": account.key, **fields}
        try:
            reply = self._ask(json.dumps(request), timeout_s)
        except TimeoutError:
            self.close()
            raise TrainingError(f"no answer to `{call}` within {timeout_s:.0f} s", transient=True) from None
        except (OSError, ValueError) as error:
            self.close()
            raise TrainingError(f"`{call}` ended without an answer: {error}", transient=True) from error
        if "error" not in reply:
            return reply
        if reply.get("missing"):
            raise extras.not_installed(extras.TRAIN)
        words = sanitise(redact(f"{call}: {reply['error']}", [account.key]))
        raise TrainingError(words, transient=reply["status"] in TRANSIENT_STATUSES)

    def _ask(self, request: str, timeout_s: float) -> dict[str, Any]:
        if self._process is None:
            self._process = helper_process.start_helper(
                self._command, inherited=helper_process.NETWORK_VARIABLES, extra={"NO_COLOR": "1"}
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request.encode() + b"\n")
        process.stdin.flush()
        # It says nothing but one line, and that only when it is done.
        if not select.select([process.stdout], [], [], timeout_s)[0]:
            raise TimeoutError
        return dict(json.loads(process.stdout.readline()))


def _job(reply: dict[str, Any]) -> Job:
    return Job(reply["job"], reply["state"], reply["status"], reply["model"], reply["dollars"])
