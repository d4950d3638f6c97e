"""Documentation that names what your own changes removed (SPEC 2.11)."""

from engine.git import Git
from engine.git.patch import read_own_patch
from engine.git.reader import GitReader
from engine.git.stale_mentions import find_stale_mentions
from tests.support.repository import Repository


def read_mentions(repository: Repository) -> list[tuple[str, int, str, str]]:
    """File, line, old and new name of each mention of something removed."""
    git = Git(repository.path)
    mentions = find_stale_mentions(git, read_own_patch(git, GitReader().read(repository.path)))
    return [(mention.path, mention.line, mention.old, mention.new) for mention in mentions]


def test_documentation_that_names_removed_code_is_found(repository: Repository):
    repository.commit(
        "one",
        {
            "src/cart.py": "def old_total(prices):\n    return sum(prices)\n\ndef total():\n    pass\n",
            "src/cli.py": 'add("--old-flag", help="x")\n',
            "conf.toml": "old_key = 1\nkept = 2\n",
            "README.md": "Call `old_total(x)`.\nSee src/cart.py.\nSet `old_key`.\nTotal of it.\nPass --old-flag now.\n"
            "`old_total` was removed in 2.0.\n",
            "CHANGELOG.md": "old_total is new\n",
        },
    )
    repository.git("mv", "src/cart.py", "src/basket.py")
    repository.write("src/basket.py", "def new_total(prices):\n    return sum(prices)\n\ndef total():\n    pass\n")
    repository.write("src/cli.py", 'add("--new-flag", help="x")\n')
    repository.write("conf.toml", "kept = 2\n")
    repository.git("add", "-A")
    assert read_mentions(repository) == [
        ("README.md", 1, "old_total", "new_total"),
        ("README.md", 2, "src/cart.py", "src/basket.py"),
        ("README.md", 3, "old_key", ""),
        ("README.md", 5, "--old-flag", "--new-flag"),
    ]
    repository.write("other.py", "old_total = 1\n")
    assert ("README.md", 1, "old_total", "new_total") not in read_mentions(repository)
