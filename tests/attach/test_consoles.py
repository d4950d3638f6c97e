"""Which clients get a console, and what becomes of one whose terminal is gone (SPEC 7.5)."""

import asyncio
import gc
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any
from unittest.mock import Mock

import pytest
from textual._styles_cache import StylesCache

from clawpy_console.app import ConsoleApp
from clawpy_console.attach.consoles import Consoles
from clawpy_console.attach.protocol import EXIT, MessageParser
from engine import Home, Refusal
from engine.api.control import ControlServer, ask
from tests.console.stand_in import StandIn
from tests.support.checks import refused, wait_until

DESCRIPTION = {"environment": {"TERM": "xterm"}, "size": [100, 30], "workspaces": [], "folder": "/"}


@pytest.fixture
def consoles(home: Home) -> Iterator[Consoles]:
    """The consoles of an engine that runs without them."""
    consoles = Consoles(StandIn, home, owns_engine=False)
    with ExitStack() as stack:
        stack.callback(consoles.release_clients)
        stack.callback(consoles.close)
        yield consoles


def attach(home: Home, description: Any, *admit: Any):
    """Ask an engine of a home for a console; `admit` is what lets a terminal in."""
    home.data.mkdir(parents=True)
    server = ControlServer(home, lambda verb, arguments: {}, *admit)
    server.start()
    with closing(server):
        ask(server.address, "attach", description)


def test_an_engine_that_was_opened_for_a_verb_admits_no_terminal(home: Home):
    with pytest.raises(Refusal, match="for one command"):
        attach(home, DESCRIPTION)


@pytest.mark.parametrize(
    "description",
    [None, 7, {}, DESCRIPTION | {"size": [80]}, DESCRIPTION | {"environment": {"TERM": 1}}, DESCRIPTION | {"x": 1}],
    ids=["nothing", "a number", "empty", "one side", "a variable that is no text", "an unknown field"],
)
def test_a_terminal_that_is_described_wrongly_is_refused(home: Home, consoles: Consoles, description: Any):
    refused("bad_arguments", lambda: attach(home, description, consoles.admit))
    assert not consoles.apps


@pytest.mark.long
@pytest.mark.parametrize("drawn_until", [b"", b"\x1b[?1049h", b"koji-core"], ids=["at once", "mounting", "in use"])
def test_a_console_whose_terminal_vanishes_is_freed_and_reports_no_crash(
    home: Home, consoles: Consoles, drawn_until: bytes
):
    caches_before = sum(type(item) is StylesCache for item in gc.get_objects())
    for _ in range(2):
        client_socket, console_socket = socket.socketpair()
        with client_socket:
            consoles.admit(DESCRIPTION)(console_socket)
            del console_socket
            drawn = b""
            client_socket.settimeout(60)
            while drawn_until not in drawn:
                drawn += client_socket.recv(65536)
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), consoles._loop).result()  # the console has begun
        wait_until(lambda: not consoles._tasks, 60)
        gc.unfreeze()  # else a console that was kept would not be seen
        wait_until(lambda: not any(type(item) is ConsoleApp for item in gc.get_objects()), 60)  # a thread may still end
        gc.freeze()
    assert not consoles.apps
    assert not list(home.logs.glob("crash-*"))
    assert sum(type(item) is StylesCache for item in gc.get_objects()) <= caches_before


@pytest.mark.parametrize("step", ["_find_repositories", "_make_app"])
def test_a_console_that_cannot_open_ends_its_client_with_a_message_and_an_engine_without_other_consoles(
    home: Home, monkeypatch: pytest.MonkeyPatch, step: str
):
    monkeypatch.setattr(Consoles, step, Mock(side_effect=OSError("the disk is gone")))
    consoles = Consoles(StandIn, home, owns_engine=True)
    client_socket, console_socket = socket.socketpair()
    with client_socket:
        consoles.admit(DESCRIPTION)(console_socket)
        consoles.wait()
        consoles.close()
        consoles.release_clients()
        client_socket.settimeout(60)
        [(kind, content)] = MessageParser().feed(client_socket.recv(65536))
    assert kind == EXIT
    assert "The console crashed: OSError." in json.loads(content)["text"]
    assert list(home.logs.glob("crash-*"))
