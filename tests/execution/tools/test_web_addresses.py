"""No attempt to reach this machine, or another host than the one that was allowed, succeeds by the web tools (SPEC 3.5,
3.8)."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.execution.tools import TOOL_NAMES, Policy
from engine.execution.tools.web import parse_url
from engine.model import PermissionAnswer, Refusal
from tests.execution.tools.belt_world import BeltWorld, MakeBeltWorld, make_url, open_world
from tests.support import read_table
from tests.support.web_server import WebServer

TABLE = read_table(__file__)

ANY_HOST = Policy(allow=(*TOOL_NAMES, "web_fetch:*"))
"""The policy of an agent that may fetch every page without asking."""


def test_a_name_of_a_private_address_is_refused(make_belt_world: MakeBeltWorld, server: WebServer):
    addresses = iter(TABLE["private_addresses"])
    world = make_belt_world(policy=ANY_HOST, web={"resolve": lambda host, port: next(addresses).split(" ")})
    for _ in TABLE["private_addresses"]:
        answer = world.get_problem("web_fetch", url=make_url(server, host="innocent.test"))
        assert "an address of this machine or its network" in answer
    assert server.paths == []
    assert [refusal.rule for refusal in world.refused] == ["private_address"] * len(TABLE["private_addresses"])


def test_this_machine_is_refused_in_any_spelling(make_belt_world: MakeBeltWorld, server: WebServer):
    world = make_belt_world(policy=ANY_HOST)
    spellings = "127.0.0.1 localhost 2130706433 0x7f000001 0177.0.0.1 127.1 [::1] LOCALHOST. 0 [::ffff:7f00:1]"
    for host in spellings.split():
        answer = world.get_problem("web_fetch", url=make_url(server, host=host))
        assert "an address of this machine" in answer or "cannot be read" in answer
    assert server.paths == []


def test_a_name_is_resolved_once(make_belt_world: MakeBeltWorld, server: WebServer):
    """A name server may answer with an address of this machine the second time."""
    resolved = []

    def resolve(host: str, port: int) -> list[str]:
        resolved.append(host)
        return ["203.0.113.7"] if len(resolved) == 1 else ["127.0.0.1"]

    world = make_belt_world(policy=ANY_HOST, web={"resolve": resolve, "seconds": 0.5})
    world.get_problem("web_fetch", url=make_url(server, host="rebind.test"))
    assert server.paths == []
    assert resolved == ["rebind.test"]


def test_a_redirect_to_this_machine_is_refused(make_belt_world: MakeBeltWorld, server: WebServer):
    """Allowed by name, so that the fetch begins; where it leads to is judged anew."""
    world = open_world(make_belt_world, server, policy=ANY_HOST)
    server.page("/secret", "SECRET", "text/plain")
    for number, to in enumerate(
        (make_url(server, "/secret", "127.0.0.1"), make_url(server, "/secret", "other.test"), "//[::1]/")
    ):
        server.redirect(f"/{number}", to)
        assert "an address of this machine" in world.get_problem("web_fetch", url=make_url(server, f"/{number}"))
    assert "/secret" not in server.paths


def test_a_redirect_to_a_host_that_is_not_allowed_is_not_followed(web: BeltWorld, server: WebServer):
    server.redirect("/r", "https://elsewhere.example/page")
    answer = web.get_answer("web_fetch", url=make_url(server, "/r"))
    assert "leads to https://elsewhere.example/page, another host" in answer


def test_redirects_within_a_host_are_followed_up_to_a_number(web: BeltWorld, server: WebServer):
    server.redirect("/a", "/b?x=1")
    server.page("/b", "there", "text/plain")
    assert web.get_answer("web_fetch", url=make_url(server, "/a")).endswith("there")
    server.redirect("/loop", "/loop")
    assert "redirects without end" in web.get_problem("web_fetch", url=make_url(server, "/loop"))


@pytest.mark.parametrize("bad", [*TABLE["bad_urls"], "http://" + "a" * 3_000])
def test_bad_urls_are_refused(bad: str):
    with pytest.raises(Refusal, match="full URL"):
        parse_url(bad)


@given(st.sampled_from(["", "http://", "http://a.test/", "http://a.test:8080"]), st.text(max_size=60))
@example("http://", "a.test\u2024")  # IDNA makes a dot of it
@example("http://", "\u2024")
def test_any_url_is_refused_or_parses_the_same_again(beginning: str, rest: str):
    try:
        target = parse_url(beginning + rest)
    except Refusal:
        return
    assert target.path.isascii()
    assert not any(character.isspace() for character in target.url)
    again = parse_url(target.url)
    assert (again.host, again.port) == (target.host, target.port)


def test_a_person_is_asked_about_an_unlisted_host_once_for_the_session(make_belt_world: MakeBeltWorld):
    world = make_belt_world(web={"resolve": lambda host, port: ["127.0.0.1"]})
    world.answer_request(PermissionAnswer.ALLOW_SESSION)
    world.get_problem("web_fetch", url="https://docs.example/a")  # allowed, and then it is an address of this machine
    request = world.permissions.list_newest()[0]
    assert (request.title, request.detail) == ("fetch https://docs.example/a", "https://docs.example/a")
    assert "talks to docs.example" in request.reason
    world.get_problem("web_fetch", url="https://docs.example/b")
    world.answer_request(PermissionAnswer.DENY_ONCE)
    assert "said no" in world.get_problem("web_fetch", url="https://other.example/")
