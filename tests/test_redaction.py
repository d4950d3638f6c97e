"""Secrets are removed from text that comes as a whole, in pieces, or over several lines (SPEC 11.1)."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.redaction import CUT, PRIVATE_KEY_LINES, Redactor, redact, redact_json, redact_lines

KNOWN, SHAPED, NAMED = "correct-horse-battery", "sk-ant-0123456789abcdefghij", "hunter2hunter2"
"""A secret that is known, one that is recognised by its shape, and one that is recognised by a name before it."""

PRIVATE = [
    "-----BEGIN OPENSSH PRIVATE KEY-----",
    "b3BlbnNzaC1rZXk",
    "AAAAB3NzaC1yc2E",
    "-----END OPENSSH PRIVATE KEY-----",
]
"""A private key."""

BASE64 = "AQEA7bq9Zk/x" * 6
"""As wide as a line of a private key."""

FIRST_BYTES = {
    "RSA": "308204a40201000282010100",
    "a small RSA one": "3082025c020100028181",
    "PKCS 8": "308204be020100300d06092a864886f70d010101",
    "PKCS 8 on a curve": "308187020100301306072a8648ce3d0201",
    "Ed25519": "302e020100300506032b657004220420",
    "SEC 1": "30770201010420",
    "encrypted": "3082051c304e06092a864886f70d01050d",
    "OpenSSH": b"openssh-key-v1\0".hex(),
}
"""The first bytes of private keys, in hexadecimal, by their kind."""


@pytest.mark.parametrize("piece", ["a.", "a-", "-eyJaaaaaaaaaaa", "://a:", "://a", "ya29."])
def test_a_hostile_line_is_searched_for_secrets_in_one_pass(piece: str):
    line = piece * (400_000 // len(piece))
    assert redact(line) == line, "in time that grows with its square this would not end"


def test_a_password_in_an_address_is_cut_out():
    assert redact("git clone https://me:hunter2@box/repo") == "git clone https://me:[secret cut]@box/repo"
    assert redact("postgresql+psycopg://u:p4ss@h/d") == "postgresql+psycopg://u:[secret cut]@h/d"
    assert redact("see https://box:8080/a@b") == "see https://box:8080/a@b"
    assert redact(f"Authorization: Bearer {'eyJhbGciOiJIUzI1NiJ9' * 2}.x") == "Authorization: Bearer [secret cut]"


@given(st.lists(st.sampled_from(["plain", "", f"x {KNOWN} y", f"PASSWORD={NAMED}", SHAPED, *PRIVATE]), max_size=12))
def test_lines_in_pieces_are_cut_like_the_whole(lines: list[str]):
    whole = redact_lines(lines, [KNOWN])
    for cut in range(len(lines) + 1):
        redactor = Redactor(lambda: [KNOWN])
        assert redactor.redact(lines[:cut]) + redactor.redact(lines[cut:]) == whole


@pytest.mark.parametrize(
    "lines, shown",
    [
        ([PRIVATE[0], BASE64, BASE64], [CUT, CUT, CUT]),
        ([PRIVATE[0], "Proc-Type: 4,ENCRYPTED", "", BASE64], [CUT, CUT, "", CUT]),
        ([PRIVATE[0], BASE64, "short", "word"], [CUT, CUT, CUT, "word"]),
        ([f"cut here: {PRIVATE[0]}"], [CUT]),
    ],
    ids=["two lines", "encrypted", "a short last line", "a text that speaks of keys"],
)
def test_only_the_lines_of_a_private_key_without_end_are_cut(lines: list[str], shown: list[str]):
    other_lines = ["Collecting tests", "", "tests/core/test_values.py ..", "3 passed", "done"]
    assert redact_lines([*lines, *other_lines]) == [*shown, *other_lines]


def test_lines_of_another_program_between_those_of_a_key_stay():
    lines = [PRIVATE[0], BASE64, "warning: no such file", BASE64, "3 tests passed", BASE64]
    assert redact_lines(lines) == [CUT, CUT, "warning: no such file", CUT, "3 tests passed", CUT]


def test_a_line_long_after_a_private_key_is_not_part_of_it():
    other_lines = ["3 tests passed"] * PRIVATE_KEY_LINES
    assert redact_lines([PRIVATE[0], *other_lines, BASE64]) == [CUT, *other_lines, BASE64]


@pytest.mark.parametrize(
    "shown", ["{}", "  {}", "+{}", "    12\t{}", "12:{}", "id_rsa:12:{}", '    "{}\\n"', "> {}", "2026-01-01 INFO {}"]
)
def test_a_private_key_is_recognised_however_its_lines_are_shown(shown: str):
    lines = [shown.format(line) for line in (PRIVATE[0], BASE64, BASE64, PRIVATE[-1])]
    assert redact_lines([*lines, "done"]) == [CUT] * 4 + ["done"]


@pytest.mark.parametrize("first", FIRST_BYTES.values(), ids=FIRST_BYTES)
def test_a_private_key_is_recognised_without_its_first_line(first: str):
    key = b64encode(bytes.fromhex(first) + bytes(range(90))).decode()
    lines = [key[:64], key[64:128], key[128:], "3 tests passed"]
    assert redact_lines(lines) == [CUT, CUT, CUT, "3 tests passed"]


@pytest.mark.parametrize(
    "first",
    ["308203773082025fa003020102", "30820122300d06092a864886f70d01010105000382010f00", b"\0\0\0\7ssh-rsa".hex()],
    ids=["a certificate", "a public key", "a public key of OpenSSH"],
)
def test_certificates_and_public_keys_stay(first: str):
    encoded = b64encode(bytes.fromhex(first) + bytes(range(90))).decode()
    assert redact_lines([encoded[:64], encoded[64:]]) == [encoded[:64], encoded[64:]]


def test_a_secret_is_cut_from_the_moment_it_is_known():
    known = []
    redactor = Redactor(lambda: known)
    assert redactor.redact([KNOWN]) == [KNOWN]
    known.append(KNOWN)
    assert redactor.redact([KNOWN]) == [CUT]


@pytest.mark.parametrize(
    "code",
    ["password=getpassword2(user)", "secret = base64.b64decode(text)", "api_key: str", "if token == other_token_2:"],
)
def test_code_that_only_names_a_secret_stays_readable(code: str):
    assert redact(code) == code


def test_secrets_are_cut_out_of_every_text_of_a_json_value_but_excepted_keys():
    value = {"facts": [SHAPED, 3, None], "id": SHAPED, "deep": {"text": f"PASSWORD={NAMED}"}}
    expected = {"facts": [CUT, 3, None], "id": SHAPED, "deep": {"text": f"PASSWORD={CUT}"}}
    assert redact_json(value, kept={"id"}) == expected
