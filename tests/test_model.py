"""Values that all services share: money and digests are exact, and frozen classes stay as they are (SPEC 3.1, 3.4)."""

import copy
import dataclasses
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.frozen import frozen
from engine.model import Assignment
from engine.wording import to_dollars, to_microusd


@given(st.integers(min_value=0, max_value=10**9))
def test_money_survives_the_way_to_dollars_and_back(amount: int):
    assert to_microusd(to_dollars(amount)) == amount


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
