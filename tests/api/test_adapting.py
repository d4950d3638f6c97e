"""`clawpy candidates` over a real engine: what is shown, decided and refused (SPEC 5, 9.8)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from clawpy_console.cli.options import CommonOptions
from clawpy_console.cli.printing.render import render
from clawpy_console.cli.verbs import parse, request
from engine import Engine, Home, open_engine
from engine.api.operations import dispatch
from engine.events import RetryRepeated
from engine.model import Refusal
from engine.overrides import Overrides


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    home = Home.locate(tmp_path_factory.mktemp("home"))
    opened = open_engine(home, start_schedule=False, overrides=Overrides(runners=[], deaf=True, throw_away=True))
    yield opened
    opened.close()


def done(engine: Engine, *words: str) -> tuple[dict[str, Any], str]:
    """The document of a verb as it is typed, and what a person reads."""
    options = parse(words)
    document = dispatch(engine, options.verb, request(options, CommonOptions(None, [], False)))
    json.dumps(document)
    return document, render(options.verb, document)


def in_vain(engine: Engine, session: str) -> None:
    """A session whose tries to heal changed nothing."""
    fact = RetryRepeated(
        subject=session, workspace="/shop", agent="backend_builder", attempts=4, cost=300_000, failing=("t.py::a",)
    )
    engine.database.write(lambda tx: tx.record(fact))


def test_a_candidate_is_no_card_and_it_is_told_where_it_is_decided(engine: Engine) -> None:
    with pytest.raises(Refusal) as refused:
        dispatch(engine, "approve", {"id": "cand_7k2m"})
    assert refused.value.code == "unknown_id"
    assert "clawpy candidates show cand_7k2m" in refused.value.fix
