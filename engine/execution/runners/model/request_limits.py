"""Decides what a request to a model may cost, and whether it is sent again after a failure (SPEC 3.4, 3.8); pure.

The provider says only afterwards how many tokens a prompt had. Until then the number is estimated, rather too high: it
is the number that the provider counted in the request before, plus an estimate for the texts that were added since. Two
ASCII characters, or one byte of any other character, count as a token. `failures.toml` has a table for each kind of
failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from engine.execution.model_calls import NOTHING_USED, CallUsage
from engine.execution.runners.model import TOKENS_PER_PRICE, Failure, Model
from engine.files import read_table
from engine.frozen import frozen

MAX_OUTPUT_TOKENS = 16_384
"""Maximum number of tokens of an answer, thinking included."""

MIN_OUTPUT_TOKENS = 256
"""No request is made if its answer may have fewer tokens."""

MESSAGE_OVERHEAD_TOKENS = 16
"""Tokens that a protocol adds to each message and each tool."""

PROVIDER_OVERHEAD_TOKENS = 1_000
"""Tokens that a provider may add to a prompt."""

UNLISTED_PRICE = (3_000_000, 15_000_000)
"""The assumed prices of a million tokens of prompt and of answer, in micro-dollars, for a model without a known price.
They are as high as those of the more expensive half of the known models."""

FIRST_DELAY_S = 1.0
"""Seconds before the first retry; twice as many before each further one."""

MAX_DELAY_S = 60.0
"""Maximum number of seconds before a retry."""

MAX_RETRY_AFTER_S = 120.0
"""Maximum number of seconds that a provider may ask to wait. If it asks for more, the request is not sent again."""


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
    max_tokens: int
    """Maximum number of tokens of the answer."""
    price: Price

    @property
    def max_cost(self) -> int:
        """The micro-dollars that are reserved before the request. The real cost is never higher, so no cap is
        exceeded."""
        return self.price.compute_cost(self.prompt.max_tokens, self.max_tokens)

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
        possible_output = ceil(min(output_tokens, self.max_tokens))
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
        """The usage of a request that failed. A provider may charge for what came, and for some failures in any
        case."""
        may_be_billed = failure.received > 0 or "billed" in _FAILURES[failure.kind]
        return self.compute_cancelled_usage(failure.received) if may_be_billed else NOTHING_USED

    def _estimate_usage(self, output_tokens: int) -> CallUsage:
        input_tokens, output_tokens = self.prompt.expected, min(self.max_tokens, output_tokens)
        return CallUsage(
            input_tokens, output_tokens, self.price.compute_cost(input_tokens, output_tokens), is_reported=False
        )


_FAILURES = read_table(__file__, "failures.toml")


def compute_retry_delay(failure: Failure, tried: int, chance: float) -> float | None:
    """The seconds to wait before a request that failed `tried` times (from 1) is sent again; None if it is not.

    `chance` in [0, 1) spreads the retries of many sessions: the delay is between half and all of its full length. It is
    never shorter than the provider asked for.
    """
    requested = failure.retry_after or 0.0
    if tried > _FAILURES[failure.kind].get("retries", 0) or requested > MAX_RETRY_AFTER_S:
        return None
    delay: float = min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** (tried - 1))
    return max(requested, delay * (0.5 + chance / 2))


def is_provider_failure(failure: Failure) -> bool:
    """Whether the provider or the network failed, so that the same request may succeed later."""
    return "of_work" not in _FAILURES[failure.kind]


def describe_failure(failure: Failure, model: Model) -> tuple[str, str]:
    """The problem and its fix, as texts for the operator."""
    status = f" ({failure.status})" if failure.status else ""
    detail = f": {failure.message.rstrip('.')}" if failure.message else ""
    row = _FAILURES[failure.kind]
    names = {"provider": model.provider, "model": model.name, "address": model.base_url}
    return row["problem"].format(**names) + status + detail, row["fix"].format(**names)
