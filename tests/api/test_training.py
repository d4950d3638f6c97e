"""The verb `export` on a real database."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.api.operations import dispatch
from engine.learning.decisions.decisions import curate_pairs
from engine.learning.decisions.exporting import Exporter
from engine.model import Refusal
from engine.storage.database import Database


@pytest.fixture
def engine(database: Database, tmp_path: Path) -> Any:
    return cast(
        Any, SimpleNamespace(exporter=Exporter(database, tmp_path), autonomy=SimpleNamespace(heard=lambda what: None))
    )


def ask(engine: Any, **given: str) -> dict[str, Any]:
    return dispatch(engine, "export", given)


def test_export_says_where_and_how_many(database: Database, engine: Any) -> None:
    database.write(lambda tx: curate_pairs(tx, [(f"now {n}", "a → garden", "b → research") for n in range(50)]))
    said = ask(engine, what="dpo", format="trl")
    assert (said["format"], said["records"], said["new"]) == ("trl", 50, 50)
    assert set(json.loads(Path(said["file"]).read_text().splitlines()[0])) == {"prompt", "chosen", "rejected"}
    assert Path(said["weights"]).read_text().count("\n") == 50


def test_export_of_nothing_says_what_is_missing(engine: Any) -> None:
    with pytest.raises(Refusal, match="0 new pairs; a batch needs at least 50"):
        ask(engine, what="dpo")
    with pytest.raises(Refusal, match="there are no approvals or conversations yet"):
        ask(engine, what="sft")
    with pytest.raises(Refusal):
        ask(engine, what="dpo", format="csv")
