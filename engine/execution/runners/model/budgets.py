"""What a request to a model may cost before it is made, and what it did cost (SPEC 3.4). Pure.

The provider says only afterwards how many tokens a prompt had. Until then the number is estimated, on the high side:
what the provider counted in the request before, and an estimate of what was added since. Two ASCII characters, or one
byte of any other character, count as a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.execution.model_calls import NOTHING_USED, CallUsage
from engine.execution.runners.model.failures import may_be_billed
from engine.execution.runners.model.host_protocol import Failure
from engine.frozen import frozen

MAX_OUTPUT_TOKENS = 16_384
"""Tokens of one answer, thinking included; no request asks for more."""

MIN_OUTPUT_TOKENS = 256
"""Tokens an answer must be allowed to have; with fewer the request is not worth making."""

MESSAGE_OVERHEAD = 16
"""Tokens that stand around each message and each tool."""

PROVIDER_OVERHEAD = 1_000
"""Tokens that a provider may add to a prompt of its own."""

UNLISTED_PRICE = (3_000_000, 15_000_000)
"""The assumed price of a million tokens of prompt and of answer, in micro-dollars, for a model without a known price:
as high as in the dearer half of those with one."""

_MILLION = 1_000_000


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
    """Micro-dollars that the session counts at least: some price is better than none (SPEC 3.4)."""

    def cost_of(self, input_tokens: int, output_tokens: int) -> int:
        """The highest cost of so many tokens, in micro-dollars, rounded up."""
        return -(-(input_tokens * self.input + output_tokens * self.output) // _MILLION)


def price_of(listed: Mapping[str, int] | None, *, keyless: bool, estimate: int) -> Price:
    """The price of a model as it is `listed`. A provider that takes no key costs nothing. Any other model without a
    listed price costs `UNLISTED_PRICE`, and the session counts at least `estimate` micro-dollars (`costPerTrigger`)."""
    if listed is not None:
        return Price(listed["input"], listed["output"])
    if keyless:
        return Price(0, 0, is_known=False)
    return Price(*UNLISTED_PRICE, is_known=False, min_cost=estimate)


def estimate_tokens(text: str) -> int:
    """Tokens of a text, on the high side."""
    ascii_characters = sum(map(str.isascii, text))
    other_bytes = len(text.encode(errors="replace")) - ascii_characters
    return -(-ascii_characters // 2) + other_bytes


@frozen
class Allowance:
    """The tokens and the money a session may still use."""

    tokens: int | None
    """None for any number."""
    cost: int
    """Micro-dollars."""


@frozen
class PromptSize:
    """Tokens of a prompt."""

    counted: int = 0
    """Those that the provider counted with the answer before."""
    estimated: int = 0
    """Those that are estimated."""

    @property
    def expected(self) -> int:
        """All its tokens, on the high side."""
        return self.counted + self.estimated

    @property
    def max_tokens(self) -> int:
        """The most tokens that a provider is believed to have read. An estimate counts half a token for a character,
        but a character can be a whole token. `PROVIDER_OVERHEAD` is for what a provider adds itself."""
        return self.counted + 2 * self.estimated + PROVIDER_OVERHEAD

    def plus(self, estimated: int) -> PromptSize:
        """The size of a prompt with `estimated` more tokens."""
        return PromptSize(self.counted, self.estimated + estimated)


def max_output_tokens(prompt: PromptSize, *, price: Price, allowance: Allowance, window: int | None) -> int:
    """The number of tokens the next answer may have; 0 or less when there is no room for one."""
    limit = MAX_OUTPUT_TOKENS
    if allowance.tokens is not None:
        limit = min(limit, allowance.tokens - prompt.expected)
    if window is not None:
        limit = min(limit, window - prompt.expected)
    if price.output:
        limit = min(limit, (allowance.cost * _MILLION - prompt.max_tokens * price.input) // price.output)
    return limit


@frozen
class RequestBudget:
    """Limits one request, and counts its usage."""

    prompt: PromptSize
    max_tokens: int
    """Tokens of its answer."""
    price: Price

    @property
    def max_cost(self) -> int:
        """Micro-dollars to reserve before the request, so that what is settled after it passes no cap."""
        return self.price.cost_of(self.prompt.max_tokens, self.max_tokens)

    def usage_of_answer(self, answer: Mapping[str, Any], received: int) -> CallUsage:
        """The usage of a finished request, as the provider reported it in `answer`. Without a report it is estimated by
        the `received` characters. It is never more than `max_cost`.

        A provider is not believed if it claims more tokens than the prompt can have, or a longer answer than was
        allowed.
        """
        input_tokens, output_tokens, cost = answer["input"], answer["output"], answer["cost"]
        if input_tokens is None or output_tokens is None or input_tokens < 0 or output_tokens < 0:
            return self._estimated_usage(max(1, received))
        believed = min(input_tokens, self.prompt.max_tokens), min(output_tokens, self.max_tokens)
        is_reported = believed == (input_tokens, output_tokens)
        if is_reported and cost is not None and self.price.is_known:
            # Parts of a prompt that a provider keeps for the next may cost more than the usual.
            return CallUsage(*believed, min(cost, self.max_cost))
        return CallUsage(*believed, self.price.cost_of(*believed), is_reported)

    def usage_of_cancelled(self, received: int) -> CallUsage:
        """The usage of a request that was cancelled: providers charge what they read and wrote until then."""
        return self._estimated_usage(-(-received // 2))

    def usage_of_failed(self, failure: Failure) -> CallUsage:
        """The usage of a request that failed."""
        return self.usage_of_cancelled(failure.received) if may_be_billed(failure) else NOTHING_USED

    def _estimated_usage(self, output_tokens: int) -> CallUsage:
        input_tokens, output_tokens = self.prompt.expected, min(self.max_tokens, output_tokens)
        return CallUsage(
            input_tokens, output_tokens, self.price.cost_of(input_tokens, output_tokens), is_reported=False
        )
