"""Canonical facts: kept, superseded, edited by hand, never lost (SPEC 4.7)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.files import write_atomic
from engine.memory import para_file
from engine.memory.para import NewFact, Para, group_name
from engine.model import Bucket, ParaFact, Refusal
from engine.storage import intents
from engine.storage.database import Database


@pytest.fixture
def para(tmp_path: Path, database: Database, clock: FakeClock) -> Para:
    return Para(tmp_path / "para", database, clock)


def items(tmp_path: Path, place: str = "areas/general") -> list[dict[str, object]]:
    return json.loads((tmp_path / "para" / place / "items.json").read_text())  # type: ignore[no-any-return]


def supersede(para: Para, old: str, text: str) -> ParaFact:
    """The fact that takes the place of another in its group."""
    return para.add([replace(PORT, fact=text, supersedes=old)])[0]


PORT = NewFact("The service listens on port 8000", "configuration", Bucket.PROJECTS, "shop", "session_1:4")


class TestFiles:
    def test_an_item_has_the_seeds_fields(self, para: Para, tmp_path: Path) -> None:
        fact = para.add([PORT])[0]
        (item,) = items(tmp_path, "projects/shop")
        assert item["id"] == fact.id
        assert fact.id.startswith("fact_")
        assert {key: item[key] for key in ("fact", "category", "source", "status")} == {
            "fact": "The service listens on port 8000",
            "category": "configuration",
            "source": "session_1:4",
            "status": "active",
        }
        assert (item["access_count"], item["last_accessed"], item["superseded_by"]) == (0, None, None)

    def test_adding_the_same_again_changes_no_byte(self, para: Para, tmp_path: Path) -> None:
        first = para.add([PORT, NewFact("Always run the linter")])
        before = {file: file.read_bytes() for file in (tmp_path / "para").rglob("*.*")}
        assert para.add([PORT, NewFact("Always run the linter!")]) == first
        assert {file: file.read_bytes() for file in (tmp_path / "para").rglob("*.*")} == before

    def test_bad_items_are_named_and_none_is_lost(self, para: Para, tmp_path: Path) -> None:
        para.add([PORT])
        file = tmp_path / "para/projects/shop/items.json"
        good = json.loads(file.read_text())
        good[0]["note of mine"] = "kept"
        bad = [
            "no object",
            {"id": "7", "fact": "x"},
            {"id": "fact_aaaa", "fact": ""},
            {"id": "fact_bbbb", "fact": "x", "status": "maybe"},
            {"id": "fact_cccc", "fact": "x", "access_count": -1},
            {"id": "fact_dddd", "fact": "x", "last_accessed": "yesterday"},
            {"id": "fact_eeee", "fact": "x", "superseded_by": "fact_bbbb"},
            {"id": "fact_ffff", "fact": ["x"]},
            dict(good[0]),
        ]
        file.write_text(json.dumps(good + bad))
        assert len(para.facts()) == 1
        problems = para.problems()
        assert len(problems) == len(bad)
        assert all("para/projects/shop/items.json item" in problem for problem in problems)
        supersede(para, good[0]["id"], "The service listens on port 8001")
        after = items(tmp_path, "projects/shop")
        assert after[1 : 1 + len(bad) - 1] == bad[:-1]
        assert after[0]["note of mine"] == "kept"

    def test_a_file_that_cannot_be_read_is_never_written_over(self, para: Para, tmp_path: Path) -> None:
        para.add([PORT])
        file = tmp_path / "para/projects/shop/items.json"
        file.write_text("[{,")
        with pytest.raises(Refusal) as refusal:
            para.add([NewFact("Another fact of the shop", bucket=Bucket.PROJECTS, group="shop")])
        assert refusal.value.code == "para_damaged"
        assert file.read_text() == "[{,"
        assert "cannot be read" in para.problems()[0]
        para.add([NewFact("A fact somewhere else")])

    def test_a_group_of_a_wicked_name_is_refused(self, para: Para) -> None:
        for name in ("../../etc", "", ".", "A B", "x" * 61):
            with pytest.raises(Refusal):
                para.add([NewFact("A fact", group=name)])
        assert group_name("../../Etc passwd") == "etc-passwd"
        assert group_name("…") == "general"

    @pytest.mark.parametrize("length", [1, 1_000])
    def test_a_fact_has_up_to_1000_characters(self, para: Para, length: int) -> None:
        assert para.add([NewFact("x" * length)])[0].fact == "x" * length

    @pytest.mark.parametrize("text", ["", "   ", "x" * 1_001])
    def test_an_empty_or_longer_one_is_refused(self, para: Para, text: str) -> None:
        with pytest.raises(Refusal) as refusal:
            para.add([NewFact(text)])
        assert refusal.value.code == "bad_fact"


class TestChain:
    def test_it_can_be_walked_from_any_of_its_facts(self, para: Para, clock: FakeClock) -> None:
        chain = para.add([PORT])
        for port in (8001, 8002, 8003):
            clock.advance(timedelta(days=1))
            chain.append(supersede(para, chain[-1].id, f"The service listens on port {port}"))
        ids = [fact.id for fact in chain]
        for id_ in ids:
            found = para.corrections(id_)
            assert [fact.id for fact in found] == ids
            assert [fact.active for fact in found] == [False, False, False, True]
            assert [fact.superseded_by for fact in found] == [*ids[1:], None]

    def test_what_was_superseded_is_not_superseded_again(self, para: Para) -> None:
        old = para.add([PORT])[0]
        new = supersede(para, old.id, "The service listens on port 8001")
        with pytest.raises(Refusal) as refusal:
            supersede(para, old.id, "The service listens on port 8002")
        assert refusal.value.code == "already_superseded"
        assert new.id in refusal.value.fix


class TestRecall:
    def test_what_was_recalled_is_counted_once_flushed(self, para: Para, clock: FakeClock, tmp_path: Path) -> None:
        fact = para.add([PORT])[0]
        para.count_access([fact.id])
        clock.advance(timedelta(hours=1))
        para.count_access([fact.id, fact.id])
        assert items(tmp_path, "projects/shop")[0]["access_count"] == 0
        para.flush()
        kept = para.get(fact.id)
        assert (kept.access_count, kept.last_accessed) == (3, clock.now())


class TestCrash:
    @pytest.mark.parametrize("after", [0, 1, 2, 3])
    def test_a_change_of_two_files_is_finished_at_the_next_start(
        self,
        para: Para,
        database: Database,
        clock: FakeClock,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        after: int,
    ) -> None:
        old = para.add([PORT])[0]
        writes = 0

        def write(path: Path, data: bytes) -> None:
            nonlocal writes
            if writes == after:
                raise KeyboardInterrupt
            writes += 1
            write_atomic(path, data)

        with monkeypatch.context() as patch:
            patch.setattr(para_file, "write_atomic", write)
            with pytest.raises(KeyboardInterrupt):
                para.add([NewFact("The service listens on port 8001", group="ports", supersedes=old.id)])
        again = Para(tmp_path / "para", database, clock)
        assert again.recover() == []
        assert [fact.active for fact in again.corrections(old.id)] == [False, True]
        assert again.problems() == []
        assert "8001" in (tmp_path / "para/areas/ports/summary.md").read_text()
        assert intents.unfinished(database, "para") == []
