"""Histories with a secret, a large file or a tool's folder that must not be pushed.

Each is made on top of what a repository has, and leaves what must not be pushed in its commits, its index or both.
"""

from collections.abc import Callable

from tests.conftest import Repository
from tests.support.helpers import GITHUB_TOKEN

FILE = "einstellungen ü.py"
WITH_KEY = f"REGION = 'eu'\nKEY = '{GITHUB_TOKEN}'\nZONE = 1\n"
SAFE = "REGION = 'eu'\nKEY = os.environ['KEY']\nZONE = 1\n"
ENV = "DATABASE=shop\n"
ODD_NAMES = ("it's -x.py", "-n.py", "[id].py", "src/:p.py", ":q.py")


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


def untrack_later(repository: Repository):
    repository.commit("change 0", {".env": ENV, FILE: WITH_KEY})
    repository.git("rm", "-q", "--cached", ".env", FILE)
    repository.git("commit", "-q", "-m", "change 1")
    (repository.path / ".git/info/exclude").write_text(".env\n")


def rename_later(repository: Repository):
    repository.commit("change 0", {"old.py": WITH_KEY})
    repository.git("mv", "old.py", "new.py")
    repository.git("commit", "-q", "-m", "change 1")


def delete_by_hand(repository: Repository):
    make_commits({FILE: WITH_KEY, "b.py": ""}, {"c.py": ""})(repository)
    (repository.path / FILE).unlink()


def untrack_by_hand(repository: Repository):
    make_commits({".env": ENV, FILE: WITH_KEY, "b.py": ""})(repository)
    repository.git("rm", "-q", "--cached", ".env", FILE)


def repeat_subjects(repository: Repository):
    for name, text in (("a.py", ""), (FILE, WITH_KEY), ("b.py", ""), ("c.py", WITH_KEY), ("d.py", "")):
        repository.commit("wip", {name: text})


def add_own_fixup(repository: Repository):
    make_commits({"a.py": ""}, {FILE: WITH_KEY}, {"b.py": ""})(repository)
    repository.commit("fixup! change 0", {"a.py": "x = 1\n"})


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


def add_by_intent(repository: Repository):
    make_commits({FILE: WITH_KEY}, {"c.py": ""})(repository)
    repository.write("new.py", "mine\n")
    repository.git("add", "--intent-to-add", "new.py")


def hide_changes_with(*options: str) -> History:
    """A history with changes that git does not look for because of these options, in a file with a secret and in
    another one."""

    def make(repository: Repository):
        make_commits({FILE: WITH_KEY}, {"c.py": ""}, {"d.py": ""})(repository)
        for option in options:
            repository.git("update-index", option, FILE, "c.py")
        repository.write("c.py", "mine\n")

    return make


def make_nameless_commits(*changes: dict[str, str]) -> History:
    """A history with commits that have no message."""

    def make(repository: Repository):
        for files in changes:
            repository.commit("change", files)
            repository.git("commit", "-q", "--amend", "--allow-empty-message", "-m", "")

    return make


def rename_keys(repository: Repository):
    make_commits({".env": f"KEY='{GITHUB_TOKEN}'\n", "conf.py": WITH_KEY}, {"b.py": ""})(repository)
    repository.git("mv", ".env", "env.sample")
    repository.git("mv", "conf.py", "conf.example.py")
    repository.git("commit", "-q", "-m", "rename")


def rename_keys_by_hand(repository: Repository):
    make_commits({".env": f"KEY='{GITHUB_TOKEN}'\n"})(repository)
    repository.git("mv", ".env", "env.sample")


def detach_head(repository: Repository):
    repository.git("switch", "-q", "--detach")
    make_commits({FILE: WITH_KEY}, {FILE: SAFE})(repository)


KEEPING_HISTORIES: dict[str, History] = {
    "last": make_commits({FILE: WITH_KEY}),
    "last, edited out": make_commits({FILE: WITH_KEY}, edit={FILE: SAFE}),
    "last, nothing but the key": make_commits({FILE: SAFE}, {FILE: WITH_KEY}),
    "last, file of keys": make_commits({".env": ENV, "src/a.py": WITH_KEY}),
    "last, file of keys with another line": make_commits({".env": ENV}, edit={".env": ENV + "MINE=1\n"}),
    "last, key in a file of keys": make_commits({".env": f"{ENV}KEY={GITHUB_TOKEN}\n"}),
    "last, taken out of the index": untrack_by_hand,
    "last, merge": commit_in_merge,
    "earlier": make_commits({FILE: WITH_KEY, "b.py": ""}, {"c.py": ""}),
    "earlier, other line": make_commits({FILE: WITH_KEY}, {"c.py": ""}, edit={FILE: WITH_KEY + "MINE = 1\n"}),
    "earlier, edited out": make_commits({FILE: WITH_KEY, "b.py": ""}, {"c.py": ""}, edit={FILE: SAFE}),
    "earlier, nothing but the key": make_commits({"a.py": SAFE}, {"b.py": "", "c.py": WITH_KEY}, {"d.py": ""}),
    "earlier, alone": make_commits({"c.py": WITH_KEY}, {"d.py": ""}, {"e.py": WITH_KEY}, {"f.py": ""}),
    "earlier, deleted by hand": delete_by_hand,
    "earlier, odd names": make_commits(
        dict.fromkeys(ODD_NAMES, WITH_KEY), {"i.py": "", "d.py": ""}, edit={"i.py": "mine\n"}
    ),
    "earlier, same subjects": repeat_subjects,
    "last, no message": make_nameless_commits({FILE: WITH_KEY}),
    "earlier, no message": make_nameless_commits({FILE: WITH_KEY}, {"c.py": ""}),
}  # fmt: skip
"""Histories whose commits the advice keeps, with their subjects."""

HISTORIES = KEEPING_HISTORIES | {
    "earlier, fixup of your own": add_own_fixup,
    "earlier, file of keys": make_commits({".env": ENV, "b.py": ""}, {"c.py": ""}),
    "earlier, file of keys, changed": make_commits(
        {".env": ENV}, {".env": ENV + "MORE=1\n"}, edit={".env": "MINE=1\n"}
    ),
    "earlier, key in a file of keys": make_commits({"sub/.env": f"{ENV}KEY={GITHUB_TOKEN}\n"}, {"c.py": ""}),
    "changed later": make_commits({FILE: WITH_KEY}, {"b.py": ""}, {FILE: WITH_KEY + "MORE = 1\n"}),
    "removed later": make_commits({FILE: WITH_KEY}, {FILE: SAFE}),
    "removed later, other line": make_commits({FILE: WITH_KEY}, {FILE: SAFE}, edit={FILE: SAFE + "MINE = 1\n"}),
    "removed and back": make_commits({FILE: WITH_KEY}, {FILE: SAFE}, {FILE: WITH_KEY}),
    "deleted later": make_commits({FILE: WITH_KEY, ".env": ENV}, {FILE: None, ".env": None, "b.py": ""}),
    "deleted later, all": make_commits({FILE: WITH_KEY}, {FILE: None}),
    "other file deleted later": make_commits(
        {"x.py": "1\n"}, {FILE: WITH_KEY}, {"x.py": None}, edit={"x.py": "mine\n"}
    ),
    "untracked later": untrack_later,
    "renamed later": rename_later,
    "two commits": make_commits({FILE: WITH_KEY}, {"b.py": WITH_KEY}, {FILE: WITH_KEY * 2}),
    "large file": make_commits({"a.zip": "x" * 2_000_000}, {"a.zip": "y" * 2_500_000}),
    "tool's folder": make_commits({"web/node_modules/x/a.js": "1\n"}, {"b.py": ""}),
    "below a merge": commit_above_merge,
    "below a pushed merge": merge_pushed_between,
    "detached": detach_head,
    "earlier, intended to add": add_by_intent,
    "earlier, assumed unchanged": hide_changes_with("--assume-unchanged"),
    "earlier, hidden twice": hide_changes_with("--skip-worktree", "--assume-unchanged"),
    "changed later, no message": make_nameless_commits({FILE: WITH_KEY}, {FILE: WITH_KEY + "MORE = 1\n", ".env": ENV}),
    "file of keys renamed": rename_keys,
    "file of keys renamed by hand": rename_keys_by_hand,
}  # fmt: skip
"""Those, and others of which the advice makes one commit."""

ABOVE_A_COMMIT = {"last, merge", "below a merge", "below a pushed merge", "detached"}
"""Histories that cannot begin a repository: they need a commit below."""
