"""A jail for each rung that works here; the ordinary run takes the best one, the others are marked `attacks`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.execution.sandbox import PRIVATE_FOLDERS, Sandbox
from engine.execution.sandbox.ladder import find_rungs
from engine.files import remove_folder
from tests.execution.escape.jail import Jail

WORKING: list[Sandbox | None] = [rung for rung in find_rungs() if rung.confines]


@pytest.fixture(
    params=[
        *(WORKING[:1] or [None]),
        *(pytest.param(rung, marks=pytest.mark.attacks) for rung in WORKING[1:]),
    ],
    ids=lambda rung: rung.name if rung else "none",
)
def jail(request: pytest.FixtureRequest) -> Iterator[Jail]:
    if request.param is None:
        pytest.skip("no sandbox works on this machine")
    outside = [
        folder
        for folder in (Path.home(), Path.cwd(), Path("/srv"))
        if os.access(folder, os.W_OK) and not any(folder.resolve().is_relative_to(place) for place in PRIVATE_FOLDERS)
    ]
    if not outside:
        pytest.skip("no folder outside /tmp can be written")
    root = Path(tempfile.mkdtemp(prefix=".clawpy-jail-", dir=outside[0]))
    yield Jail(root, request.param)
    remove_folder(root)
