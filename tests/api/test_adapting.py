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


@pytest.mark.long
def test_a_candidate_is_shown_decided_and_taken_back(engine: Engine) -> None:
    assert done(engine, "candidates")[1].startswith("No candidates: nothing was recorded yet. ")
    in_vain(engine, "sess_1")
    drafted, read = done(engine, "candidates", "digest")
    [one] = drafted["drafted"]
    assert (one["type"], one["status"], one["score"]) == ("validator_policy_tweak", "drafted", 45)
    assert one["effect"] == {"kind": "validator_policy_tweak", "tries": 1, "cost": None}
    assert one["id"] in read
    with pytest.raises(Refusal) as refused:
        done(engine, "candidates", "approve", one["id"])
    assert refused.value.code == "not_corroborated"
    in_vain(engine, "sess_2")
    assert done(engine, "candidates", "digest")[1] == "Nothing new was found."
    listed, read = done(engine, "candidates", "list", "--status", "review")
    assert [each["id"] for each in listed["candidates"]] == [one["id"]]
    assert listed["counts"]["review"] == 1
    assert "1 needs your decision" in read
    assert "evidence for: 2, against: 0" in read
    assert [wait.kind for wait in engine.queue()] == ["candidate"]
    shown, read = done(engine, "candidates", "show", one["id"][:9])
    assert [each["state"] for each in shown["stations"]] == ["done"] * 4 + ["now", "ahead"]
    assert len(shown["records"]) == 2
    assert "drafted from" in read
    assert "evidence for" in read
    promoted, read = done(engine, "candidates", "approve", one["id"])
    assert promoted["candidate"]["status"] == "promoted"
    assert f"clawpy candidates rollback {one['id']}" in read
    assert list(engine.overlays.tweaks(agent="backend_builder", workspace=""))
    with pytest.raises(Refusal) as refused:
        done(engine, "candidates", "approve", one["id"])
    assert refused.value.code == "already_decided"
    again, read = done(engine, "candidates", "undo", one["id"])
    assert again["candidate"]["status"] == "review"
    assert "▲ needs your decision" in read
    assert not engine.overlays.tweaks(agent="backend_builder", workspace="")
    done(engine, "candidates", "approve", one["id"])
    back, _ = done(engine, "candidates", "rollback", one["id"], "--reason", "it heals slower now")
    assert (back["candidate"]["status"], back["candidate"]["reason"]) == ("rolled_back", "it heals slower now")
    assert not engine.overlays.tweaks(agent="backend_builder", workspace="")
    gone, read = done(engine, "candidates", "reject", one["id"])
    assert gone["candidate"]["status"] == "rejected"
    assert "is proposed again" in read
    told, read = done(engine, "candidates", "records", "--kind", "repeated_retry")
    assert [each["session"] for each in told["records"]] == ["sess_2", "sess_1"]
    assert "3 attempts made" in read


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"action": "show", "id": "cand_nothing"}, "unknown_candidate"),
        ({"action": "show"}, "bad_arguments"),
        ({"action": "promote"}, "bad_arguments"),
        ({"status": "odd"}, "bad_arguments"),
        ({"type": "odd"}, "bad_arguments"),
        ({"action": "records", "kind": "odd"}, "unknown_kind"),
        ({"limit": 0}, "bad_arguments"),
    ],
)
def test_what_is_wrong_is_named(engine: Engine, arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(Refusal) as refused:
        dispatch(engine, "candidates", arguments)
    assert refused.value.code == code


def test_a_candidate_is_no_card_and_it_is_told_where_it_is_decided(engine: Engine) -> None:
    with pytest.raises(Refusal) as refused:
        dispatch(engine, "approve", {"id": "cand_7k2m"})
    assert refused.value.code == "unknown_id"
    assert "clawpy candidates show cand_7k2m" in refused.value.fix
