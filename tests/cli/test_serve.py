"""`clawpy serve` and `clawpy token`, with a real process (SPEC 9.8, 10.1)."""

from __future__ import annotations

import signal
import time

import httpx
import pytest

from engine import read_holder
from engine.home import Home
from tests.cli.conftest import Clawpy
from tests.conftest import Repository
from tests.support.forked import Nursery


@pytest.mark.long
def test_it_listens_lets_the_token_in_and_shows_it_to_no_file(
    home: Home, shop: Repository, clawpy: Clawpy, nursery: Nursery
) -> None:
    command = ["--home", str(home.root), "serve", "--port", "0", "--store", "file"]
    with nursery.clawpy(*command, folder=shop.path) as process:
        end = time.monotonic() + 40
        while not (holder := read_holder(home)) or not holder.gateway:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end, "it does not listen"
            time.sleep(0.05)
        token = clawpy("token").out.strip()
        reply = httpx.get(
            f"{holder.gateway}/api/v1/health", headers={"Authorization": f"Bearer {token}"}, trust_env=False
        )
        assert reply.json()["status"] == "ok"
        assert holder.gateway in clawpy("status").out
        assert clawpy("status", "--json").document["gateway"]["url"] == holder.gateway
        assert holder.gateway in clawpy("doctor").out
        second = clawpy("serve", "--port", "0")
        assert second.code == 1
        assert f"at {holder.gateway}; to change that, stop it first: kill {process.pid}" in second.err
        process.send_signal(signal.SIGTERM)
        lines = "".join(process.communicate())
        assert process.returncode == 0
    assert f"listening at {holder.gateway} (this machine only; token in the file)" in lines
    for kept in (lines, (home.logs / "clawpy.log").read_text(), home.database.read_bytes().decode("latin-1")):
        assert token not in kept


def test_a_token_on_a_machine_without_a_keyring(clawpy: Clawpy) -> None:
    assert clawpy("token", "show").code == 1
    refused = clawpy("token", "new")
    assert refused.code == 1
    assert "--store file" in refused.err
    made = clawpy("token", "new", "--store", "file")
    assert made.out.strip().startswith("clawpy_")
    assert clawpy("token").out == made.out
    assert clawpy("--json", "token").document["source"] == "file"
