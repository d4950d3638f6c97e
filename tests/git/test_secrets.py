"""A line or a file that holds a secret is told from one that only looks like it (SPEC 2.9)."""

import pytest

from engine.git.leftovers import scan_line
from engine.git.secrets import find_secret_kind, is_secret_file
from tests.support import read_table
from tests.support.keys import GITHUB_TOKEN

TABLE = read_table(__file__)

SECRETS = [
    # put together here so that no scanner takes this file for a leak
    ("config.py", "AK" + "IA" + "Q7W2E9R4T1Y8U3I6", "AWS access key"),
    ("config.py", "-----BEGIN RSA " + "PRIVATE KEY-----", "private key"),
    ("config.py", "xo" + "xb-123456789012-abcdef", "Slack token"),
    ("config.py", "postgres://app:" + "s3cr3tpw@db.internal/x", "password in a URL"),
    ("config.py", "api_key = " + "'q8Zr2Lk9Xw4Tn7Bv'", "value that looks like a key"),
    ("deploy.yml", "  password: k9Zr2-Lk9Xw4Tn7B", "value that looks like a key"),
    (".env.production", "aws_secret_access_key=" + "q8Zr2Lk9Xw4Tn7Bv+/" * 2 + "a1b2", "AWS secret key"),
    ("docs/config.rst", f"TOKEN = '{GITHUB_TOKEN}'", "GitHub token"),
    ("t/unit/__init__.py", f"TOKEN = '{GITHUB_TOKEN}'", ""),
]
"""Paths, lines, and the kind of secret in each; none counts in a test."""


@pytest.mark.parametrize("path, line, kind", [*SECRETS, *((*row, "") for row in TABLE["lines_without_a_secret"])])
def test_a_line_that_holds_a_secret_is_told_from_one_that_only_looks_like_it(path: str, line: str, kind: str):
    after = "MIIEowIBAAKCAQEA" * 4 if kind else ""  # only with such a line behind it is a "BEGIN PRIVATE KEY" a secret
    assert find_secret_kind(path, line, after) == kind
    assert [hit.kind for hit in scan_line(path, line, after) if hit.is_secret] == (
        [f"likely secret: {kind}"] if kind else []
    )


@pytest.mark.parametrize(
    "name, holds_keys",
    TABLE["key_files"],
)
def test_files_that_hold_keys_are_known_by_their_names(name: str, holds_keys: bool):
    assert is_secret_file(name) is holds_keys
