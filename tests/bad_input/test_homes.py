"""Homes that cannot be used (SPEC 11.2, 11.3): a file, read-only, full, newer or damaged, or with broken settings.

Nothing in them changes, and when they are repaired they have all their data.
"""

from collections.abc import Callable, Mapping

import pytest

from engine.home import Home
from engine.model import Refusal
from tests.bad_input.conftest import FailedStart
from tests.bad_input.disks import fill_disk, mount_disk
from tests.bad_input.results import assert_refused, list_cards, read_doctor_check, read_files
from tests.cli.calls import Clawpy, get_document
from tests.support.engines import open_idle_engine
from tests.support.repository import Repository


@pytest.fixture
def card(clawpy: Clawpy, shop: Repository) -> str:
    """The id of a card that is in the home already, and must not be lost."""
    return str(list_cards(clawpy, "propose", "sum up today")[0]["id"])


def list_card_ids(clawpy: Clawpy) -> list[str]:
    return [prediction["id"] for prediction in list_cards(clawpy, "cards")]


def test_a_home_that_is_a_file_is_refused(clawpy: Clawpy, home: Home, shop: Repository):
    home.root.write_text("my notes")
    assert_refused(clawpy("cards", "--json"), "unwritable_home", str(home.root), "--home DIR")
    assert_refused(clawpy("stop", "--json"), "unwritable_home", str(home.root))
    assert clawpy("doctor", "--json").code == 1
    assert home.root.read_text() == "my notes"


@pytest.mark.long
async def test_a_read_only_home_is_refused_and_unchanged(
    home: Home, clawpy: Clawpy, shop: Repository, open_failing_console: FailedStart
):
    with mount_disk(home.root, "8m") as remount:
        remount("ro")
        assert_refused(clawpy("predict", "--json"), "unwritable_home", str(home.root), "Read-only", "--home DIR")
        remount("rw")
        get_document(clawpy("propose", "sum up today", "--json"))
        before = read_files(home.root)
        remount("ro")
        assert_refused(clawpy("propose", "more", "--json"), "unwritable_home", str(home.root), "Read-only")
        assert_refused(clawpy("stop", "--json"), "unwritable_home", "F12")
        assert "cannot be written" in await open_failing_console([str(shop.path)])
        assert read_files(home.root) == before


@pytest.mark.long
async def test_on_a_full_disk_verbs_are_refused_and_nothing_is_lost(
    home: Home, clawpy: Clawpy, shop: Repository, open_failing_console: FailedStart
):
    with mount_disk(home.root, "3m"):
        [card] = list_cards(clawpy, "propose", "sum up today")
        filler = fill_disk(home.root)
        before = read_files(home.data)
        for verb in (
            ["predict"],
            ["propose", "more"],
            ["dismiss", card["id"]],
            ["agents", "add", "zoe", "--to", "ceo"],
        ):
            assert_refused(clawpy(*verb, "--json"), "disk_full", str(home.data), "free some space")
        assert_refused(clawpy("config", "set", "quietHoursStart", "22", "--json"), "disk_full")
        assert "is full" in await open_failing_console([str(shop.path)])
        assert read_files(home.data) == before
        filler.unlink()
        assert list_card_ids(clawpy) == [card["id"]]
        assert get_document(clawpy("dismiss", card["id"], "--json"))["prediction"]["status"] == "rejected"


@pytest.mark.long
def test_a_disk_that_fills_up_while_the_engine_runs_loses_nothing(home: Home, clawpy: Clawpy, shop: Repository):
    with mount_disk(home.root, "6m"):
        engine = open_idle_engine(home, shop.path)
        try:
            card = engine.cards.propose("tidy the cart", workspace=str(shop.path))
            filler = fill_disk(home.root)
            with pytest.raises(Refusal, match="is full"):
                engine.cards.dismiss(card.id)
            assert engine.cards.get(card.id).status.value == "pending"
            refusal = assert_refused(clawpy("stop", "enough", "--json"), "disk_full", "everything was stopped")
            assert "as long as this engine runs" in refusal["fix"]
            assert engine.safety.kill_switch.decide_now(by_operator=True).verdict.value == "block"
            filler.unlink()
            assert get_document(clawpy("resume", "--json"))["lifted"][0]["reason"] == "enough"
            assert engine.safety.kill_switch.decide_now(by_operator=True).verdict.value == "allow"
            assert engine.cards.dismiss(card.id).status.value == "rejected"
        finally:
            engine.close()
        assert card.id not in list_card_ids(clawpy)


DAMAGED = ("damaged_home", "afresh", "is damaged")
UNUSABLE: Mapping[str, tuple[Callable[[bytes], bytes], str, str, str]] = {
    "overwritten": (lambda whole: whole[:4096] + b"\xa5" * 200_000 + whole[204_096:], *DAMAGED),
    "no database": (lambda whole: b"my notes\n" * 1000, *DAMAGED),
    "cut short": (lambda whole: whole[:20_000], *DAMAGED),
    "empty": (lambda whole: b"", *DAMAGED),
    "of a newer version": (
        lambda whole: whole[:60] + (9999).to_bytes(4, "big") + whole[64:],
        *("newer_home", "9999", "upgrade Clawpy Console"),
    ),
}
"""What becomes of the bytes of a database; the code, words of the refusal, and words on the screen."""


@pytest.mark.long
@pytest.mark.parametrize("change, code, words, on_screen", UNUSABLE.values(), ids=UNUSABLE)
async def test_an_unusable_database_is_refused_and_unchanged(
    home: Home,
    clawpy: Clawpy,
    card: str,
    shop: Repository,
    open_failing_console: FailedStart,
    change: Callable[[bytes], bytes],
    code: str,
    words: str,
    on_screen: str,
):
    whole = home.database.read_bytes()
    home.database.write_bytes(change(whole))
    before = read_files(home.data)
    for verb in (["cards"], ["approve", card], ["propose", "more"]):
        assert_refused(clawpy(*verb, "--json"), code, str(home.database), words)
    assert on_screen in await open_failing_console([str(shop.path)])
    result = clawpy("doctor", "--json")
    assert result.code == 1
    assert any(
        words in check["message"] + check["fix"] for check in result.document["checks"] if check["state"] == "fail"
    )
    assert read_files(home.data) == before
    home.database.write_bytes(whole)
    assert list_card_ids(clawpy) == [card]


# A settings file with faults

BROKEN_CONFIGS = {
    "a key with a slip": (b"crossPolEnabled = true\n", ("config.toml:1", "did you mean crossPollEnabled?")),
    "a value out of range": (b"\n\nquietHoursEnd = 24\n", ("config.toml:3", "quietHoursEnd", "24")),
    "no TOML": (b"quietHoursEnd = = 8\n", ("config.toml:1", "not TOML")),
    "no text": (b"\xff\xfe\x00binary", ("config.toml:1", "not UTF-8")),
    "a key that belongs in the keyring": (b'twinApiKey = "sk-secret-value"\n', ("config.toml:1", "twinApiKey")),
}


@pytest.mark.long
@pytest.mark.parametrize("text, words", BROKEN_CONFIGS.values(), ids=BROKEN_CONFIGS)
def test_a_broken_config_is_named_by_line_and_key_and_unchanged(
    clawpy: Clawpy, home: Home, shop: Repository, text: bytes, words: tuple[str, ...]
):
    home.config.mkdir(parents=True)
    home.config_file.write_bytes(text)
    error = assert_refused(clawpy("cards", "--json"), "bad_config", *words)
    assert "sk-secret-value" not in error["message"]
    plain = clawpy("config", "set", "quietHoursStart", "22")
    assert (plain.code, plain.out) == (1, "")
    assert words[0] in plain.err
    assert home.config_file.read_bytes() == text
    assert not home.database.exists()
    assert clawpy("doctor", "--json").code == 1
    check = read_doctor_check(clawpy, "config")
    assert check["state"] == "fail"
    assert words[0] in check["message"]
