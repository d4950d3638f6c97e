"""Looks up prices of models in genai-prices.

The model host uses it, and the code that compares the prices of models. The list takes half a second to load.
"""

from __future__ import annotations

from decimal import ROUND_UP, Decimal
from typing import TYPE_CHECKING

from genai_prices import Usage, calc_price

from engine.execution.runners.model.host_protocol import Model

if TYPE_CHECKING:
    from pydantic_ai.usage import RequestUsage

_MILLION = 1_000_000
_SAMPLES = (10_000, 900_000)  # below and above where prices for long prompts begin


def listed_price(model: Model) -> dict[str, int] | None:
    """The highest prices of a million tokens of prompt and of answer, in micro-dollars; None if they are not known."""
    input_price = output_price = Decimal(0)
    for size in _SAMPLES:
        prices = _lookup_price(Usage(input_tokens=size, output_tokens=size), model)
        if prices is None:
            return None
        input_price, output_price = (
            max(input_price, prices[0] * _MILLION / size),
            max(output_price, prices[1] * _MILLION / size),
        )
    return {"input": _to_microusd(input_price), "output": _to_microusd(output_price)}


def cost_of(usage: RequestUsage, model: Model) -> int | None:
    """The cost of a request in micro-dollars, cached parts at their own price; None when unknown."""
    prices = _lookup_price(usage, model)
    return None if prices is None else _to_microusd(prices[0] + prices[1])


def _lookup_price(usage: Usage | RequestUsage, model: Model) -> tuple[Decimal, Decimal] | None:
    try:
        price = calc_price(usage, model.name, provider_api_url=model.base_url)
    except LookupError:
        # The address is unknown. It may be that of a gateway, in front of a provider that is known by name.
        try:
            price = calc_price(usage, model.name, provider_id=model.provider)
        except LookupError:
            return None
    return price.input_price, price.output_price


def _to_microusd(dollars: Decimal) -> int:
    return int((dollars * _MILLION).to_integral_value(ROUND_UP))
