"""`clawpy help` (SPEC 9.8): the pages in `docs/`, plain when piped and rendered in a terminal; all verbs as JSON."""

import contextlib
import os
import pty
import subprocess
from pathlib import Path

import pytest

from clawpy_console.cli.verbs import VERBS
from engine.home import Home
from tests.cli.calls import Clawpy
from tests.support.programs import make_clawpy_command
from tests.support.settings import write_settings

DOCS = Path(__file__).parents[2] / "docs"


def test_all_pages_are_listed_with_their_headings(clawpy: Clawpy):
    listed = clawpy("help").out
    for file in DOCS.glob("*.md"):
        heading = file.read_text().partition("\n")[0].removeprefix("# ")
        assert f"- `clawpy help {file.stem.lower()}`: {heading}\n" in listed
    assert "`clawpy help keys`: Keys of the console" in listed


def test_all_verbs_and_their_arguments_are_one_json_document(clawpy: Clawpy):
    document = clawpy("help", "--json").document
    verbs = {verb["name"]: verb for verb in document["verbs"]}
    assert {name: verb["summary"] for name, verb in verbs.items()} == {
        name: verb.summary for name, verb in VERBS.items()
    }
    assert verbs["snooze"]["arguments"][1] == {
        "name": "--for", "help": "30m, 2h or 1d (default: 2h)", "type": "span", "metavar": "SPAN",
    }  # fmt: skip
    assert [action["name"] for action in verbs["drafts"]["actions"]] == ["list", "promote", "dismiss"]
    assert "--json" in [option["name"] for option in document["options"]]
    assert "secret_words" not in str(verbs["key"]), "an argument that is refused is not shown"
    assert {"topic": "keys", "title": "Keys of the console"} in document["pages"]


def test_a_page_is_a_json_document(clawpy: Clawpy):
    document = clawpy("help", "Glossary", "--json").document
    assert document == {"topic": "glossary", "text": (DOCS / "GLOSSARY.md").read_text()}


def test_the_keys_are_those_of_the_settings(clawpy: Clawpy, home: Home):
    assert "| ? | " in clawpy("help", "keys").out
    write_settings(home, '[keys]\n"app.help" = "f9"\n')
    assert "| F9 | " in clawpy("help", "keys").out


def test_a_page_that_does_not_exist_is_refused_with_the_nearest(clawpy: Clawpy):
    refused = clawpy("help", "glosary")
    assert (refused.code, refused.err) == (1, "clawpy: there is no page 'glosary'\n        one of glossary\n")


@pytest.mark.long
@pytest.mark.parametrize("colour", [True, False], ids=["colour", "no colour"])
def test_in_a_terminal_it_is_rendered_and_paged(home: Home, colour: bool):
    ours, theirs = pty.openpty()
    environment = os.environ | {"PAGER": "cat", "TERM": "xterm-256color"} | ({} if colour else {"NO_COLOR": "1"})
    command = make_clawpy_command(home.root, "help")
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        printed = b""
        with contextlib.suppress(OSError):  # its end
            while piece := os.read(ours, 4096):
                printed += piece
        os.close(ours)
    assert process.returncode == 0
    assert "• ".encode() in printed, "where the page has a dash"
    assert b"# Pages" not in printed
    assert (b";40m" in printed) is colour
