"""Looks up prices of models, in the settings and in genai-prices.

The model host and the model router use it. The list takes half a second to load.
"""

from __future__ import annotations

from decimal import ROUND_UP, Decimal
from typing import TYPE_CHECKING, NamedTuple

from genai_prices import Usage, calc_price

from engine.execution.runners.model import TOKENS_PER_PRICE, Model
from engine.model import MICRO

if TYPE_CHECKING:
    from pydantic_ai.usage import RequestUsage

PROMPT_TOKENS_PER_ANSWER_TOKEN = 4
"""Agents send about four tokens for each that they receive."""

_SAMPLE_SIZES = (10_000, 900_000)
"""Tokens of a prompt below and above the length from which prices for long prompts apply."""


class HighestPrice(NamedTuple):
    """The highest prices of a million tokens, in micro-dollars."""

    input: int
    output: int


def find_highest_price(model: Model) -> HighestPrice | None:
    """The highest price of a model, which depends on the length of the prompt; None if it is not known."""
    prices = []
    for size in _SAMPLE_SIZES:
        costs = _find_costs(Usage(input_tokens=size, output_tokens=size), model)
        if costs is None:
            return None
        prices.append([_convert_to_microusd(cost * TOKENS_PER_PRICE / size) for cost in costs])
    return HighestPrice(*map(max, *prices))


def compute_blended_price(model: Model) -> int | None:
    """Micro-dollars for a million tokens of a model, prompt and answer together; None if its price is not known."""
    price = find_highest_price(model)
    if price is None:
        return None
    ratio = PROMPT_TOKENS_PER_ANSWER_TOKEN
    return (ratio * price.input + price.output) // (ratio + 1)


def compute_cost(usage: RequestUsage, model: Model) -> int | None:
    """The cost of a request in micro-dollars, cached parts at their own price; None when unknown."""
    costs = _find_costs(usage, model)
    return None if costs is None else _convert_to_microusd(sum(costs, Decimal(0)))


def _find_costs(usage: Usage | RequestUsage, model: Model) -> tuple[Decimal, Decimal] | None:
    """The dollars that the prompt and the answer of a request cost; None if the model is not free, the settings have no
    price of it, and it is not in the list."""
    if model.is_free:
        return Decimal(0), Decimal(0)
    if model.input_price is not None and model.output_price is not None:
        dollars_per_token = Decimal(1) / MICRO / TOKENS_PER_PRICE
        input_cost = Decimal(usage.input_tokens or 0) * model.input_price * dollars_per_token
        return input_cost, Decimal(usage.output_tokens or 0) * model.output_price * dollars_per_token
    try:
        price = calc_price(usage, model.name, provider_api_url=model.base_url)
    except LookupError:
        # The address is unknown. It may be that of a gateway, in front of a provider that is known by name.
        try:
            price = calc_price(usage, model.name, provider_id=model.provider)
        except LookupError:
            return None
    return price.input_price, price.output_price


def _convert_to_microusd(dollars: Decimal) -> int:
    return int((dollars * MICRO).to_integral_value(ROUND_UP))
