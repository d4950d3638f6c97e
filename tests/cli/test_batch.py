"""Verbs that read a file of JSON lines (SPEC 9.8): `check`, `recall` and `remember`, which takes a sentence as well."""

import io
import json
from pathlib import Path

import pytest

from clawpy_console.cli.batch import is_sentence
from engine.home import Home
from tests.cli.calls import Clawpy
from tests.support import read_table
from tests.support.settings import write_settings

TABLE = read_table(__file__)


def test_check_needs_no_quotes_and_no_engine(clawpy: Clawpy):
    assert clawpy("check", "git status").out.startswith("allow")
    assert clawpy("check", "rm", "-rf", "/").out.startswith("block")
    assert clawpy("check", "rm", "-rf", "/", "--json").document["verdict"] == "block"
    assert clawpy("check", "--prompt", "run the tests", "--json").document["verdict"] == "allow"


def test_check_uses_the_rules_of_the_operator(clawpy: Clawpy, home: Home):
    write_settings(home, '[content]\nblock = ["terraform apply"]\nallow = ["git push --force"]\n')
    assert clawpy("check", "sudo terraform apply -auto-approve").out.startswith("block  your rule: terraform apply")
    assert clawpy("check", "git push --force").out.startswith("allow")
    assert not clawpy("check", "git push --force origin").out.startswith("allow")


def test_check_gives_no_verdict_while_the_rules_cannot_be_read(clawpy: Clawpy, home: Home):
    write_settings(home, '[content]\nblock = ["make deploy"]\nalow = []\n')
    result = clawpy("check", "make deploy")
    assert (result.code, result.out) == (1, "")
    assert f"{home.config_file}:3: content.alow: unknown key" in result.err


def test_a_batch_is_answered_line_by_line(clawpy: Clawpy, tmp_path: Path):
    lines = '\ufeff{"id": 1, "command": "ls"}\n{"id": "b", "prompt": "run the tests"}\n{"command": "rm -rf /"}\n'
    (tmp_path / "lines.jsonl").write_text(lines)
    result = clawpy("check", "--batch", str(tmp_path / "lines.jsonl"))
    answers = [json.loads(line) for line in result.out.splitlines()]
    assert [(answer.get("id"), answer["verdict"]) for answer in answers] == [
        (1, "allow"), ("b", "allow"), (None, "block"),
    ]  # fmt: skip
    assert result.code == 0


def test_a_bad_line_is_named_and_stops_no_other(clawpy: Clawpy, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.StringIO('nonsense\n3\n{"id": 7, "command": 1}\n{"command": "ls"}'))
    result = clawpy("check", "--batch", "-")
    *bad, good = map(json.loads, result.out.splitlines())
    assert [answer["error"]["message"][:8] for answer in bad] == ["line 1: ", "line 2: ", "line 3: "]
    assert bad[2]["id"] == 7
    assert good["verdict"] == "allow"
    assert result.code == 1


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("verb", [["check", "--batch"], ["recall", "--batch"], ["remember"]])
@pytest.mark.parametrize("content", [b"\x7fELF\x02\0\n\0", b"\x89PNG\r\n\x1a\n", b"\xff\xfe{\0}\0\n\0" * 3])
def test_a_binary_file_is_refused_as_a_whole(clawpy: Clawpy, tmp_path: Path, verb: list[str], content: bytes):
    (tmp_path / "a.bin").write_bytes(content)
    result = clawpy(*verb, str(tmp_path / "a.bin"), "--json")
    assert result.document["error"]["message"] == f"{tmp_path / 'a.bin'} is not a text file"
    assert result.code == 1


@pytest.mark.parametrize("argument, is_text", TABLE["arguments"])
def test_a_sentence_is_remembered_and_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argument: str, is_text: bool
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a file with spaces").write_text("{}")
    assert is_sentence(argument) == is_text
