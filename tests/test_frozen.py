"""Values of frozen classes cannot be changed, but copied."""

import copy
import dataclasses
import pickle

import pytest

from engine.frozen import frozen


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
