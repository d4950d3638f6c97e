"""A process that makes calls of a provider's fine-tuning API: a line of JSON in, a line out, until its input ends.

It is a process of its own since the providers' libraries are large and a call may take minutes; the key comes with
each request and is neither in its arguments nor in its environment.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Request = Mapping[str, Any]
Reply = dict[str, Any]

CONNECT_SECONDS = 60.0

TOGETHER = {
    "completed": "done",
    "error": "failed",
    "cancelled": "cancelled",
    "cancel_requested": "cancelled",
}
OPENAI = {"succeeded": "done", "failed": "failed", "cancelled": "cancelled"}
"""What jobs that are over are called; every other word means that it goes on."""

TOGETHER_UNIT = 1e9
"""`total_price` counts billionths of a dollar."""


class Together:
    """Together's API through its own library (the extra `train`)."""

    def __init__(self, key: str, base_url: str) -> None:
        import together

        root = base_url.removesuffix("/v1")  # its paths begin with it
        self._client = together.Together(api_key=key, base_url=root, timeout=CONNECT_SECONDS, max_retries=0)

    def upload(self, request: Request) -> Reply:
        with contextlib.redirect_stdout(sys.stderr):  # it draws a progress bar
            file = self._client.files.upload(Path(request["path"]), purpose="fine-tune", check=False)
        return {"file": file.id}

    def uploaded(self, request: Request) -> Reply:
        wanted = request["name"]
        return {"file": next((one.id for one in self._client.files.list().data or () if one.filename == wanted), "")}

    def start(self, request: Request) -> Reply:
        base = {"from_checkpoint": request["checkpoint"]} if request["checkpoint"] else {"model": request["model"]}
        job = self._client.fine_tuning.create(
            training_file=request["file"],
            suffix=request["suffix"],
            training_method=request["method"],
            n_epochs=request["epochs"],
            **base,
        )
        return self._job(job)

    def started(self, request: Request) -> Reply:
        jobs = self._client.fine_tuning.list().data or ()
        return next((self._job(job) for job in jobs if job.training_file == request["file"]), {"job": ""})

    def job(self, request: Request) -> Reply:
        return self._job(self._client.fine_tuning.retrieve(request["job"]))

    def cancel(self, request: Request) -> Reply:
        self._client.fine_tuning.cancel(request["job"])
        return {}

    @staticmethod
    def _job(job: Any) -> Reply:
        status = str(getattr(job.status, "value", job.status))
        price = getattr(job, "total_price", None)
        model = getattr(job, "x_model_output_name", None) or getattr(job, "model_output_name", None)
        return {
            "job": job.id,
            "state": TOGETHER.get(status, "running"),
            "status": status,
            "model": model or "",
            "dollars": None if price is None else price / TOGETHER_UNIT,
        }


class OpenAI:
    """OpenAI's API, and whoever speaks as it does."""

    def __init__(self, key: str, base_url: str) -> None:
        import openai

        self._client = openai.OpenAI(api_key=key, base_url=base_url, timeout=CONNECT_SECONDS, max_retries=0)

    def upload(self, request: Request) -> Reply:
        file = self._client.files.create(file=Path(request["path"]), purpose="fine-tune")
        return {"file": file.id}

    def uploaded(self, request: Request) -> Reply:
        files = self._client.files.list(purpose="fine-tune")
        return {"file": next((one.id for one in files if one.filename == request["name"]), "")}

    def start(self, request: Request) -> Reply:
        hyper = {"n_epochs": request["epochs"]}
        method: Any = {"type": request["method"], request["method"]: {"hyperparameters": hyper}}
        if request["method"] == "sft":
            method = {"type": "supervised", "supervised": {"hyperparameters": hyper}}
        job = self._client.fine_tuning.jobs.create(
            training_file=request["file"],
            model=request["checkpoint"] or request["model"],
            suffix=request["suffix"],
            method=method,
        )
        return self._job(job)

    def started(self, request: Request) -> Reply:
        jobs = self._client.fine_tuning.jobs.list()
        return next((self._job(job) for job in jobs if job.training_file == request["file"]), {"job": ""})

    def job(self, request: Request) -> Reply:
        return self._job(self._client.fine_tuning.jobs.retrieve(request["job"]))

    def cancel(self, request: Request) -> Reply:
        self._client.fine_tuning.jobs.cancel(request["job"])
        return {}

    @staticmethod
    def _job(job: Any) -> Reply:
        return {
            "job": job.id,
            "state": OPENAI.get(job.status, "running"),
            "status": job.status,
            "model": job.fine_tuned_model or "",
            "dollars": None,
        }


APIS: Mapping[str, Callable[[str, str], Any]] = {"together": Together, "openai": OpenAI}
CALLS = frozenset({"upload", "uploaded", "start", "started", "job", "cancel"})


def answer(request: Request) -> Reply:
    """Make the call that `request` names. Every failure is an answer: `fault` in words, `status` of HTTP or 0."""
    if request["call"] not in CALLS:
        raise ValueError(f"no call {request['call']!r}")
    try:
        reply: Reply = getattr(APIS[request["api"]](request["key"], request["baseUrl"]), request["call"])(request)
    except ImportError as error:
        return {"fault": f"{error.name} is not installed", "status": 0, "missing": True}
    except Exception as error:  # whatever the libraries raise: this process has nobody else to tell
        status = getattr(error, "status_code", None)
        return {"fault": f"{type(error).__name__}: {error}"[:1_000], "status": status or 0}
    return reply


def main() -> None:
    """Read requests, answer each."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
