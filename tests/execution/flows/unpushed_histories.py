"""Histories with a secret, a large file or a tool's folder that must not be pushed.

Each is made on top of what a repository has, and leaves what must not be pushed in its commits, its index or both.
"""

from collections.abc import Callable

from tests.support.keys import GITHUB_TOKEN
from tests.support.repository import Repository

FILE = "einstellungen ü.py"
WITH_KEY = f"REGION = 'eu'\nKEY = '{GITHUB_TOKEN}'\nZONE = 1\n"
SAFE = "REGION = 'eu'\nKEY = os.environ['KEY']\nZONE = 1\n"
ENV = "DATABASE=shop\n"
ODD_NAMES = ("it's -x.py", "-n.py", "[id].py", "src/:p.py", ":q.py")
"""Names that a shell or git would take for something else."""


History = Callable[[Repository], None]


def make_commits(*changes: dict[str, str | None], edit: dict[str, str] | None = None) -> History:
    """A history with a commit for each of `changes`; None deletes a file. Then the files of `edit` are written."""

    def make(repository: Repository):
        for number, files in enumerate(changes):
            for path in [path for path, text in files.items() if text is None]:
                repository.git("rm", "-q", "--", f":(literal){path}")
            repository.commit(f"change {number}", {path: text for path, text in files.items() if text is not None})
        for path, text in (edit or {}).items():
            repository.write(path, text)

    return make


def rename_later(repository: Repository):
    repository.commit("change 0", {"old.py": WITH_KEY})
    repository.git("mv", "old.py", "new.py")
    repository.git("commit", "-q", "-m", "change 1")


def commit_above_merge(repository: Repository):
    repository.git("switch", "-q", "-c", "topic")
    repository.commit("topic", {"topic.py": WITH_KEY})
    repository.git("switch", "-q", "main")
    make_commits({FILE: WITH_KEY})(repository)
    repository.git("merge", "-q", "--no-ff", "topic")
    repository.git("branch", "-q", "-D", "topic")
    make_commits({"more.py": ""})(repository)


def commit_in_merge(repository: Repository):
    repository.git("switch", "-q", "-c", "topic")
    repository.commit("topic", {"topic.py": ""})
    repository.git("switch", "-q", "main")
    repository.commit("main", {"main.py": ""})
    repository.git("merge", "-q", "--no-ff", "--no-commit", "topic")
    repository.git("branch", "-q", "-D", "topic")
    repository.commit("merge", {FILE: WITH_KEY, ".env": ENV})


def merge_pushed_between(repository: Repository):
    repository.git("switch", "-q", "-c", "upstream")
    pushed = repository.commit("pushed", {"pushed.py": ""})
    repository.git("update-ref", "refs/remotes/origin/main", pushed)
    repository.git("switch", "-q", "main")
    repository.git("branch", "-q", "-D", "upstream")
    make_commits({FILE: WITH_KEY})(repository)
    repository.git("merge", "-q", "--no-ff", "origin/main")
    make_commits({"more.py": ""})(repository)


def commit_without_messages(repository: Repository):
    for files in ({FILE: WITH_KEY}, {"c.py": ""}):
        repository.commit("change", files)
        repository.git("commit", "-q", "--amend", "--allow-empty-message", "-m", "")


def detach_head(repository: Repository):
    repository.git("switch", "-q", "--detach")
    make_commits({FILE: WITH_KEY}, {FILE: SAFE})(repository)


KEEPING_HISTORIES: dict[str, History] = {
    "last": make_commits({FILE: WITH_KEY}),
    "last, edited out": make_commits({FILE: WITH_KEY}, edit={FILE: SAFE}),
    "last, file of keys": make_commits({".env": ENV, "src/a.py": WITH_KEY}),
    "last, merge": commit_in_merge,
    "earlier": make_commits({FILE: WITH_KEY, "b.py": ""}, {"c.py": ""}),
    "earlier, edited out": make_commits({FILE: WITH_KEY, "b.py": ""}, {"c.py": ""}, edit={FILE: SAFE}),
    "earlier, odd names": make_commits(
        dict.fromkeys(ODD_NAMES, WITH_KEY), {"i.py": "", "d.py": ""}, edit={"i.py": "mine\n"}
    ),
    "earlier, no message": commit_without_messages,
}  # fmt: skip
"""Histories whose commits the advice keeps, with their subjects."""

HISTORIES = KEEPING_HISTORIES | {
    "earlier, key in a file of keys": make_commits({"sub/.env": f"{ENV}KEY={GITHUB_TOKEN}\n"}, {"c.py": ""}),
    "removed later": make_commits({FILE: WITH_KEY}, {FILE: SAFE}),
    "deleted later": make_commits({FILE: WITH_KEY, ".env": ENV}, {FILE: None, ".env": None, "b.py": ""}),
    "renamed later": rename_later,
    "two commits": make_commits({FILE: WITH_KEY}, {"b.py": WITH_KEY}, {FILE: WITH_KEY * 2}),
    "large file": make_commits({"a.zip": "x" * 2_000_000}, {"a.zip": "y" * 2_500_000}),
    "tool's folder": make_commits({"web/node_modules/x/a.js": "1\n"}, {"b.py": ""}),
    "below a merge": commit_above_merge,
    "below a pushed merge": merge_pushed_between,
    "detached": detach_head,
}  # fmt: skip
"""Those, and others of which the advice makes one commit."""

ABOVE_A_COMMIT = {"last, merge", "below a merge", "below a pushed merge", "detached"}
"""Histories that cannot begin a repository: they need a commit below."""
