"""The table that machines share (SPEC 1.9, 4.5): the highest version stays, and no password is shown."""

import pytest

from engine.storage.shared import SharedDatabase, SharedRow
from tests.support.helpers import refused
from tests.support.shared_database import LocalSharedDatabase


@pytest.mark.parametrize("version, text", [(0, "old"), (1, "old"), (2, "new")])
def test_a_row_replaces_one_of_its_key_only_with_a_higher_version(version: int, text: str):
    shared = LocalSharedDatabase()
    shared.push("notes", [SharedRow("a", {"text": "old"}, 1)])
    shared.push("notes", [SharedRow("a", {"text": "new"}, version)])
    assert shared.documents() == [{"text": text}]


@pytest.mark.parametrize("url", ["u:hunter2@h/db", "postgresql://u:hun%zzter2@h", "postgresql://u:hun ter2@h/db"])
def test_an_invalid_url_is_refused_without_being_quoted(url: str):
    pytest.importorskip("psycopg")
    refusal = refused("bad_shared_url", lambda: SharedDatabase(url).connect())
    assert "hun" not in str(refusal)
    assert refusal.__cause__ is None
