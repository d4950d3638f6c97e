"""Landing and undo of each sort of file and repository (SPEC 3.9)."""

import shutil
from pathlib import Path

import pytest

from engine.beneath import Beneath
from engine.model import FilePart
from tests.execution.changesets.landing_world import FILES, TEXT, LandingWorld, assert_landing_is_refused, make_edits
from tests.support.checks import refused


@pytest.fixture
def world(landing_world: LandingWorld) -> LandingWorld:
    landing_world.repository.commit("one", FILES)
    return landing_world


@pytest.fixture
def world_with_submodule(world: LandingWorld, tmp_path: Path) -> LandingWorld:
    """A world whose repository has the submodule `vendor/lib`."""
    library = LandingWorld(tmp_path / "library").repository
    library.commit("one", {"x.txt": "1"})
    world.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library.path), "vendor/lib")
    world.repository.commit("part")
    return world


def edit_submodule(folder: Path):
    (folder / "vendor/lib/x.txt").write_text("fixed\n")


def edit_submodule_and_file(folder: Path):
    edit_submodule(folder)
    (folder / "a.txt").write_text("new\n")


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_modes_links_deletions_and_folders_land_and_are_undone(world: LandingWorld, object_format: str):
    shutil.rmtree(world.root / ".git")
    world.git("init", "-q", f"--object-format={object_format}")
    world.write("private.txt", "p\n").chmod(0o600)
    world.write("fixed.txt", "f\n").chmod(0o444)
    world.write("run.sh", "r\n").chmod(0o750)
    (world.root / "link").symlink_to("./a.txt")
    (world.root / "d").chmod(0o711)

    def edit(folder: Path):
        (folder / "private.txt").write_text("P\n")
        (folder / "fixed.txt").unlink()
        (folder / "fixed.txt").write_text("F\n")
        (folder / "run.sh").chmod(0o644)
        (folder / "a.txt").chmod(0o755)
        (folder / "d/only.txt").unlink()
        (folder / "d").rmdir()
        (folder / "link").unlink()
        (folder / "link").symlink_to("b.txt/../d//")
        (folder / "b.txt").unlink()
        (folder / "b.txt").mkdir()
        (folder / "b.txt/inner").write_bytes(b"\0\xff\r\n")

    change_set = world.make_change(edit)
    before, state = world.files, world.git_state

    change_set.land()

    after = world.files
    assert after["private.txt"] == ("file", 0o600, b"P\n")
    assert after["fixed.txt"] == ("file", 0o444, b"F\n")
    assert after["run.sh"] == ("file", 0o640, b"r\n")
    assert after["a.txt"][1] == 0o755
    assert after["link"] == ("link", 0, b"b.txt/../d//")
    assert after["b.txt/inner"][2] == b"\0\xff\r\n"
    assert "d" not in after
    change_set.undo()
    assert world.files == before
    assert world.git_state == state


def test_line_endings_are_those_of_a_checkout_and_restored_by_the_undo(world: LandingWorld):
    world.git("config", "core.autocrlf", "true")
    (world.root / "dos.txt").write_bytes(b"one\r\n")
    (world.root / "unix.txt").write_bytes(b"one\n")

    def edit(folder: Path):
        for name in ("dos.txt", "unix.txt"):
            (folder / name).write_bytes((folder / name).read_bytes() + b"two\r\n")
        (folder / "a.txt").chmod(0o755)
        (folder / ".gitattributes").write_text("*.lf eol=lf\n")
        (folder / "new.lf").write_text("x\ny\n")

    change_set = world.make_change(edit)
    before = world.files

    change_set.land()

    expected = {"dos.txt": b"one\r\ntwo\r\n", "unix.txt": b"one\r\ntwo\r\n", "new.lf": b"x\ny\n"}
    assert {name: (world.root / name).read_bytes() for name in expected} == expected
    assert (world.root / "a.txt").read_bytes() == TEXT.encode()  # the mode alone changed
    change_set.undo()
    assert world.files == before


@pytest.mark.parametrize("readable", [True, False])
def test_a_submodule_with_files_is_listed_with_its_place_and_never_landed(
    world_with_submodule: LandingWorld, monkeypatch: pytest.MonkeyPatch, readable: bool
):
    world = world_with_submodule
    with monkeypatch.context() as patched:
        if not readable:
            patched.setattr(Beneath, "names", lambda root, path: Path("/nowhere").stat())
        change_set = world.make_change(edit_submodule)
    [file] = change_set.files
    place = world.worktrees.folder_of(change_set.session_id) / "vendor/lib/x.txt"
    assert (file.path, file.status, file.can_land) == ("vendor/lib/", "left out", False)
    assert file.note == f"files in a submodule; not landed: see {place.parent}"
    before = world.files

    refusal = refused("unsupported_files", change_set.land)

    assert f"`clawpy discard {change_set.id}`" in refusal.fix
    assert world.files == before
    change_set.discard()
    assert not place.exists()


def test_what_is_left_out_waits_in_the_session_s_folder_after_the_landing(world_with_submodule: LandingWorld):
    world = world_with_submodule
    before, change_set = world.files, world.make_change(edit_submodule_and_file)
    place = world.worktrees.folder_of(change_set.session_id) / "vendor/lib/x.txt"

    landed = change_set.land()

    assert world.read_file("a.txt") == "new\n"
    assert (landed.state, landed.landed, [file.path for file in landed.files]) == ("waiting", 1, ["vendor/lib/"])
    assert place.read_text() == "fixed\n"
    assert change_set.undo().state == "undone"
    assert world.files == before
    assert [file.path for file in change_set.current.files] == ["a.txt", "vendor/lib/"]
    change_set.land()
    assert change_set.discard().state == "landed"
    assert not place.exists()


@pytest.mark.long
def test_a_branch_or_a_continuation_is_refused_while_it_would_delete_what_is_left_out(
    world_with_submodule: LandingWorld,
):
    world = world_with_submodule
    change_set = world.make_change(edit_submodule_and_file)
    folder = world.worktrees.folder_of(change_set.session_id)
    assert "vendor/lib/" in refused("unsupported_files", change_set.branch).message
    continuation = refused(
        "unsupported_files",
        lambda: world.run_session(edit_submodule, name="session_2", continues=change_set.session_id),
    )
    assert "vendor/lib/" in continuation.message
    (folder / "vendor/lib/x.txt").rename(world.folder / "x.txt")
    assert change_set.branch().state == "branched"


def test_a_refusal_names_the_files_and_the_command_that_lands_the_others(world: LandingWorld):
    def edit(folder: Path):
        (folder / "the evil").symlink_to("/etc/passwd")
        (folder / "a.txt").write_text("new\n")
        (folder / "b.txt").unlink()

    change_set = world.make_change(edit)
    before, folder = world.files, world.worktrees.folder_of(change_set.session_id)
    reason = "these cannot be landed: the evil (a link that points outside the project, to /etc/passwd)"
    way_on = f"`clawpy land {change_set.id} --without 'the evil'` lands the other 2 files; the rest is in {folder}"

    refusal = refused("unsupported_files", change_set.land)

    assert (refusal.message, refusal.fix) == (f"nothing was landed, because {reason}", way_on)
    assert world.files == before
    refusal = refused("unsupported_files", change_set.branch)
    assert (refusal.message, refusal.fix) == (f"no branch was made, because {reason}", way_on)
    rest = change_set.land(FilePart("a.txt"), FilePart("b.txt"))
    assert [file.path for file in rest.files] == ["the evil"]
    refusal = refused("unsupported_files", change_set.land)
    assert refusal.fix == f"copy what you need from {folder}, then `clawpy discard {change_set.id}`"


def test_a_file_with_a_filter_program_is_not_landed_and_no_filter_runs(world: LandingWorld):
    world.git("config", "filter.lfs.clean", f"touch {world.folder}/trap; cat")
    world.git("config", "filter.lfs.smudge", f"touch {world.folder}/trap; cat")
    world.write(".gitattributes", "*.bin filter=lfs\n")
    change_set = world.make_change(make_edits({"big.bin": "theirs\n"}))

    assert "lfs" in assert_landing_is_refused(world, change_set, "unsupported_files").message
    refused("unsupported_files", change_set.branch)
    assert not (world.folder / "trap").exists()


def test_a_workspace_that_is_a_linked_worktree_lands_and_undoes(world: LandingWorld):
    linked = world.folder / "linked"
    world.git("worktree", "add", "-q", "-b", "other", str(linked))
    change_set = world.make_change(make_edits({"a.txt": "theirs\n"}), workspace=linked)
    untouched = world.files

    change_set.land()

    assert (linked / "a.txt").read_text() == "theirs\n"
    assert world.files == untouched
    change_set.undo()
    assert (linked / "a.txt").read_text() == TEXT
    assert linked.exists()


def test_a_file_outside_of_a_sparse_checkout_is_named_as_such(world: LandingWorld):
    world.repository.git("sparse-checkout", "set", "--no-cone", "/a.txt")
    refusal = refused("conflict", world.make_change(make_edits({"d/only.txt": "theirs\n"})).land)
    assert refusal.message == "outside of your sparse checkout: d/only.txt"
