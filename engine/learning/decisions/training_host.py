"""A process that calls a provider's fine-tuning API: a line of JSON in, a line out, until its input ends.

The providers' libraries are large and a call may take minutes, so it is a process of its own. The key comes with each
request and is in neither the arguments nor the environment.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

Request = Mapping[str, Any]
Reply = dict[str, Any]

TIMEOUT_S = 60.0

TOGETHER = {
    "completed": "done",
    "error": "failed",
    "cancelled": "cancelled",
    "cancel_requested": "cancelled",
}
OPENAI = {"succeeded": "done", "failed": "failed", "cancelled": "cancelled"}
"""Our state for each provider's status of a finished job; every other status means that the job is running."""

TOGETHER_UNIT = 1e9
"""`total_price` counts billionths of a dollar."""


class Api:
    """The calls that both providers share. `_job_of` translates a job into our words."""

    _files: Any
    _jobs: Any
    _list_filter: Mapping[str, str] = {}

    def find_file(self, request: Request) -> Reply:
        files = self._items(self._files.list(**self._list_filter))
        return {"file": next((file.id for file in files if file.filename == request["name"]), "")}

    def find_job(self, request: Request) -> Reply:
        jobs = self._items(self._jobs.list())
        return next((self._job_of(job) for job in jobs if job.training_file == request["file"]), {"job": ""})

    def job(self, request: Request) -> Reply:
        return self._job_of(self._jobs.retrieve(request["job"]))

    def cancel(self, request: Request) -> Reply:
        self._jobs.cancel(request["job"])
        return {}

    def _items(self, page: Any) -> Any:
        return page

    def _job_of(self, job: Any) -> Reply:
        raise NotImplementedError


class Together(Api):
    """Together's API through its own library (the extra `train`)."""

    def __init__(self, key: str, base_url: str) -> None:
        import together

        root = base_url.removesuffix("/v1")  # its paths begin with it
        client = together.Together(api_key=key, base_url=root, timeout=TIMEOUT_S, max_retries=0)
        self._files, self._jobs = client.files, client.fine_tuning

    def upload(self, request: Request) -> Reply:
        with contextlib.redirect_stdout(sys.stderr):  # it draws a progress bar
            file = self._files.upload(Path(request["path"]), purpose="fine-tune", check=False)
        return {"file": file.id}

    def start(self, request: Request) -> Reply:
        base = {"from_checkpoint": request["checkpoint"]} if request["checkpoint"] else {"model": request["model"]}
        return self._job_of(
            self._jobs.create(
                training_file=request["file"],
                suffix=request["suffix"],
                training_method=request["method"],
                n_epochs=request["epochs"],
                **base,
            )
        )

    def _items(self, page: Any) -> Any:
        return page.data or ()

    def _job_of(self, job: Any) -> Reply:
        status = str(getattr(job.status, "value", job.status))
        price = getattr(job, "total_price", None)
        model = getattr(job, "x_model_output_name", None) or getattr(job, "model_output_name", None)
        dollars = None if price is None else price / TOGETHER_UNIT
        return _job(job.id, TOGETHER.get(status), status, model, dollars)


class OpenAI(Api):
    """OpenAI's API, and whoever speaks as it does."""

    _list_filter = MappingProxyType({"purpose": "fine-tune"})

    def __init__(self, key: str, base_url: str) -> None:
        import openai

        client = openai.OpenAI(api_key=key, base_url=base_url, timeout=TIMEOUT_S, max_retries=0)
        self._files, self._jobs = client.files, client.fine_tuning.jobs

    def upload(self, request: Request) -> Reply:
        return {"file": self._files.create(file=Path(request["path"]), purpose="fine-tune").id}

    def start(self, request: Request) -> Reply:
        name = "supervised" if request["method"] == "sft" else request["method"]
        return self._job_of(
            self._jobs.create(
                training_file=request["file"],
                model=request["checkpoint"] or request["model"],
                suffix=request["suffix"],
                method={"type": name, name: {"hyperparameters": {"n_epochs": request["epochs"]}}},
            )
        )

    def _job_of(self, job: Any) -> Reply:
        return _job(job.id, OPENAI.get(job.status), job.status, job.fine_tuned_model, None)


def _job(job: str, state: str | None, status: str, model: str | None, dollars: float | None) -> Reply:
    return {"job": job, "state": state or "running", "status": status, "model": model or "", "dollars": dollars}


APIS: Mapping[str, Callable[[str, str], Any]] = {"together": Together, "openai": OpenAI}


def answer(request: Request) -> Reply:
    """Make the call that `request` names. A failure is an answer too: `error` in words, and the HTTP `status` or 0."""
    try:
        reply: Reply = getattr(APIS[request["api"]](request["key"], request["baseUrl"]), request["call"])(request)
    except ImportError as error:
        return {"error": f"{error.name} is not installed", "status": 0, "missing": True}
    except Exception as error:  # whatever the libraries raise: this process has nobody else to tell
        status = getattr(error, "status_code", None)
        return {"error": f"{type(error).__name__}: {error}"[:1_000], "status": status or 0}
    return reply


def main() -> None:
    """Read requests, answer each."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
