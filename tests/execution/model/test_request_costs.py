"""What a request may cost at most, what it cost, and how often it is tried again (SPEC 3.4, 3.8)."""

from hypothesis import given
from hypothesis import strategies as st

from engine.execution.runners.model import MAX_DELAY_S, MAX_RETRY_AFTER_S, Failure, FailureKind, request_costs
from engine.execution.runners.model.request_costs import (
    MAX_OUTPUT_TOKENS,
    MIN_OUTPUT_TOKENS,
    PROVIDER_OVERHEAD_TOKENS,
    Price,
    PromptSize,
    RequestBudget,
)

MAX_RETRIES = 4
TOKENS = st.integers(0, 200_000)
PROMPT_SIZES = st.builds(PromptSize, TOKENS, TOKENS)
PRICES = st.builds(
    Price, st.integers(0, 80_000_000), st.integers(0, 400_000_000), st.booleans(), st.sampled_from([0, 50_000])
)
REPORTED_TOKENS = st.none() | st.integers(-10, 10**9)


@given(st.floats(0, 10_000), st.integers(1, MAX_RETRIES), st.floats(0, 0.999))
def test_a_requested_delay_is_kept_or_the_request_is_given_up(requested: float, tried: int, chance: float):
    delay = Failure(FailureKind.RATE, retry_after=requested).compute_retry_delay(tried, chance)
    assert (delay is None) == (requested > MAX_RETRY_AFTER_S)
    if delay is not None:
        assert requested <= delay <= max(requested, MAX_DELAY_S)


@given(PROMPT_SIZES, PRICES, st.none() | TOKENS, st.integers(0, 5_000_000), st.none() | TOKENS)
def test_an_answer_is_never_allowed_more_than_is_left(
    prompt: PromptSize, price: Price, tokens: int | None, cost: int, window: int | None
):
    limit = request_costs.compute_max_output_tokens(prompt, price=price, cost=cost, tokens=tokens, window=window)
    assert limit <= MAX_OUTPUT_TOKENS
    if limit >= MIN_OUTPUT_TOKENS:
        assert RequestBudget(prompt, limit, price).max_cost <= cost or not price.output
        assert all(room is None or prompt.expected + limit <= room for room in (tokens, window))


@given(
    REPORTED_TOKENS,
    REPORTED_TOKENS,
    st.none() | st.integers(0, 10**9),
    PROMPT_SIZES,
    st.integers(MIN_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS),
    st.integers(0, 10**6),
    PRICES,
)
def test_usage_never_costs_more_than_was_reserved(
    read: int | None, written: int | None, cost: int | None, prompt: PromptSize, limit: int, received: int, price: Price
):
    budget = RequestBudget(prompt, limit, price)
    usage = budget.compute_answer_usage({"input": read, "output": written, "cost": cost}, received)
    assert 0 <= usage.input_tokens <= prompt.counted + 2 * prompt.estimated + PROVIDER_OVERHEAD_TOKENS
    assert 0 <= usage.output_tokens <= limit
    assert usage.is_reported or usage.cost == price.compute_cost(usage.input_tokens, usage.output_tokens)
    cancelled = budget.compute_cancelled_usage(received)
    assert all(0 <= spent.cost <= budget.max_cost for spent in (usage, cancelled))
