"""Canonical facts (SPEC 4.7): each is kept once, superseded but never deleted, and no crash or bad edit loses one."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.files import write_atomic
from engine.memory.para import NewFact, Para, find_broken_files
from engine.model import Bucket, ParaFact
from engine.storage.database import Database
from engine.storage.state import read_unfinished_intents
from tests.support.checks import refused

PORT = NewFact("The service listens on port 8000", "configuration", Bucket.PROJECTS, "shop", "session_1:4")


@pytest.fixture
def para(tmp_path: Path, database: Database, clock: FakeClock) -> Para:
    return Para(tmp_path / "para", database, clock)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The file of the group of `PORT`."""
    return tmp_path / "para/projects/shop/items.json"


def supersede(para: Para, old: str, text: str) -> ParaFact:
    """The fact that takes the place of another in its group."""
    return para.add([replace(PORT, fact=text, supersedes=old)])[0]


def test_the_same_in_another_workspace_is_another_fact(para: Para):
    preference = NewFact("Always run the linter", bucket=Bucket.AREAS, group="preferences", workspace="/a")
    (in_a,) = para.add([preference])
    (in_b,) = para.add([replace(preference, workspace="/b")])
    assert (in_b.workspace, para.read(workspace="/b").facts) == ("/b", [in_b])
    assert para.read(workspace="/a").facts == [in_a]


@pytest.mark.parametrize(
    "text", ['[{,["no object"]', '[{"id": "7", "fact": "x"}]', "[" * 100_000, '"x"', "3", "\udcff"]
)
def test_a_file_that_cannot_be_read_is_named_and_never_written_over(para: Para, shop: Path, text: str):
    para.add([PORT])
    shop.write_text(text, errors="surrogateescape")
    refused("para_damaged", lambda: para.add([replace(PORT, fact="Another fact of the shop")]))
    assert shop.read_text(errors="surrogateescape") == text
    assert para.read().problems[0].startswith("para/projects/shop/items.json cannot be read: ")
    assert find_broken_files(shop.parents[2]) == para.read().problems
    para.add([NewFact("A fact somewhere else")])


@pytest.mark.parametrize("name", ["../../etc", "", ".", "A B", "x" * 61])
def test_a_group_with_an_invalid_name_is_refused(para: Para, name: str):
    refused("bad_fact", lambda: para.add([NewFact("A fact", group=name)]))


def test_a_chain_can_be_walked_from_any_of_its_facts(para: Para, clock: FakeClock):
    chain = para.add([PORT])
    for port in (8001, 8002, 8003):
        clock.advance(timedelta(days=1))
        chain.append(supersede(para, chain[-1].id, f"The service listens on port {port}"))
    (other,) = para.add([replace(PORT, fact="Another one")])
    ids = [fact.id for fact in chain]
    for start in ids:
        corrections = para.read_corrections(start)
        assert [fact.id for fact in corrections] == ids
        assert [fact.is_active for fact in corrections] == [False, False, False, True]
        assert [fact.superseded_by for fact in corrections] == [*ids[1:], None]
    assert ids[3] in refused("already_superseded", lambda: supersede(para, ids[2], "The port is 9000")).fix
    for _ in range(2):
        assert supersede(para, ids[3], other.fact) == other, "a fact that is there already takes the place, too"
        assert para.get(ids[3]).superseded_by == other.id


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_change_of_two_files_is_finished_at_the_next_start(
    para: Para, database: Database, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
):
    old = para.add([PORT])[0]
    written = []

    def write(path: Path, data: bytes):
        if len(written) == after:
            raise KeyboardInterrupt
        written.append(path)
        write_atomic(path, data)

    with monkeypatch.context() as patch:
        patch.setattr("engine.memory.para.write_atomic", write)
        with pytest.raises(KeyboardInterrupt):
            para.add([NewFact("The service listens on port 8001", group="ports", supersedes=old.id)])
    again = Para(tmp_path / "para", database, clock)
    assert again.recover() == []
    assert [fact.is_active for fact in again.read_corrections(old.id)] == [False, True]
    assert "8001" in (tmp_path / "para/areas/ports/summary.md").read_text()
    assert read_unfinished_intents(database, "para") == []
