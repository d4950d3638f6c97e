"""An engine whose services fail leaves its home free (SPEC 11.3)."""

import threading

import pytest

from engine import Engine, open_engine
from engine.home import Home
from engine.lock import read_holder
from engine.services import foundation


def test_an_engine_that_cannot_be_closed_in_order_leaves_the_home_free(
    home: Home, shop_engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patched:
        patched.setattr(shop_engine.notify, "close", None)
        with pytest.raises(TypeError):
            shop_engine.close()
    assert read_holder(home) is None


def test_an_engine_that_cannot_be_opened_leaves_the_home_free(home: Home, monkeypatch: pytest.MonkeyPatch):
    threads = set(threading.enumerate())
    monkeypatch.setattr(foundation, "MemoryService", None)
    with pytest.raises(TypeError):
        open_engine(home)
    assert read_holder(home) is None
    assert set(threading.enumerate()) <= threads, "the database is closed, too"
