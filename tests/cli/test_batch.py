"""Verbs that read a file of JSON lines (SPEC 9.8): `check`, `recall` and `remember`, which takes a sentence as well."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clawpy_console.cli.batch import is_sentence
from engine.home import Home
from tests.cli.conftest import Clawpy
from tests.support.helpers import write_settings


def script_remember(monkeypatch: pytest.MonkeyPatch, **answer: Any) -> list[dict[str, Any]]:
    """Answer each `remember` with this; returns the list to which its requests are added."""
    asked = []

    @contextmanager
    def connect(*_: object, **__: object) -> Iterator[Any]:
        def ask(verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
            asked.append(arguments)
            return {"remembered": 1, "known": 0, "bad": [], "missing": 0, "trouble": ""} | answer

        yield ask

    monkeypatch.setattr("engine.connect", connect)
    return asked


def test_check_needs_no_quotes_and_no_engine(clawpy: Clawpy):
    assert clawpy("check", "git status").out.startswith("allow")
    assert clawpy("check", "rm", "-rf", "/").out.startswith("block")
    assert clawpy("check", "rm", "-rf", "/", "--json").document["verdict"] == "block"
    assert clawpy("check", "--prompt", "run the tests", "--json").document["verdict"] == "allow"


@pytest.mark.parametrize("words", [[], [""], ["", ""]])
def test_check_of_no_command_says_how_to_give_one(clawpy: Clawpy, words: list[str]):
    result = clawpy("check", *words)
    assert (result.code, result.out) == (2, "")
    assert "give a command, or --prompt TEXT, or --batch FILE.jsonl" in result.err
    assert "{" not in result.err


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


def test_a_batch_that_does_not_exist_is_refused(clawpy: Clawpy, tmp_path: Path):
    assert clawpy("check", "--batch", str(tmp_path / "none")).code == 1


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize("verb", [["check", "--batch"], ["recall", "--batch"], ["remember"]])
@pytest.mark.parametrize("content", [b"\x7fELF\x02\0\n\0", b"\x89PNG\r\n\x1a\n", b"\xff\xfe{\0}\0\n\0" * 3])
def test_a_binary_file_is_refused_as_a_whole(clawpy: Clawpy, tmp_path: Path, verb: list[str], content: bytes):
    (tmp_path / "a.bin").write_bytes(content)
    result = clawpy(*verb, str(tmp_path / "a.bin"), "--json")
    assert result.document["error"]["message"] == f"{tmp_path / 'a.bin'} is not a text file"
    assert result.code == 1


def test_a_byte_that_is_no_text_spoils_no_file_of_objects(clawpy: Clawpy, tmp_path: Path):
    (tmp_path / "lines.jsonl").write_bytes(b'{"command": "ls \xff"}\n\xff\n{"command": "ls"}\n')
    answers = [json.loads(line) for line in clawpy("check", "--batch", str(tmp_path / "lines.jsonl")).out.splitlines()]
    assert [answer.get("verdict") for answer in answers] == ["allow", None, "allow"]


@pytest.mark.parametrize(
    "argument, is_text",
    [
        ("Releases are on Fridays.", True),
        ("see README.md first", True),
        ("we are on version 1.2", True),
        ("my chats.jsonl", False),
        ("my notes.txt", False),  # it does not exist, and is a name all the same
        ("a file with spaces", False),
        ("Fridays", False),
        ("-", False),
    ],
)
def test_a_sentence_is_remembered_and_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argument: str, is_text: bool
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a file with spaces").write_text("{}")
    assert is_sentence(argument) == is_text


def test_the_sentence_is_one_line_of_a_conversation(clawpy: Clawpy, monkeypatch: pytest.MonkeyPatch):
    requests = script_remember(monkeypatch)
    assert clawpy("remember", 'Releases are on "Fridays".', "--no-wait").code == 0
    assert requests == [{"lines": ['{"text": "Releases are on \\"Fridays\\"."}'], "first": 1, "source": "command line"}]


def test_a_line_that_is_stored_without_its_time_is_not_bad(clawpy: Clawpy, monkeypatch: pytest.MonkeyPatch):
    fault = {"line": 1, "message": "'yesterday' is not a time; stored without its time", "kept": True}
    script_remember(monkeypatch, bad=[fault])
    result = clawpy("remember", "We ship on Friday.", "--no-wait")
    assert result.out.split(",")[0] == "1 remembered"
    assert "stored without its time" in result.err
    assert "bad line" not in result.out


def test_a_file_that_cannot_be_read_is_named_without_an_error_number(clawpy: Clawpy, tmp_path: Path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, reason in {"none.md": "No such file or directory", "binary": "it is not UTF-8"}.items():
        file = tmp_path / name
        assert f"{file} cannot be read: {reason}" in clawpy("profile", "cto", str(file)).err
