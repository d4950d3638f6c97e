"""Names and reasons in words, and amounts of money, which are exact (SPEC 3.4)."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.wording import describe_first, join_names, join_shortened, to_dollars, to_microusd
from tests.support import read_table

TABLE = read_table(__file__)


@pytest.mark.parametrize("names, shown, words", TABLE["names"])
def test_names_are_joined_in_words_and_the_rest_is_counted(names: Sequence[str], shown: int, words: str):
    assert join_names(names, shown) == words


def test_a_long_path_keeps_its_end():
    assert join_shortened(["a", "src/shop/cart.py"], 2, 8) == "a and …cart.py"


@pytest.mark.parametrize("reasons, words", TABLE["reasons"])
def test_the_first_reason_stands_for_all(reasons: Sequence[str], words: str):
    assert describe_first(reasons) == words


@given(st.integers(min_value=0, max_value=10**9))
def test_money_survives_the_way_to_dollars_and_back(amount: int):
    assert to_microusd(to_dollars(amount)) == amount
