"""Profiles of Seatbelt, the rung of macOS, which cannot be run here (SPEC 3.8)."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.sandbox import Confinement
from engine.execution.sandbox.programs import make_profile, quote_path


@pytest.fixture
def confinement(tmp_path: Path) -> Confinement:
    for name in ("home/folder/.git", "home/folder/deep/secret", "home/scratch", "home/caches", "home/.ssh"):
        (tmp_path / name).mkdir(parents=True)
    home = tmp_path / "home"
    return Confinement(
        home / "folder", home / "scratch", home / "caches", hidden=(home / ".ssh", home / "folder" / "deep" / "secret")
    )


def split_quoted(text: str) -> tuple[list[str], str]:
    """The strings of a profile, and the text outside of them."""
    parts = re.split(r'"((?:[^"\\]|\\.)*)"', text)
    return [re.sub(r"\\(.)", r"\1", part) for part in parts[1::2]], "".join(parts[::2])


def test_the_profile_denies_first_and_lets_the_deeper_path_decide(confinement: Confinement):
    text = make_profile(confinement)
    folder = confinement.folder
    order = [
        "(deny default)",
        f'(allow file-read* file-write* (subpath "{folder}"))',
        f'(deny file-write* (subpath "{folder}/.git"))',
        f'(deny file-read* file-write* (subpath "{folder}/deep/secret"))',
    ]
    assert sorted(order, key=text.index) == order
    assert f'(deny file-write-unlink (literal "{folder}/deep"))' in text
    assert "network" not in text


def test_the_profile_with_network_denies_unix_sockets(confinement: Confinement):
    text = make_profile(replace(confinement, network=True))
    assert text.index("(allow network*)") < text.index("(deny network-outbound (remote unix-socket))")


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "a\x1bb", "a\x7fb"])
def test_a_path_with_a_control_character_is_refused(name: str):
    with pytest.raises(ValueError, match="control character"):
        quote_path(name)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30))
def test_any_quoted_text_is_one_string(text: str):
    assert split_quoted(quote_path(text)) == ([text], "")
