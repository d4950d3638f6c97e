"""What models cost, by the price list that comes with the model clients."""

from __future__ import annotations

from engine.execution.routing import ModelRouter
from engine.execution.runners.model.wire import Model
from engine.model import Refusal

PROMPT_SHARE = 4
"""Agents send about four tokens for each that they get."""


def price(router: ModelRouter, model: str) -> int | None:
    """Micro-dollars for a million tokens of a model `PROVIDER:MODEL`, prompt and answer as agents use them; 0 where
    nobody sends a bill, None where nobody knows. Imports the price list, which takes half a second the first time."""
    try:
        choice = router.named(model, "looking up its price")
    except Refusal:
        return None
    if choice.keyless:
        return 0
    from engine.execution.runners.model.hosting_prices import price_of

    told = price_of(Model(choice.provider, choice.model, choice.kind, choice.base_url))
    return None if told is None else (PROMPT_SHARE * told["input"] + told["output"]) // (PROMPT_SHARE + 1)
