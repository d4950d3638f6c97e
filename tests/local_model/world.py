"""An engine whose provider is the real model of these tests."""

from tests.support.model_world import ModelWorld

MODEL = "smollm2"
"""The name of the model in settings."""

SESSION_TIMEOUT_S = 300.0
"""Seconds of real time that a session may take on a busy machine."""


def use_local_model(world: ModelWorld) -> ModelWorld:
    """The world with a provider that takes no key, as a model on one's own machine is configured."""
    world.configure(model=MODEL, keyless=True)
    return world
