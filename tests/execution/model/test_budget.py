"""What may be asked for and what it counts: never more than is left, never more than can have been (SPEC 3.4, 3.8)."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from engine.execution.model_calls import CallUsage
from engine.execution.runners.model import budget
from engine.execution.runners.model.budget import (
    MAX_OUTPUT_TOKENS,
    MIN_OUTPUT_TOKENS,
    PROVIDER_OVERHEAD,
    Allowance,
    Price,
    PromptSize,
    RequestBudget,
)

tokens = st.integers(0, 200_000)
sizes = st.builds(PromptSize, tokens, tokens)
prices = st.builds(
    Price, st.integers(0, 80_000_000), st.integers(0, 400_000_000), st.booleans(), st.sampled_from([0, 50_000])
)
reported = st.none() | st.integers(-10, 10**9)


@given(sizes, prices, st.builds(Allowance, st.none() | tokens, st.integers(0, 5_000_000)))
def test_what_is_allowed_is_never_more_than_is_left(prompt: PromptSize, price: Price, left: Allowance) -> None:
    limit = budget.max_output_tokens(prompt, price=price, allowance=left, window=None)
    assert limit <= MAX_OUTPUT_TOKENS
    if limit >= MIN_OUTPUT_TOKENS:
        assert RequestBudget(prompt, limit, price).max_cost <= left.cost or not price.output
        assert left.tokens is None or prompt.expected + limit <= left.tokens


@given(
    reported,
    reported,
    st.none() | st.integers(0, 10**9),
    sizes,
    st.integers(MIN_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS),
    st.integers(0, 10**6),
    prices,
)
def test_no_provider_claims_more_than_was_reserved(
    read: int | None, written: int | None, cost: int | None, prompt: PromptSize, limit: int, received: int, price: Price
) -> None:
    allowed = RequestBudget(prompt, limit, price)
    usage = allowed.usage_of_answer({"input": read, "output": written, "cost": cost}, received)
    assert 0 <= usage.input_tokens <= prompt.counted + 2 * prompt.estimated + PROVIDER_OVERHEAD
    assert 0 <= usage.output_tokens <= limit
    assert usage.is_reported or usage.cost == price.cost_of(usage.input_tokens, usage.output_tokens)
    lost = allowed.usage_of_cancelled(received)
    assert all(0 <= spent.cost <= allowed.max_cost for spent in (usage, lost))


def test_the_price_is_the_list_s_else_an_estimate_that_says_so() -> None:
    assert budget.price_of({"input": 3, "output": 4}, keyless=True, estimate=50_000) == Price(3, 4)
    unlisted = budget.price_of(None, keyless=False, estimate=50_000)
    assert (unlisted.is_known, unlisted.min_cost, unlisted.cost_of(1_000_000, 0)) == (False, 50_000, 3_000_000)
    assert budget.price_of(None, keyless=True, estimate=50_000) == Price(0, 0, is_known=False)  # nobody is paid


@given(st.text(max_size=2_000))
def test_an_estimate_is_at_least_half_a_token_a_character(text: str) -> None:
    assert 2 * budget.estimate_tokens(text) >= len(text)


def test_a_seeded_session_of_many_requests_stays_within_its_means() -> None:
    """Requests of a session, each used up as far as it may be: the sum stays below the limit of money and tokens."""
    rng = random.Random(7)
    for _ in range(200):
        price = Price(rng.randrange(5_000_000), rng.randrange(1, 30_000_000))
        left, size = Allowance(50_000, 1_000_000), PromptSize(estimated=rng.randrange(100, 5_000))
        while (limit := budget.max_output_tokens(size, price=price, allowance=left, window=200_000)) >= (
            MIN_OUTPUT_TOKENS
        ):
            assert left.tokens is not None
            left = Allowance(
                left.tokens - size.expected - limit, left.cost - RequestBudget(size, limit, price).max_cost
            )
            assert left.cost >= 0
            assert left.tokens >= 0
            size = PromptSize(counted=size.expected + limit)


def test_what_the_provider_reports_counts_and_what_was_cut_short_is_estimated() -> None:
    allowed = RequestBudget(PromptSize(estimated=150), 1_000, Price(250_000, 2_000_000))
    reported = allowed.usage_of_answer({"input": 100, "output": 20, "cost": 65}, received=80)
    assert reported == CallUsage(100, 20, 65)
    assert [budget.estimate_tokens(text) for text in ("", "abc", "日本語")] == [0, 2, 9]
    price = Price(1_000_000, 1_000_000)
    cut_short = RequestBudget(PromptSize(40, 60), 50, price).usage_of_cancelled(1_000_000)
    assert cut_short == CallUsage(100, 50, 150, is_reported=False)
