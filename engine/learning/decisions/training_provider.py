"""A provider's fine-tuning API, in two processes: `Provider` sends each call to a child process, which is this module
as a program (`main`), and that asks the provider.

The libraries of providers are large and a call may take minutes, so only the child process imports and calls them. It
reads requests and writes replies, each a line of JSON. The key is in each request, and so not in the arguments or the
environment of the process. A client of the library is made for each request. Calls are minutes apart, so none would
have an open connection to reuse, and the process keeps no key.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from engine.background import NETWORK_VARIABLES, kill_helper, start_helper
from engine.frozen import frozen
from engine.installed import TRAIN, make_not_installed_refusal
from engine.redaction import redact
from engine.text import sanitise


@frozen
class TrainingJob:
    """A fine-tuning job at the provider."""

    id: str
    state: str
    """Running, done, failed or cancelled."""
    status: str
    """The provider's own word."""
    model: str
    """The id of the trained model, "" until the job is done."""
    dollars: float | None
    """Its price, None if the provider does not state one."""


class TrainingError(Exception):
    """Raised for a failed call. If `transient`, the call may succeed later (no network, an overloaded server)."""

    def __init__(self, message: str, *, transient: bool) -> None:
        super().__init__(message)
        self.transient = transient


@frozen
class Account:
    """The API to train with, and its key, which the repr does not show."""

    api: str
    """A key of `APIS`."""
    base_url: str
    key: str = field(repr=False)


COMMAND = (sys.executable, "-m", "engine.learning.decisions.training_provider")
"""Starts the child process."""

REPLY_TIMEOUT_S, UPLOAD_REPLY_TIMEOUT_S = 180.0, 1_800.0
"""Seconds that the child process has for the reply to a call, and to an upload. It may make several HTTP requests."""

EPOCHS = {"sft": 3, "dpo": 1}
"""Rounds over the examples. These are the defaults of providers for few examples."""

TRANSIENT_STATUSES = frozenset({0, 408, 409, 425, 429, 500, 502, 503, 504})
"""HTTP statuses after which the same call may succeed later. 0 means no answer."""


class Provider:
    """A provider's API. A child process makes the calls; it starts with the first call and ends with `close`. Only one
    call at a time is made. A call may take minutes and raise `TrainingError`."""

    def __init__(self, account: Account, command: Sequence[str] = COMMAND) -> None:
        self._account = account
        self._command = tuple(command)
        self._process: subprocess.Popen[bytes] | None = None

    def upload(self, path: Path) -> str:
        """Send a file; returns its id there."""
        return str(self._call("upload", timeout_s=UPLOAD_REPLY_TIMEOUT_S, path=str(path))["file"])

    def find_file(self, name: str) -> str:
        """The id of an uploaded file with this name, "" for none."""
        return str(self._call("find_file", name=name)["file"])

    def start(self, file: str, *, model: str, checkpoint: str, method: str, suffix: str) -> TrainingJob:
        """Start a job on a file. `method` is sft or dpo. Training begins with the result of the job `checkpoint`, or
        with `model` if that is ""."""
        epochs = EPOCHS[method]
        return TrainingJob(
            **self._call(
                "start", file=file, model=model, checkpoint=checkpoint, method=method, suffix=suffix, epochs=epochs
            )
        )

    def find_job(self, file: str) -> TrainingJob | None:
        """The job that was started on a file, None for none."""
        reply = self._call("find_job", file=file)
        return TrainingJob(**reply) if reply else None

    def read_job(self, job: str) -> TrainingJob:
        """Read a job from the provider."""
        return TrainingJob(**self._call("job", job=job))

    def cancel(self, job: str) -> None:
        """End a job."""
        self._call("cancel", job=job)

    def close(self) -> None:
        """End the process; the next call starts another."""
        process, self._process = self._process, None
        if process is not None:
            kill_helper(process)
            process.communicate()

    def _call(self, call: str, *, timeout_s: float = REPLY_TIMEOUT_S, **fields: Any) -> dict[str, Any]:
        """Make a call in the child process, and return its reply. Raises `TrainingError`, and a refusal if the library
        is not installed."""
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
            raise make_not_installed_refusal(TRAIN)
        message = sanitise(redact(f"{call}: {reply['error']}", [account.key]))
        raise TrainingError(message, transient=reply["status"] in TRANSIENT_STATUSES)

    def _ask(self, request: str, timeout_s: float) -> dict[str, Any]:
        """Send a request to the child process, and read the reply. Raises TimeoutError, OSError and ValueError."""
        if self._process is None:
            self._process = start_helper(
                self._command, inherited_variables=NETWORK_VARIABLES, extra_variables={"NO_COLOR": "1"}
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request.encode() + b"\n")
        process.stdin.flush()
        # The process writes only one line, when the call is done.
        if not select.select([process.stdout], [], [], timeout_s)[0]:
            raise TimeoutError
        return dict(json.loads(process.stdout.readline()))


# -- the child process

Request = Mapping[str, Any]
"""The name of a `call`, the `api`, its `baseUrl` and `key`, and the arguments of the call."""

Reply = dict[str, Any]
"""What a call returns, by the name of each value."""

HTTP_TIMEOUT_S = 60.0
"""Seconds for one HTTP request."""


TOGETHER_STATES = {"completed": "done", "error": "failed", "cancelled": "cancelled", "cancel_requested": "cancelled"}
OPENAI_STATES = {"succeeded": "done", "failed": "failed", "cancelled": "cancelled"}
"""Our state for each provider's status of a finished job; every other status means that the job is running."""

TOGETHER_PRICE_UNIT = 1e9
"""`total_price` counts billionths of a dollar."""


class Api(ABC):
    """The calls of a provider. Each returns the reply to a request."""

    FILE_FILTER: Mapping[str, str] = {}
    """Limits a list of files to those for training."""

    def __init__(self, files: Any, jobs: Any) -> None:
        """The parts of the library's client for files and for jobs."""
        self._files = files
        self._jobs = jobs

    def answer(self, request: Request) -> Reply:
        """Make the call that a request names."""
        calls: Mapping[str, Callable[[Request], Reply]] = {
            "upload": self.upload,
            "find_file": self.find_file,
            "start": self.start,
            "find_job": self.find_job,
            "job": self.job,
            "cancel": self.cancel,
        }
        return calls[request["call"]](request)

    @abstractmethod
    def upload(self, request: Request) -> Reply: ...

    def find_file(self, request: Request) -> Reply:
        files = self._read_items(self._files.list(**self.FILE_FILTER))
        return {"file": next((file.id for file in files if file.filename == request["name"]), "")}

    def start(self, request: Request) -> Reply:
        options = self._make_job_options(request)
        return self._describe(self._jobs.create(training_file=request["file"], suffix=request["suffix"], **options))

    def find_job(self, request: Request) -> Reply:
        jobs = self._read_items(self._jobs.list())
        return next((self._describe(job) for job in jobs if job.training_file == request["file"]), {})

    def job(self, request: Request) -> Reply:
        return self._describe(self._jobs.retrieve(request["job"]))

    def cancel(self, request: Request) -> Reply:
        self._jobs.cancel(request["job"])
        return {}

    def _describe(self, job: Any) -> Reply:
        """The reply about a job of the provider."""
        return asdict(self._to_job(job))

    def _read_items(self, page: Any) -> Any:
        """The items of a list that the provider returned."""
        return page

    @abstractmethod
    def _make_job_options(self, request: Request) -> dict[str, Any]:
        """The base model, the method and the epochs, as the library takes them."""

    @abstractmethod
    def _to_job(self, job: Any) -> TrainingJob:
        """Convert a job of the provider."""


class Together(Api):
    """Together's API through its own library (the extra `train`)."""

    def __init__(self, key: str, base_url: str) -> None:
        import together

        root = base_url.removesuffix("/v1")  # its paths begin with it
        client = together.Together(api_key=key, base_url=root, timeout=HTTP_TIMEOUT_S, max_retries=0)
        super().__init__(client.files, client.fine_tuning)

    def upload(self, request: Request) -> Reply:
        with contextlib.redirect_stdout(sys.stderr):  # it draws a progress bar
            file = self._files.upload(Path(request["path"]), purpose="fine-tune", check=False)
        return {"file": file.id}

    def _read_items(self, page: Any) -> Any:
        return page.data or ()

    def _make_job_options(self, request: Request) -> dict[str, Any]:
        base = {"from_checkpoint": request["checkpoint"]} if request["checkpoint"] else {"model": request["model"]}
        return base | {"training_method": request["method"], "n_epochs": request["epochs"]}

    def _to_job(self, job: Any) -> TrainingJob:
        status = str(getattr(job.status, "value", job.status))
        price = getattr(job, "total_price", None)
        model = getattr(job, "x_model_output_name", None) or getattr(job, "model_output_name", None)
        dollars = None if price is None else price / TOGETHER_PRICE_UNIT
        return TrainingJob(job.id, TOGETHER_STATES.get(status, "running"), status, model or "", dollars)


class OpenAI(Api):
    """OpenAI's API, and compatible APIs."""

    FILE_FILTER = {"purpose": "fine-tune"}

    def __init__(self, key: str, base_url: str) -> None:
        import openai

        client = openai.OpenAI(api_key=key, base_url=base_url, timeout=HTTP_TIMEOUT_S, max_retries=0)
        super().__init__(client.files, client.fine_tuning.jobs)

    def upload(self, request: Request) -> Reply:
        return {"file": self._files.create(file=Path(request["path"]), purpose="fine-tune").id}

    def _make_job_options(self, request: Request) -> dict[str, Any]:
        name = "supervised" if request["method"] == "sft" else request["method"]
        method = {"type": name, name: {"hyperparameters": {"n_epochs": request["epochs"]}}}
        return {"model": request["checkpoint"] or request["model"], "method": method}

    def _to_job(self, job: Any) -> TrainingJob:
        return TrainingJob(
            job.id, OPENAI_STATES.get(job.status, "running"), job.status, job.fine_tuned_model or "", None
        )


APIS: Mapping[str, Callable[[str, str], Api]] = {"together": Together, "openai": OpenAI}


def answer(request: Request) -> Reply:
    """The reply to a request. That to a failed call has the `error` in words, and its HTTP `status` or 0."""
    try:
        return APIS[request["api"]](request["key"], request["baseUrl"]).answer(request)
    except ImportError as error:
        return {"error": f"{error.name} is not installed", "status": 0, "missing": True}
    except Exception as error:  # any error of the libraries is reported to the parent process
        status = getattr(error, "status_code", None)
        return {"error": f"{type(error).__name__}: {error}"[:1_000], "status": status or 0}


def main() -> None:
    """Read requests, answer each."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
