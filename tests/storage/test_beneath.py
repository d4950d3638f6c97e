"""Files beneath a folder, by relative paths; `tests/attacks` tries to get out."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.storage.beneath import Beneath


@pytest.mark.parametrize("name", ["replace", "link"])
def test_a_rename_that_fails_names_the_file_and_not_the_temporary_one(tmp_path: Path, name: str) -> None:
    (tmp_path / "temporary").write_text("new")
    (tmp_path / "sub/cart.py").mkdir(parents=True)
    with Beneath.open(tmp_path) as root, pytest.raises(OSError) as caught:
        getattr(root, name)("temporary", "sub/cart.py")
    assert caught.value.filename == "sub/cart.py"
