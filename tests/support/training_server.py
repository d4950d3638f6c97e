"""A provider of fine-tuning on loopback: real HTTP, Together's files and jobs, and OpenAI's.

    with TrainingServer() as server:
        ...                              # point Together at server.url, OpenAI at server.url + "/v1"
        server.jobs[0].finish("me/twin-1")

Jobs run until `finish` or `fail` is called. `faults` has the HTTP statuses with which the next requests are
answered, by the beginning of their `METHOD /path`.
"""

from __future__ import annotations

import email.parser
import email.policy
import json
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.web_server import LoopbackServer, send_reply

Json = dict[str, Any]

LIMITS = Path(__file__).with_name("training_limits.json").read_bytes()
"""What Together says of the jobs that it takes."""


@dataclass
class SentFile:
    """A file of examples that was uploaded."""

    id: str
    name: str
    content: bytes = b""

    @property
    def lines(self) -> list[Json]:
        return [json.loads(line) for line in self.content.splitlines()]


@dataclass
class SentJob:
    """A job that was started."""

    id: str
    parameters: Json
    status: str = "running"
    """In Together's words."""

    model: str = ""
    """The model that it made, "" before."""

    price: float | None = None
    """Dollars, None if they are not known."""

    def finish(self, model: str, *, dollars: float | None = 0.42):
        self.status, self.model, self.price = "completed", model, dollars

    def fail(self):
        self.status = "error"

    @property
    def together(self) -> Json:
        at = "2026-01-05T10:00:00Z"
        document = {
            "id": self.id, "object": "fine-tune", "status": self.status, "user_id": "me", "created_at": at,
            "updated_at": at, "training_file": self.parameters["training_file"], "model": self.parameters.get("model"),
        }  # fmt: skip
        document |= {"model_output_name": self.model} if self.model else {}
        return document | ({"total_price": round(self.price * 1e9)} if self.price is not None else {})

    @property
    def openai(self) -> Json:
        status = {"completed": "succeeded", "error": "failed"}.get(self.status, self.status)
        return {"id": self.id, "object": "fine_tuning.job", "created_at": 0, "status": status, "model": "base",
                "fine_tuned_model": self.model or None, "training_file": self.parameters["training_file"],
                "hyperparameters": {}, "organization_id": "me", "result_files": [], "seed": 1}  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    owner: TrainingServer
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._serve()

    def do_POST(self):
        self._serve()

    def do_PUT(self):
        self._serve()

    def _serve(self):
        server, path = self.owner, urlsplit(self.path).path
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        for begins, statuses in server.faults.items():
            if f"{self.command} {path}".startswith(begins) and statuses:
                self._say(statuses.pop(0), {"error": {"message": "not now", "type": "fault"}})
                return
        if self.command == "PUT":
            server.find_file(path.rpartition("/")[2]).content = body
            self._say(200, {})
            return
        server.keys.add(self.headers.get("Authorization", "").removeprefix("Bearer "))
        match self.command, [part for part in path.split("/") if part][1:]:
            case "POST", ["files"]:
                self._upload(body)
            case "POST", ["files", file_id, "preprocess"]:
                self._say(200, _describe_file(server.find_file(file_id)))
            case "GET", ["files"]:
                self._say(
                    200, {"object": "list", "data": [_describe_file(file) for file in server.files], "has_more": False}
                )
            case "GET", ["fine-tunes", "models", "limits"]:
                self._say(200, json.loads(LIMITS))
            case "POST", ["fine-tunes", "estimate-price"]:
                self._say(200, {"estimation_available": False})
            case "POST", ["fine-tunes" | "fine_tuning", *_] if path.endswith("/cancel"):
                job = server.find_job(path.split("/")[-2])
                job.status = "cancelled"
                self._say(200, job.openai if "fine_tuning" in path else job.together)
            case "POST", ["fine-tunes" | "fine_tuning" as kind, *_]:
                server.jobs.append(SentJob(f"ft-{len(server.jobs) + 1}", json.loads(body)))
                job = server.jobs[-1]
                self._say(200, job.openai if kind == "fine_tuning" else job.together)
            case "GET", ["fine-tunes"]:
                self._say(200, {"data": [sent.together for sent in server.jobs]})
            case "GET", ["fine-tunes", job_id]:
                self._say(200, server.find_job(job_id).together)
            case "GET", ["fine_tuning", "jobs"]:
                self._say(200, {"object": "list", "data": [sent.openai for sent in server.jobs], "has_more": False})
            case "GET", ["fine_tuning", "jobs", job_id]:
                self._say(200, server.find_job(job_id).openai)
            case _:
                self._say(404, {"error": {"message": f"no {self.command} {path}"}})

    def _upload(self, body: bytes):
        """Together sends a form of fields and then puts the file elsewhere; OpenAI sends the file in the form."""
        kind = self.headers["Content-Type"]
        form = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(
            f"Content-Type: {kind}\r\n\r\n".encode() + body
        )
        fields = {}
        for part in form.iter_parts():
            content = part.get_payload(decode=True)
            assert isinstance(content, bytes)
            if name := part.get_filename():
                sent = self.owner.add_file(name)
                sent.content = content
                self._say(200, _describe_file(sent))
                return
            fields[part.get_param("name", header="content-disposition")] = content.decode()
        sent = self.owner.add_file(fields["file_name"])
        to = {"Location": f"{self.owner.url}/put/{sent.id}", "X-Together-File-Id": sent.id}
        self._say(302, {}, to)

    def _say(self, status: int, document: Json, headers: dict[str, str] | None = None):
        send_reply(self, json.dumps(document).encode(), {"Content-Type": "application/json", **(headers or {})}, status)


@dataclass
class TrainingServer(LoopbackServer):
    """The files, jobs, faults and keys of a provider that listens from `with` on."""

    files: list[SentFile] = field(default_factory=list)
    jobs: list[SentJob] = field(default_factory=list)
    faults: dict[str, list[int]] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)

    Handler = _Handler

    def find_file(self, file_id: str) -> SentFile:
        return next(sent for sent in self.files if sent.id == file_id)

    def find_job(self, job_id: str) -> SentJob:
        return next(sent for sent in self.jobs if sent.id == job_id)

    def add_file(self, name: str) -> SentFile:
        self.files.append(SentFile(f"file-{len(self.files) + 1}", name))
        return self.files[-1]


def _describe_file(sent: SentFile) -> Json:
    return {"id": sent.id, "object": "file", "bytes": len(sent.content), "created_at": 0, "filename": sent.name,
            "purpose": "fine-tune", "FileType": "jsonl", "file_type": "jsonl", "status": "processed"}  # fmt: skip
