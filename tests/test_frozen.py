"""Value classes of the engine behave like frozen dataclasses of the standard library, but are made more quickly."""

import copy
import pickle
from dataclasses import FrozenInstanceError, field, replace

import pytest

from engine.frozen import frozen


@frozen
class Price:
    """A class with each sort of field."""

    cents: int
    currency: str = "EUR"
    tags: list[str] = field(default_factory=list, compare=False)
    note: str = field(default="", kw_only=True)

    def __post_init__(self):
        if self.cents < 0:
            raise ValueError("a price is not negative")


@frozen
class Offer(Price):
    """A class that inherits fields."""

    shop: str = ""


def test_the_parameters_are_those_of_a_dataclass():
    first, second = Price(5), Price(5, note="net")
    assert first.currency == "EUR"
    assert first.tags == []
    assert first.note == ""
    assert second.note == "net"
    assert first.tags is not second.tags
    assert repr(Offer(5, "USD", ["new"], "corner")) == (
        "Offer(cents=5, currency='USD', tags=['new'], note='', shop='corner')"
    )
    with pytest.raises(TypeError, match=r"Offer\.__init__\(\) missing 1 required positional argument: 'cents'"):
        Offer()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional arguments"):
        Price(5, "USD", [], "net")
    with pytest.raises(ValueError, match="not negative"):
        Price(-1)


def test_values_cannot_be_changed_but_copied():
    price = Price(5, tags=["new"])
    with pytest.raises(FrozenInstanceError, match="'cents'"):
        price.cents = 6
    with pytest.raises(FrozenInstanceError, match="'cents'"):
        del price.cents
    with pytest.raises(AttributeError):
        price.unknown = 6  # type: ignore[attr-defined]
    assert replace(price, cents=6) == Price(6)
    for copied in (copy.copy(price), copy.deepcopy(price), pickle.loads(pickle.dumps(price))):
        assert (copied, copied.tags) == (price, ["new"])
