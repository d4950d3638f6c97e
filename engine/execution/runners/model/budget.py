"""What a request may cost before it is made, and what it did cost after (SPEC 3.4, 3.8). Pure.

The provider says only afterwards how many tokens a prompt was. Until then it is estimated, on the high side: what it
said of the request before, and one token for every two ASCII characters or one byte of any other that came since.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.frozen import frozen

MAX_OUTPUT_TOKENS = 16_384
"""Tokens of one answer, thinking included; no request asks for more."""

MIN_OUTPUT_TOKENS = 256
"""A request that may not answer with so many tokens is not worth making."""

MESSAGE_OVERHEAD = 16
"""Tokens that stand around each message and each tool."""

PROVIDER_OVERHEAD = 1_000
"""Tokens that a provider may add to a prompt of its own."""

UNLISTED_PRICE = (3_000_000, 15_000_000)
"""What a million tokens of prompt and answer of a model cost whose price nobody knows, in micro-dollars: as the dearer
half of those whose price is known."""

_MILLION = 1_000_000


@frozen
class Price:
    """Micro-dollars for a million tokens of prompt and of answer, at most. `known` is False for an estimate; `least`
    is what the session then counts at least: some price is better than none (SPEC 3.4)."""

    input: int
    output: int
    known: bool = True
    least: int = 0

    def of(self, input_tokens: int, output_tokens: int) -> int:
        """What so many tokens cost at most, in micro-dollars, rounded up."""
        return -(-(input_tokens * self.input + output_tokens * self.output) // _MILLION)


def price_of(listed: Mapping[str, int] | None, *, keyless: bool, estimate: int) -> Price:
    """The price as the price list told it. Where it did not, the session counts at least `estimate` micro-dollars
    (`costPerTrigger`), and each token as `UNLISTED_PRICE`; nothing where the provider takes no key."""
    if listed is not None:
        return Price(listed["input"], listed["output"])
    if keyless:
        return Price(0, 0, known=False)
    return Price(*UNLISTED_PRICE, known=False, least=estimate)


def estimate_tokens(text: str) -> int:
    """Tokens of a text, on the high side."""
    ascii_only = sum(map(str.isascii, text))
    rest = len(text) - ascii_only
    return -(-ascii_only // 2) + (0 if not rest else len(text.encode(errors="replace")) - ascii_only)


@frozen
class Allowance:
    """What a session may still use: tokens (None for any number), micro-dollars."""

    tokens: int | None
    cost: int


@frozen
class PromptSize:
    """Tokens of a prompt: those that the provider counted with the answer before, and those that are estimated."""

    counted: int = 0
    estimated: int = 0

    @property
    def expected(self) -> int:
        """What it is thought to be, on the high side."""
        return self.counted + self.estimated

    @property
    def believed(self) -> int:
        """More than this no provider is believed. An estimate counts half a token a character, and twice as many are
        the most there can be; `PROVIDER_OVERHEAD` is for what a provider adds of its own."""
        return self.counted + 2 * self.estimated + PROVIDER_OVERHEAD

    def more(self, estimated: int) -> PromptSize:
        """With so many estimated ones more."""
        return PromptSize(self.counted, self.estimated + estimated)


def max_cost(prompt: PromptSize, limit: int, price: Price) -> int:
    """What a request with an answer of at most `most` tokens can be counted as, in micro-dollars: what is to be
    reserved before it, so that what is settled after it passes no cap."""
    return price.of(prompt.believed, limit)


def max_output_tokens(prompt: PromptSize, *, price: Price, allowance: Allowance, window: int | None) -> int:
    """How many tokens the next answer may have; 0 or less when there is no room for one."""
    most = MAX_OUTPUT_TOKENS
    if allowance.tokens is not None:
        most = min(most, allowance.tokens - prompt.expected)
    if window is not None:
        most = min(most, window - prompt.expected)
    if price.output:
        most = min(most, (allowance.cost * _MILLION - prompt.believed * price.input) // price.output)
    return most


@frozen
class Usage:
    """What a request used. `told` is False when the provider did not say, or said what cannot be."""

    input_tokens: int
    output_tokens: int
    cost: int
    is_reported: bool = True


def count_usage(
    *,
    input_tokens: int | None,
    output_tokens: int | None,
    cost: int | None,
    prompt: PromptSize,
    limit: int,
    received: int,
    price: Price,
) -> Usage:
    """What a finished request used, as the provider told it, or estimated where it did not; never more than
    `max_cost`.

    A provider that claims more than `prompt` can be, or more than `most`, the limit of the answer, is not believed
    beyond that. `received` characters came.
    """
    if input_tokens is None or output_tokens is None or input_tokens < 0 or output_tokens < 0:
        output_tokens = min(limit, max(1, received))
        return Usage(prompt.expected, output_tokens, price.of(prompt.expected, output_tokens), is_reported=False)
    believed = min(input_tokens, prompt.believed), min(output_tokens, limit)
    is_reported = believed == (input_tokens, output_tokens)
    if is_reported and cost is not None and price.known:
        # Parts of a prompt that a provider keeps for the next may cost more than the usual.
        return Usage(*believed, min(cost, max_cost(prompt, limit, price)))
    return Usage(*believed, price.of(*believed), is_reported)


def count_cancelled(*, prompt: PromptSize, limit: int, received: int, price: Price) -> Usage:
    """What a request that was broken off is counted as: providers charge what they read and wrote until then."""
    output_tokens = min(limit, -(-received // 2))
    return Usage(prompt.expected, output_tokens, price.of(prompt.expected, output_tokens), is_reported=False)
