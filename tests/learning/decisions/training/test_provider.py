"""Both providers' own libraries, each call in a child process, against a server that speaks their protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.learning.decisions.training_provider import COMMAND, Account, Provider, TrainingError
from engine.model import Refusal
from tests.support.training_server import TrainingServer

KEY = "sk-" + "k" * 30


@pytest.fixture
def server() -> Iterator[TrainingServer]:
    with TrainingServer() as server:
        yield server


@pytest.fixture
def opened() -> Iterator[Callable[..., Provider]]:
    """Opens providers, and closes them."""
    found: list[Provider] = []

    def opens(api: str, url: str, *command: str) -> Provider:
        found.append(Provider(Account(api, url, KEY), command or COMMAND))
        return found[-1]

    yield opens
    for one in found:
        one.close()


Opens = Callable[..., Provider]


@pytest.mark.long
@pytest.mark.parametrize("api", ["together", "openai"])
def test_from_a_file_to_a_model(server: TrainingServer, tmp_path: Path, opened: Opens, api: str) -> None:
    provider = opened(api, f"{server.url}/v1")
    file = tmp_path / "train_1.jsonl"
    file.write_text('{"a": 1}\n{"a": 2}\n')
    assert provider.find_file(file.name) == ""
    file_id = provider.upload(file)
    assert server.file(file_id).lines == [{"a": 1}, {"a": 2}]
    assert provider.find_file(file.name) == file_id
    assert provider.find_job(file_id) is None
    job = provider.start(file_id, model="base", checkpoint="", method="dpo", suffix="train_1")
    assert (job.state, job.model) == ("running", "")
    assert provider.find_job(file_id) == job
    assert "dpo" in str(server.jobs[0].asked)
    server.jobs[0].finish("me/twin-1")
    done = provider.job(job.id)
    assert (done.state, done.model) == ("done", "me/twin-1")
    assert done.dollars == (0.42 if api == "together" else None)
    assert server.keys == {KEY}


@pytest.mark.long
def test_a_job_continues_another_one_and_faults_pass_or_stay(server: TrainingServer, opened: Opens) -> None:
    provider = opened("together", server.url)
    provider.start("file-1", model="base", checkpoint="ft-old", method="sft", suffix="x")
    assert server.jobs[0].asked["from_checkpoint"] == "ft-old"
    assert server.jobs[0].asked.get("model") is None
    provider.cancel("ft-1")
    assert provider.job("ft-1").state == "cancelled"
    server.faults["GET /v1/files"] = [503, 401]
    with pytest.raises(TrainingError) as transient:
        provider.find_file("x")
    assert transient.value.transient
    with pytest.raises(TrainingError, match="not now") as lasting:
        provider.find_file("x")
    assert not lasting.value.transient


def test_a_process_that_does_not_answer(opened: Opens) -> None:
    with pytest.raises(TrainingError, match="without an answer") as fault:
        opened("openai", "http://127.0.0.1:9/v1", "/bin/true").job("x")
    assert fault.value.transient
    reply = '{"error": "together is not installed", "status": 0, "missing": true}'
    with pytest.raises(Refusal, match="`train`, which is not installed") as refused:
        opened("together", "http://127.0.0.1:9", "/bin/sh", "-c", f"read asked; echo '{reply}'").job("x")
    assert refused.value.fix.endswith("'clawpy-console[train]'")
    assert KEY not in repr(Account("openai", "x", KEY))
