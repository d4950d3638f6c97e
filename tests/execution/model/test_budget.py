"""What may be asked for and what it counts: never more than is left, never more than can have been (SPEC 3.4, 3.8)."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from engine.execution.runners.model import budget
from engine.execution.runners.model.budget import (
    MAX_OUTPUT_TOKENS,
    MIN_OUTPUT_TOKENS,
    PROVIDER_OVERHEAD,
    Allowance,
    Price,
    PromptSize,
)

tokens = st.integers(0, 200_000)
sizes = st.builds(PromptSize, tokens, tokens)
prices = st.builds(
    Price, st.integers(0, 80_000_000), st.integers(0, 400_000_000), st.booleans(), st.sampled_from([0, 50_000])
)


@given(prompt=sizes, price=prices, left=st.builds(Allowance, st.none() | tokens, st.integers(0, 5_000_000)))
def test_what_is_allowed_is_never_more_than_is_left(prompt: PromptSize, price: Price, left: Allowance) -> None:
    most = budget.max_output_tokens(prompt, price=price, left=left, window=None)
    assert most <= MAX_OUTPUT_TOKENS
    if most >= MIN_OUTPUT_TOKENS:
        assert budget.max_cost(prompt, most, price) <= left.cost or not price.output
        assert left.tokens is None or prompt.expected + most <= left.tokens


@given(
    given=st.none() | st.integers(-10, 10**9),
    made=st.none() | st.integers(-10, 10**9),
    cost=st.none() | st.integers(0, 10**9),
    prompt=sizes,
    most=st.integers(MIN_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS),
    received=st.integers(0, 10**6),
    price=prices,
)
def test_no_provider_claims_more_than_was_reserved(
    given: int | None, made: int | None, cost: int | None, prompt: PromptSize, most: int, received: int, price: Price
) -> None:
    used = budget.count_usage(
        given=given, made=made, cost=cost, prompt=prompt, most=most, received=received, price=price
    )
    assert 0 <= used.given <= prompt.told + 2 * prompt.guessed + PROVIDER_OVERHEAD
    assert 0 <= used.made <= most
    if not used.told:
        assert used.cost == price.of(used.given, used.made)
    assert 0 <= used.cost <= budget.max_cost(prompt, most, price)
    lost = budget.count_cancelled(prompt=prompt, most=most, received=received, price=price)
    assert 0 <= lost.cost <= budget.max_cost(prompt, most, price)


def test_what_the_provider_says_counts() -> None:
    used = budget.count_usage(
        given=100,
        made=20,
        cost=65,
        prompt=PromptSize(guessed=150),
        most=1_000,
        received=80,
        price=Price(250_000, 2_000_000),
    )
    assert (used.given, used.made, used.cost, used.told) == (100, 20, 65, True)


def test_the_price_is_the_list_s_else_an_estimate_that_says_so() -> None:
    assert budget.price_of({"input": 3, "output": 4}, keyless=True, estimate=50_000) == Price(3, 4)
    unlisted = budget.price_of(None, keyless=False, estimate=50_000)
    assert (unlisted.known, unlisted.least, unlisted.of(1_000_000, 0)) == (False, 50_000, 3_000_000)
    assert budget.price_of(None, keyless=True, estimate=50_000) == Price(0, 0, known=False)  # nobody is paid


def test_tokens_are_estimated_on_the_high_side() -> None:
    assert budget.estimate_tokens("") == 0
    assert budget.estimate_tokens("abc") == 2
    assert budget.estimate_tokens("日本語") == 9
    assert budget.estimate_tokens("\ud800") > 0


@given(st.text(max_size=2_000))
def test_an_estimate_is_at_least_half_a_token_a_character(text: str) -> None:
    assert 2 * budget.estimate_tokens(text) >= len(text)


def test_cut_short_counts_what_came() -> None:
    lost = budget.count_cancelled(
        prompt=PromptSize(40, 60), most=50, received=1_000_000, price=Price(1_000_000, 1_000_000)
    )
    assert (lost.given, lost.made, lost.cost, lost.told) == (100, 50, 150, False)


def test_a_seeded_session_of_many_requests_stays_within_its_means() -> None:
    """Requests of a session, each used up as far as it may be: the sum stays below the limit of money and tokens."""
    rng = random.Random(7)
    for _ in range(200):
        price = Price(rng.randrange(5_000_000), rng.randrange(1, 30_000_000))
        left, size = Allowance(50_000, 1_000_000), PromptSize(guessed=rng.randrange(100, 5_000))
        while (most := budget.max_output_tokens(size, price=price, left=left, window=200_000)) >= MIN_OUTPUT_TOKENS:
            assert left.tokens is not None
            left = Allowance(left.tokens - size.expected - most, left.cost - budget.max_cost(size, most, price))
            assert left.cost >= 0
            assert left.tokens >= 0
            size = PromptSize(told=size.expected + most)
