"""Ids of candidates where a card is expected (SPEC 5, 9.8)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine import Engine, Home, open_engine
from engine.api.operations import dispatch
from engine.model import Refusal
from engine.overrides import Overrides


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    home = Home.locate(tmp_path_factory.mktemp("home"))
    opened = open_engine(home, start_schedule=False, overrides=Overrides(runners=[], deaf=True, throw_away=True))
    yield opened
    opened.close()


def test_a_candidate_is_no_card_and_it_is_told_where_it_is_decided(engine: Engine) -> None:
    with pytest.raises(Refusal) as refused:
        dispatch(engine, "approve", {"id": "cand_7k2m"})
    assert refused.value.code == "unknown_id"
    assert "clawpy candidates show cand_7k2m" in refused.value.fix
