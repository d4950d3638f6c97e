"""A client finds the engine of its home, or says why it gets no console there (SPEC 7.5)."""

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawpy_console.attach.client import Refused, attach
from engine import Home, __version__


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address of an engine that accepts connections, and answers none."""
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(tmp_path / "socket"))
        engine.listen()
        yield engine.getsockname()


def write_engine_note(home: Home, **fields: object):
    """Write the note of an engine that holds `home`."""
    home.data.mkdir(parents=True)
    home.engine_note.write_text(json.dumps({"data": str(home.data), **fields}))


def test_a_copied_home_does_not_attach_to_the_engine_of_the_original(tmp_path: Path, home: Home, address: str):
    write_engine_note(home, address=address)
    copy = Home.locate(shutil.copytree(home.root, tmp_path / "copy"))
    with pytest.raises(Refused):  # the original finds it; this one is of another version
        attach(home, [])
    assert attach(copy, []) is None


@pytest.mark.parametrize(
    "version, message",
    [
        ("0.0.9", r"The running engine is clawpy 0\.0\.9, this is .*: kill 77"),
        (__version__, r"process 77\) does not answer.* kill 77 ends it"),
    ],
    ids=["of another version", "that does not answer"],
)
def test_an_engine_that_gives_no_console_is_named(
    home: Home, address: str, monkeypatch: pytest.MonkeyPatch, version: str, message: str
):
    monkeypatch.setattr("clawpy_console.attach.client.ANSWER_TIMEOUT_S", 0.05)
    write_engine_note(home, address=address, version=version, pid=77)
    with pytest.raises(Refused, match=message):
        attach(home, [])


def test_a_workspace_in_the_home_of_an_unknown_user_is_refused(home: Home):
    write_engine_note(home, address="socket")
    with pytest.raises(Refused, match="a user who does not exist"):
        attach(home, ["~nobody-of-this-name/shop"])
