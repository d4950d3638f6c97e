"""Errors of files beneath a folder name the path that was asked for (SPEC 11.2). `tests/attacks` tries to leave the
folder."""

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.storage.beneath import Beneath


@pytest.mark.parametrize("rename", [Beneath.replace, Beneath.link])
def test_a_rename_that_fails_names_the_file_and_not_the_temporary_one(
    tmp_path: Path, rename: Callable[[Beneath, str, str], None]
):
    (tmp_path / "temporary").write_text("new")
    (tmp_path / "sub/cart.py").mkdir(parents=True)
    with Beneath.open(tmp_path) as root, pytest.raises(OSError) as caught:
        rename(root, "temporary", "sub/cart.py")
    assert caught.value.filename == "sub/cart.py"
