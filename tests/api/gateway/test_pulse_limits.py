"""Clients of `/pulse` that send too much or read too little, and the end of a connection (SPEC 10.1)."""

import contextlib
import time
from dataclasses import replace

import pytest
from websockets.exceptions import ConnectionClosed

from engine.api.gateway.pulse import MAX_FRAME_ENTRIES
from tests.api.gateway.pulse_listener import Listener, expire, listening
from tests.api.gateway.served import SMALL, Serve, Served
from tests.benchmarks.pulse_clients import connect_silently


def read_closing(listener: Listener, seconds: float = 10.0) -> tuple[int, str]:
    """The code and the reason with which the connection is closed."""
    end = time.monotonic() + seconds
    with pytest.raises(ConnectionClosed) as closed:  # noqa: PT012 (whatever comes before the end)
        while time.monotonic() < end:
            listener.connection.recv(timeout=seconds)
    return closed.value.rcvd.code, closed.value.rcvd.reason


def count_connections(served: Served) -> int:
    return len(served.server.server_state.connections)


@pytest.mark.long
def test_a_client_that_does_not_subscribe_is_disconnected(serve: Serve):
    with listening(serve(limits=replace(SMALL, subscribe_seconds=0.4))) as listener:
        assert read_closing(listener) == (1008, "subscribe first")


def test_a_client_that_sends_too_many_messages_is_disconnected(served: Served):
    with listening(served) as listener:
        listener.subscribe()
        for _ in range(SMALL.message_burst):  # no more: who writes to a closed line may never read why it closed
            listener.connection.send("{}")
        assert read_closing(listener) == (1008, "too many messages")


def test_a_message_that_is_too_large_ends_the_connection(served: Served):
    with listening(served) as listener:
        listener.subscribe()
        listener.connection.send(" " * (SMALL.body + 1))
        assert read_closing(listener)[0] == 1009


@pytest.mark.long
def test_a_client_that_does_not_read_is_cut_off_and_delays_no_other(serve: Serve):
    served = serve(limits=replace(SMALL, stall_seconds=1.0))
    with listening(served) as quick, connect_silently(served.port, served.token):
        quick.subscribe()
        end = time.monotonic() + 60
        while served.gateway.state().dropped == 0:
            last = expire(served, 500)
            quick.receive_until_id(last)
            assert time.monotonic() < end, "it is still there"
        while served.gateway.state().clients > 1 or count_connections(served) > 1:
            assert time.monotonic() < end, "its connection is still there"
    assert served.gateway.state().dropped == 1


@pytest.mark.long
def test_a_client_that_reads_slowly_is_not_cut_off_and_misses_nothing(serve: Serve):
    """It reads so little that no space becomes free in the gateway's own buffer, for four times as long as a client
    that reads nothing may stay."""
    stall_seconds, chunk_bytes, rounds, frame_bytes = 1.0, 2048, 60, 600_000
    served = serve(limits=replace(SMALL, stall_seconds=stall_seconds))
    with listening(served, max_size=None) as quick, connect_silently(served.port, served.token) as slow:
        quick.subscribe()
        expire(served, MAX_FRAME_ENTRIES, reason="x" * (frame_bytes // MAX_FRAME_ENTRIES))
        began, received = time.monotonic(), b""

        def read() -> bytes:
            chunk = slow.recv(chunk_bytes)
            assert chunk, "it was cut off"
            return chunk

        for number in range(1, rounds + 1):
            last = expire(served)
            quick.receive_until_id(last)  # which paces the slow one
            while len(received) < number * chunk_bytes:
                received += read()
        assert time.monotonic() - began > 4 * stall_seconds
        while f'"id":{last}'.encode() not in received[-2 * chunk_bytes :]:
            received += read()
    assert served.gateway.state().dropped == 0


@pytest.mark.long
def test_pings_of_a_client_that_does_not_read_the_answers_take_no_memory(serve: Serve):
    served = serve(limits=replace(SMALL, stall_seconds=0.4))
    pings = (bytes([0x89, 0x80 | 125]) + b"\0\0\0\0" + b"x" * 125) * 4000
    with connect_silently(served.port, served.token) as client:
        most_kept, end = 0, time.monotonic() + 60
        with contextlib.suppress(OSError):  # cut off
            while time.monotonic() < end:
                client.sendall(pings)
                for connection in list(served.server.server_state.connections):
                    most_kept = max(most_kept, connection.transport.get_write_buffer_size())
        assert most_kept < 1_000_000
        while count_connections(served):
            assert time.monotonic() < end, "its connection is still there"


def test_a_new_token_disconnects_everybody(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    from engine.api.gateway import access, pulse

    monkeypatch.setattr(pulse, "TOKEN_POLL_S", 0.1)
    served = serve()
    with listening(served) as listener:
        listener.subscribe()
        token, source = access.rotate_token(served.engine.keys, in_file=True)
        assert source == "file"
        assert read_closing(listener, 30) == (4001, "the token has changed")
    assert served.ask("GET", "/api/v1/health").status_code == 401
    served.token = token
    assert served.ask("GET", "/api/v1/health").status_code == 200


@pytest.mark.long
def test_closing_disconnects_listeners(serve: Serve):
    served = serve()
    with listening(served) as listener:
        listener.subscribe()
        served.gateway.close()
        assert read_closing(listener)[0] == 1012
    assert not served.gateway.state().url
