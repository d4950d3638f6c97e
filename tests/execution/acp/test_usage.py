"""The totals of usage that a coding agent reports count once (SPEC 3.4)."""

from types import SimpleNamespace

import pytest
from acp import schema
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.runners.acp.turns import UsageCounter
from engine.wording import to_microusd

REPORT = st.tuples(
    st.integers(-10, 10**7) | st.just(10**30),
    st.none() | st.floats() | st.floats(0, 20),
    st.sampled_from(["USD", "usd", "EUR"]),
)
"""What an agent reports: tokens in total, their cost, and its currency."""


def make_counter(charged: list[tuple[int, int]], estimate: int) -> UsageCounter:
    """A counter that notes what it charges: millionths of a dollar, and tokens. `estimate` is per turn."""
    live = SimpleNamespace(
        charge=lambda money, tokens: charged.append((money, tokens)),
        reserve_cost=lambda limit: None,
        write=lambda kind, text: None,
    )
    return UsageCounter(live, estimate)


@pytest.mark.long
@given(st.lists(REPORT), st.integers(0, 10**6))
def test_totals_are_counted_once_and_only_upwards(reports: list[tuple[int, float | None, str]], estimate: int):
    charged = []
    counter = make_counter(charged, estimate)
    for total, amount, currency in reports:
        counter.count_totals(total, None if amount is None else schema.Cost(amount=amount, currency=currency))
    assert all(money >= 0 and tokens >= 0 for money, tokens in charged)
    assert counter.total_tokens == max((total for total, *_ in reports if 0 <= total <= 10**7), default=0)
    known_costs = [
        to_microusd(amount)
        for _, amount, currency in reports
        if amount is not None and currency.upper() == "USD" and 0 <= amount <= 1_000_000
    ]
    assert counter.total_cost == max(known_costs, default=0)
    counter.end_turn(None)
    assert counter.total_cost == sum(money for money, _ in charged) == max(known_costs, default=0)


def test_the_tokens_of_a_turn_count_once_also_without_a_report_at_its_end():
    counter, report = make_counter([], 0), schema.Usage(input_tokens=1_000, output_tokens=500, total_tokens=1_500)
    assert [counter.end_turn(report).input_tokens for _ in range(2)] == [1_000, 0]
    assert counter.total_tokens == 1_500
    counter.begin_turn()
    counter.count_totals(1_700, None)
    assert counter.end_turn(None).input_tokens == 200
    last = counter.end_turn(schema.Usage(input_tokens=1_300, output_tokens=700, total_tokens=2_000))
    assert (last.input_tokens, last.output_tokens) == (180, 120)
