"""Values that all services share: money, ids, digests and fingerprints are exact, frozen classes stay as they are, and
hostile text is made harmless (SPEC 3.1, 3.4)."""

import copy
import dataclasses
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.frozen import frozen
from engine.model import Assignment
from engine.model.base import dollars, microusd
from engine.text import sanitise
from engine.wording import describe_first, join_names, join_shortened
from tests.support import read_table

TABLE = read_table(__file__)


@given(st.integers(min_value=0, max_value=10**9))
def test_money_survives_the_way_to_dollars_and_back(amount: int):
    assert microusd(dollars(amount)) == amount


def test_any_edit_changes_the_digest():
    assignment = Assignment("run tests", "koji-core", "/shop", "flow", "run_tests", {"paths": ["a.py"]})
    edits = [
        dataclasses.replace(assignment, prompt="run Tests"),
        dataclasses.replace(assignment, channel="research"),
        dataclasses.replace(assignment, workspace="/other"),
        dataclasses.replace(assignment, runner="acp"),
        dataclasses.replace(assignment, flow=None),
        dataclasses.replace(assignment, parameters={"paths": ["b.py"]}),
    ]
    assert len({assignment.digest, *(edit.digest for edit in edits)}) == 7
    assert dataclasses.replace(assignment, parameters={"paths": ["a.py"]}).digest == assignment.digest


@pytest.mark.parametrize("hostile, harmless", TABLE["hostile"])
def test_escapes_and_controls_never_reach_a_terminal(hostile: str, harmless: str):
    assert sanitise(hostile) == harmless


def test_names_and_reasons_are_joined_in_words():
    assert [describe_first(["a"] * number) for number in range(3)] == ["", "a", "a, and for 1 other reason"]
    assert join_names([]) == ""
    assert join_names(["a"]) == "a"
    assert join_names(["a", "b", "c"]) == "a, b and c"
    assert join_names(["a", "b", "c"], 2) == "a, b and 1 more"
    assert join_names(["evil\x1b[31m\nname"]) == "evil name"
    assert join_shortened(["a", "src/shop/cart.py"], 2, 8) == "a and …cart.py"


@frozen
class Price:
    cents: int
    tags: list[str] = dataclasses.field(default_factory=list, compare=False)


def test_values_cannot_be_changed_but_copied():
    price = Price(5, tags=["new"])
    with pytest.raises(dataclasses.FrozenInstanceError, match="'cents'"):
        price.cents = 6
    with pytest.raises(AttributeError):
        price.unknown = 6  # type: ignore[attr-defined]
    assert dataclasses.replace(price, cents=6) == Price(6)
    for copied in (copy.copy(price), copy.deepcopy(price), pickle.loads(pickle.dumps(price))):
        assert (copied, copied.tags) == (price, ["new"])
