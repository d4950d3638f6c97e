"""The client of a provider: both providers' own libraries, in a child process, against a server with their protocols
(SPEC 8.4)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.installed import make_extras_command
from engine.learning.decisions.training_provider import COMMAND, Account, Provider, TrainingError
from engine.model import Refusal
from tests.support.training_server import TrainingServer

KEY = "sk-" + "k" * 30


@pytest.fixture
def server() -> Iterator[TrainingServer]:
    with TrainingServer() as server:
        yield server


@pytest.fixture
def open_provider() -> Iterator[Callable[..., Provider]]:
    """Opens providers, and closes them at the end."""
    providers = []

    def open_new(api: str, url: str, *command: str) -> Provider:
        providers.append(Provider(Account(api, url, KEY), command or COMMAND))
        return providers[-1]

    yield open_new
    for provider in providers:
        provider.close()


Opens = Callable[..., Provider]


@pytest.mark.long
@pytest.mark.parametrize("api", ["together", "openai"])
def test_a_file_is_uploaded_once_and_its_job_ends_with_a_model(
    server: TrainingServer, tmp_path: Path, open_provider: Opens, api: str
):
    provider = open_provider(api, f"{server.url}/v1")
    file = tmp_path / "train_1.jsonl"
    file.write_text('{"a": 1}\n{"a": 2}\n')
    assert provider.find_file(file.name) == ""
    file_id = provider.upload(file)
    assert server.find_file(file_id).lines == [{"a": 1}, {"a": 2}]
    assert provider.find_file(file.name) == file_id
    assert provider.find_job(file_id) is None
    job = provider.start(file_id, model="base", checkpoint="", method="dpo", suffix="train_1")
    assert (job.state, job.model) == ("running", "")
    assert provider.find_job(file_id) == job
    assert "dpo" in str(server.jobs[0].parameters)
    server.jobs[0].finish("me/twin-1")
    done = provider.read_job(job.id)
    assert (done.state, done.model) == ("done", "me/twin-1")
    assert done.dollars == (0.42 if api == "together" else None)
    assert server.keys == {KEY}


@pytest.mark.long
def test_a_job_continues_another_one_and_errors_are_transient_or_lasting(server: TrainingServer, open_provider: Opens):
    provider = open_provider("together", server.url)
    provider.start("file-1", model="base", checkpoint="ft-old", method="sft", suffix="x")
    assert server.jobs[0].parameters["from_checkpoint"] == "ft-old"
    assert server.jobs[0].parameters.get("model") is None
    provider.cancel("ft-1")
    assert provider.read_job("ft-1").state == "cancelled"
    server.faults["GET /v1/files"] = [503, 401]
    with pytest.raises(TrainingError) as transient:
        provider.find_file("x")
    assert transient.value.transient
    with pytest.raises(TrainingError, match="not now") as lasting:
        provider.find_file("x")
    assert not lasting.value.transient


def test_a_child_process_that_ends_or_lacks_a_library_is_reported_without_the_key(open_provider: Opens):
    with pytest.raises(TrainingError, match="without an answer") as failed:
        open_provider("openai", "http://127.0.0.1:9/v1", "/bin/true").read_job("x")
    assert failed.value.transient
    reply = '{"error": "together is not installed", "status": 0, "missing": true}'
    with pytest.raises(Refusal, match="`train`, which is not installed") as refused:
        open_provider("together", "http://127.0.0.1:9", "/bin/sh", "-c", f"read asked; echo '{reply}'").read_job("x")
    assert refused.value.fix == make_extras_command("train")
    assert KEY not in repr(Account("openai", "x", KEY))
