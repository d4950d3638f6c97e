"""Checks of results of `clawpy`, the text of a console that cannot start, and disks that fill up."""

import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine import Home, open_engine
from tests.cli.conftest import Clawpy, VerbOutput, clawpy, get_document, shop
from tests.console.driving import make_console, read_screen

__all__ = ["Clawpy", "clawpy", "get_document", "shop"]

FailedStart = Callable[..., Awaitable[str]]
"""Opens a console that cannot start; see the fixture `failed_start`."""

HOLDER_FILES = ("engine.lock", "engine.json", "clawpy.log", "clawpy.db-shm", "clawpy.db-wal")
"""Files of the engine that holds a home."""


def list_cards(clawpy: Clawpy, *arguments: str) -> list[dict[str, Any]]:
    """The cards that `clawpy predict`, or another verb, prints."""
    return list(get_document(clawpy(*(arguments or ("predict",)), "--json"))["predictions"])


def read_doctor_check(clawpy: Clawpy, name: str) -> dict[str, Any]:
    """One check of `clawpy doctor`."""
    [check] = [check for check in clawpy("doctor", "--json").document["checks"] if check["name"] == name]
    return dict(check)


def assert_refused(result: VerbOutput, code: str, *words: str) -> dict[str, str]:
    """Check that a verb with --json was refused: exit code 1, one document, this `code`, and these `words` in the
    message or the fix. Returns the refusal."""
    assert result.code == 1, result.out + result.err
    error = result.document["error"]
    assert error["code"] == code
    for word in words:
        assert word in error["message"] + error["fix"], error
    assert error["fix"], "how to fix it is missing"
    assert "Traceback" not in result.err
    return error


def read_files(folder: Path) -> dict[str, bytes]:
    """The content of every file under `folder`, except `HOLDER_FILES`."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in HOLDER_FILES
    }


@pytest.fixture
def failed_start(home: Home) -> FailedStart:
    """Opens the console on an engine that cannot start, and returns the text of its screen."""

    async def open_console(workspaces: Sequence[str] = ()) -> str:
        app = make_console(home, lambda: open_engine(home, workspaces=workspaces, start_schedule=False), workspaces)
        async with app.run_test(size=(120, 40)) as pilot:
            deadline = time.monotonic() + 10
            while app.opening == "opening":
                assert time.monotonic() < deadline, "the console neither opened nor said why not"
                await pilot.pause(0.01)
            await pilot.pause()
            assert app.engine is None
            text = " ".join(read_screen(app).replace("│", " ").split())
            await pilot.press("q")
        assert app.return_code == 1
        return text

    return open_console


@contextmanager
def mount_disk(folder: Path, size: str) -> Iterator[Callable[[str], None]]:
    """Mount a disk at `folder`. Yields a function that mounts it again with other options, for example "ro". Skips the
    test if no disk can be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no disk can be mounted here")

    def remount(options: str):
        subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True, capture_output=True)

    try:
        yield remount
    finally:
        subprocess.run(["umount", "-l", folder], check=True, capture_output=True)


def fill_disk(folder: Path) -> Path:
    """Use up all space of a disk. Returns the file that uses it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as out:
        for piece in (65536, 4096, 1):
            try:
                while True:
                    out.write(b"\0" * piece)
            except OSError:
                continue
    return filler
