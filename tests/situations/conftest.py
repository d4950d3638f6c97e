"""The three repositories in which situations begin: empty, with the project `SHOP`, and with all of it pushed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.situations.situation import Situation


@pytest.fixture
def situation(tmp_path: Path) -> Iterator[Situation]:
    """An empty repository on a Monday morning."""
    situation = Situation(tmp_path)
    yield situation
    situation.close()


@pytest.fixture
def shop(situation: Situation) -> Situation:
    """The project `SHOP`, committed a month ago."""
    situation.commit_shop()
    return situation


@pytest.fixture
def pushed(shop: Situation) -> Situation:
    """The project `SHOP`, of which everything is pushed."""
    shop.add_remote()
    return shop
