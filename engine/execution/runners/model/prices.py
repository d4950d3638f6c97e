"""Looks up prices of models, in the settings and in genai-prices.

The model host and the model router use it. The list takes half a second to load.
"""

from __future__ import annotations

from decimal import ROUND_UP, Decimal
from typing import TYPE_CHECKING

from genai_prices import Usage, calc_price

from engine.execution.runners.model.host_protocol import Model

if TYPE_CHECKING:
    from pydantic_ai.usage import RequestUsage

_MILLION = 1_000_000
PROMPT_TOKENS_PER_ANSWER_TOKEN = 4
"""Agents send about four tokens for each that they receive."""

_SAMPLE_SIZES = (10_000, 900_000)
"""Tokens of a prompt below and above the length from which prices for long prompts apply."""


def find_listed_price(model: Model) -> dict[str, int] | None:
    """The highest prices of a million tokens of prompt and of answer, in micro-dollars; None if they are not known."""
    highest_input = highest_output = Decimal(0)
    for size in _SAMPLE_SIZES:
        costs = _find_costs(Usage(input_tokens=size, output_tokens=size), model)
        if costs is None:
            return None
        input_cost, output_cost = costs
        highest_input = max(highest_input, input_cost * _MILLION / size)
        highest_output = max(highest_output, output_cost * _MILLION / size)
    return {"input": _convert_to_microusd(highest_input), "output": _convert_to_microusd(highest_output)}


def compute_usual_price(model: Model) -> int | None:
    """Micro-dollars for a million tokens of a model at the usual ratio of prompt to answer; None if they are not
    known."""
    price = find_listed_price(model)
    if price is None:
        return None
    ratio = PROMPT_TOKENS_PER_ANSWER_TOKEN
    return (ratio * price["input"] + price["output"]) // (ratio + 1)


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
        input_cost = Decimal(usage.input_tokens or 0) * model.input_price / _MILLION**2
        return input_cost, Decimal(usage.output_tokens or 0) * model.output_price / _MILLION**2
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
    return int((dollars * _MILLION).to_integral_value(ROUND_UP))
