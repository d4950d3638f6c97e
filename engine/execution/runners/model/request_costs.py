"""Computes what a request to a model may cost, and what it cost (SPEC 3.4).

Prices are those of the settings, or else those of genai-prices. This list takes half a second to load, so only the
functions that look up a price import it.

The provider says only afterwards how many tokens a prompt had. Until then the number is estimated, rather too high: it
is the number that the provider counted in the request before, plus an estimate for the texts that were added since. Two
ASCII characters, or one byte of any other character, count as a token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_UP, Decimal
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.execution.model_calls import NOTHING_USED, CallUsage
from engine.execution.runners.model import TOKENS_PER_PRICE, Failure, Model
from engine.frozen import frozen
from engine.wording import MICRO

if TYPE_CHECKING:
    from genai_prices import Usage
    from pydantic_ai.usage import RequestUsage

# -- prices

UNLISTED_PRICE = (3_000_000, 15_000_000)
"""The assumed prices of a million tokens of prompt and of answer, in micro-dollars, for a model without a known price.
They are as high as those of the more expensive half of the known models."""

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
    from genai_prices import Usage

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
    from genai_prices import calc_price

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


@frozen
class Price:
    """The highest price of a model's tokens."""

    input: int
    """Micro-dollars for a million tokens of prompt."""
    output: int
    """Micro-dollars for a million tokens of answer."""
    is_known: bool = True
    """False for an estimate."""
    min_cost: int = 0
    """The least number of micro-dollars that a session counts, if the price is not known (SPEC 3.4)."""

    def compute_cost(self, input_tokens: int, output_tokens: int) -> int:
        """The highest cost of these numbers of tokens, in micro-dollars, rounded up."""
        return -(-(input_tokens * self.input + output_tokens * self.output) // TOKENS_PER_PRICE)


def make_price(highest: Sequence[int] | None, *, estimate: int) -> Price:
    """The price of a model whose `highest` prices of input and output the host found. If it found none, the model costs
    `UNLISTED_PRICE`, and its session counts at least `estimate` micro-dollars (`costPerTrigger`)."""
    if highest is None:
        return Price(*UNLISTED_PRICE, is_known=False, min_cost=estimate)
    input_price, output_price = highest
    return Price(input_price, output_price)


# -- the size and the budget of a request

MAX_OUTPUT_TOKENS = 16_384
"""Maximum number of tokens of an answer, thinking included."""

MIN_OUTPUT_TOKENS = 256
"""No request is made if its answer may have fewer tokens."""

MESSAGE_OVERHEAD_TOKENS = 16
"""Tokens that a protocol adds to each message and each tool."""

PROVIDER_OVERHEAD_TOKENS = 1_000
"""Tokens that a provider may add to a prompt."""


def estimate_tokens(text: str) -> int:
    """An estimate of the tokens of a text, which is rather too high."""
    ascii_characters = sum(map(str.isascii, text))
    other_bytes = len(text.encode(errors="replace")) - ascii_characters
    return -(-ascii_characters // 2) + other_bytes


@frozen
class PromptSize:
    """The size of a prompt in tokens."""

    counted: int = 0
    """The tokens that the provider counted with the previous answer."""
    estimated: int = 0
    """The tokens that are estimated."""

    @property
    def expected(self) -> int:
        """All tokens of the prompt, rather too many."""
        return self.counted + self.estimated

    @property
    def max_tokens(self) -> int:
        """The highest number of tokens that is accepted from a provider. An estimate counts half a token for a
        character, but a character can be a whole token. The provider may add `PROVIDER_OVERHEAD_TOKENS`."""
        return self.counted + 2 * self.estimated + PROVIDER_OVERHEAD_TOKENS

    def plus(self, estimated: int) -> PromptSize:
        """The size of a prompt with `estimated` more tokens."""
        return PromptSize(self.counted, self.estimated + estimated)


def compute_max_output_tokens(
    prompt: PromptSize, *, price: Price, cost: int, tokens: int | None, window: int | None
) -> int:
    """The number of tokens that the next answer may have; 0 or less if there is no room for one. `cost` (micro-dollars)
    and `tokens` are what may still be used, and `window` is what the model reads; None for no limit."""
    limit = MAX_OUTPUT_TOKENS
    for total in (tokens, window):
        if total is not None:
            limit = min(limit, total - prompt.expected)
    if price.output:
        limit = min(limit, (cost * TOKENS_PER_PRICE - prompt.max_tokens * price.input) // price.output)
    return limit


@frozen
class RequestBudget:
    """The limits of one request. It also computes the usage of the request afterwards."""

    prompt: PromptSize
    max_output_tokens: int
    """Maximum number of tokens of the answer."""
    price: Price

    @property
    def max_cost(self) -> int:
        """The micro-dollars that are reserved before the request. The real cost is never higher, so no cap is
        exceeded."""
        return self.price.compute_cost(self.prompt.max_tokens, self.max_output_tokens)

    def compute_answer_usage(self, answer: Mapping[str, Any], received: int) -> CallUsage:
        """The usage of a finished request, as the provider reported it in `answer`. Without a report, it is estimated
        from the number of `received` characters. It never costs more than `max_cost`.

        If a provider reports more tokens than the prompt can have, or than the answer was allowed to have, the highest
        possible number is used instead. A part of a token counts as one.
        """
        input_tokens, output_tokens, cost = answer["input"], answer["output"], answer["cost"]
        if input_tokens is None or output_tokens is None or input_tokens < 0 or output_tokens < 0:
            return self._estimate_usage(max(1, received))
        possible_input = ceil(min(input_tokens, self.prompt.max_tokens))
        possible_output = ceil(min(output_tokens, self.max_output_tokens))
        is_reported = (possible_input, possible_output) == (input_tokens, output_tokens)
        if is_reported and cost is not None and self.price.is_known:
            # Parts of a prompt that a provider caches may cost more than others.
            return CallUsage(input_tokens, output_tokens, min(cost, self.max_cost))
        highest_cost = self.price.compute_cost(possible_input, possible_output)
        return CallUsage(possible_input, possible_output, highest_cost, is_reported)

    def compute_cancelled_usage(self, received: int) -> CallUsage:
        """The usage of a request that was cancelled. Providers charge for the tokens that they read and wrote until
        then."""
        return self._estimate_usage(-(-received // 2))

    def compute_failed_usage(self, failure: Failure) -> CallUsage:
        """The usage of a request that failed."""
        return self.compute_cancelled_usage(failure.received) if failure.may_be_billed else NOTHING_USED

    def _estimate_usage(self, output_tokens: int) -> CallUsage:
        input_tokens, output_tokens = self.prompt.expected, min(self.max_output_tokens, output_tokens)
        return CallUsage(
            input_tokens, output_tokens, self.price.compute_cost(input_tokens, output_tokens), is_reported=False
        )
