"""What `clawpy serve` says of a token that it made, with a terminal and without, kept and not (SPEC 10.1, 11.1)."""

from __future__ import annotations

import io
import sys

import pytest

from clawpy_console.cli.headless import show_new_token

TOKEN = "clawpy_secret"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("source", ["keyring", "file", "this run"])
def test_what_is_said_of_a_new_token_is_true(terminal: bool, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out, errors = Terminal() if terminal else io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", errors)
    show_new_token(TOKEN, source)
    said = out.getvalue() + errors.getvalue()
    assert (TOKEN in said) is terminal
    assert ("`clawpy token` shows it" in said) is (source != "this run")
    assert ("`clawpy token new --store file`" in said) is (source == "this run")
    assert not terminal or not errors.getvalue()


def test_of_no_token_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    show_new_token("", "keyring")
    assert capsys.readouterr() == ("", "")
