"""Lines that should not stay or be pushed: leftovers in code, secrets, and tests in quarantine (SPEC 2.1, 2.9)."""

from datetime import date

import pytest

from engine.git import Git
from engine.git.inspection import read_quarantined_tests
from engine.git.leftovers import (
    QuarantinedTest,
    find_removable_lines,
    find_secret_kind,
    is_secret_file,
    remove_lines,
    scan_line,
)
from tests.support.helpers import GITHUB_TOKEN, read_table
from tests.support.repository import Repository

TABLE = read_table(__file__)


@pytest.mark.parametrize("path, line, kinds", TABLE["lines"])
def test_debugging_markers_and_todos_are_found_in_a_line(path: str, line: str, kinds: list[str]):
    assert [hit.kind for hit in scan_line(path, line)] == kinds


def test_quarantined_tests_are_found_with_their_last_day(repository: Repository):
    quarantined = (
        "class TestCart:\n    def test_0(self):\n        pass\n\n"
        '    @pytest.mark.skip(reason="quarantined until 2026-02-01")\n    async def test_1(self):\n        pass\n'
        '@pytest.mark.skip(reason="quarantined until 2026-03-01")\nclass TestTax:\n    def helper(self): ...\n'
        "    def test_2(self):\n        pass\n    def test_3(self):\n        pass\ndef test_4():\n    pass\n"
    )
    named_only = "TEXT = '@pytest.mark.skip(reason=\"quarantined until 2026-02-01\")'\ndef test_b():\n    pass\n"
    repository.commit("tests", {"ü b/test_c.py": quarantined, "tests/test_other.py": named_only})
    assert read_quarantined_tests(Git(repository.path), "HEAD") == (
        QuarantinedTest("ü b/test_c.py::TestCart::test_1", date(2026, 2, 1)),
        QuarantinedTest("ü b/test_c.py::TestTax::test_2", date(2026, 3, 1)),
        QuarantinedTest("ü b/test_c.py::TestTax::test_3", date(2026, 3, 1)),
    )


PYTHON = """\
import pdb
import os; breakpoint()
def a():
    breakpoint()
    if os.sep: pdb.set_trace()
    x = breakpoint(
    )
    import pdb; pdb.set_trace()
    breakpoint()  # why
"""


def test_python_loses_only_whole_statements():
    assert find_removable_lines("a.py", PYTHON, range(1, 10)) == [1, 4, 8]
    after = remove_lines("a.py", "def a():\n    breakpoint()\n\ndef b():\n    pass\n", [2])
    assert after == "def a():\n    pass\n\ndef b():\n    pass\n"
    assert find_removable_lines("a.py", "def a(:\n    breakpoint()\n", [2]) == []


@pytest.mark.parametrize("path, text, expected", TABLE["removable_lines"])
def test_other_languages_are_judged_by_their_lines(path: str, text: str, expected: list[int]):
    assert find_removable_lines(path, text, range(1, 5)) == expected


@pytest.mark.parametrize(
    "path, line, kind",
    [
        # put together here so that no scanner takes this file for a leak
        ("config.py", "AK" + "IA" + "Q7W2E9R4T1Y8U3I6", "AWS access key"),
        ("config.py", "-----BEGIN RSA " + "PRIVATE KEY-----", "private key"),
        ("config.py", "xo" + "xb-123456789012-abcdef", "Slack token"),
        ("config.py", "postgres://app:" + "s3cr3tpw@db.internal/x", "password in a URL"),
        ("config.py", "api_key = " + "'q8Zr2Lk9Xw4Tn7Bv'", "value that looks like a key"),
        ("deploy.yml", "  password: k9Zr2-Lk9Xw4Tn7B", "value that looks like a key"),
        (".env.production", "aws_secret_access_key=" + "q8Zr2Lk9Xw4Tn7Bv+/" * 2 + "a1b2", "AWS secret key"),
        ("docs/config.rst", f"TOKEN = '{GITHUB_TOKEN}'", "GitHub token"),
        ("docs/config.rst", "SECRET_KEY = '192b9bdd22ab9ed4d12e236c78afcb9a'", ""),
        ("t/unit/__init__.py", f"TOKEN = '{GITHUB_TOKEN}'", ""),
        ("k8s.yml", "  secretName: shop-tls-2024-prod-1", ""),
        ("ci.yml", "  token: ${{ secrets.DEPLOY_TOKEN_1 }}", ""),
        ("compose.yml", "url: postgres://shop:s3cr3tpw@db/shop", ""),
        ("config.py", "password = 'changeme1234'", ""),
        ("config.py", "token = os.environ['TOKEN']", ""),
        ("config.py", "api_key: '${API_KEY_FROM_VAULT}'", ""),
        ("config.py", "secret = 'aaaaaaaaaaaaaaaa1'", ""),
        ("config.py", "url = 'https://user:{password}@host'", ""),
        ("config.py", "PASSWORD_FIELD = 'password_confirmation'", ""),
        ("config.py", "if '-----BEGIN RSA PRIVATE KEY-----' in text:", ""),
        ("config.py", "url = 'postgres://postgres:postgres1@localhost/shop'", ""),
        ("config.py", "key = 'AKIAIOSFODNN7EXAMPLE'", ""),
        ("yarn.lock", 'token@^1: "q8Zr2Lk9Xw4Tn7Bvq8Zr2Lk9"', ""),
        ("login.py", "secret = hash(token + password)", ""),
        ("config.py", "class = 'sk-estimator-doc-link-with-a-very-long-name-indeed'", ""),
    ],
)
def test_a_line_that_holds_a_secret_is_told_from_one_that_only_looks_like_it(path: str, line: str, kind: str):
    after = "MIIEowIBAAKCAQEA" * 4 if kind else ""  # only with such a line behind it is a "BEGIN PRIVATE KEY" a secret
    assert find_secret_kind(path, line, after) == kind
    assert [hit.kind for hit in scan_line(path, line, after) if hit.is_secret] == (
        [f"likely secret: {kind}"] if kind else []
    )


@pytest.mark.parametrize(
    "name, holds_keys",
    [(".env", True), ("a/id_rsa", True), ("b.pfx", True), (".env.example", False), ("id_rsa.pub", False)],
)
def test_files_that_hold_keys_are_known_by_their_names(name: str, holds_keys: bool):
    assert is_secret_file(name) is holds_keys
