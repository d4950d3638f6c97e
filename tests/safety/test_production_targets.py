"""Production targets (SPEC 3.6): which branches, remotes, hosts, contexts and paths a prompt, a command, a file or a
host touches."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import ProductionSettings
from engine.model import Assignment
from engine.safety.production_targets import (
    find_target_of_file,
    find_target_of_host,
    find_targets_of_command,
    find_targets_of_trigger,
)
from tests.safety.rails import make_approval
from tests.support.helpers import read_table

ROWS = read_table(__file__)


@pytest.mark.parametrize(
    "prompt, parameters, expected",
    [
        ("restart https://me@shop.example.com:8443/x", {}, "host shop.example.com"),
        ("run kubectl --context=live get pods", {}, "context live"),
        ("push it to heroku/x", {}, "remote heroku"),
        ("do it", {"branch": "stable"}, "branch stable"),
        ("do it", {"file": "infra/dns.tf"}, "path infra/dns.tf"),
        ("do it", {"branch": "feature", "other": "heroku"}, ""),
        ("merge feature/x into stable", {}, "branch stable"),
        ("explain the stable function", {}, ""),
    ],
)
def test_production_targets_are_found_in_prompts_and_parameters(prompt: str, parameters: dict[str, str], expected: str):
    production = ProductionSettings(
        hosts=("shop.example.com",), contexts=("live",), remotes=("heroku",), branches=("stable",), paths=("infra/*",)
    )
    trigger = make_approval(assignment=Assignment(prompt, "koji-core", "/w", "model", None, parameters))
    assert find_targets_of_trigger(trigger, production) == ((expected,) if expected else ())
    if expected.startswith(("branch", "remote")):  # a flow compares and rehearses, and writes to neither
        flow = replace(trigger.assignment, runner="flow", flow="rehearse_merge")
        assert find_targets_of_trigger(make_approval(assignment=flow), production) == ()


PRODUCTION = ProductionSettings(
    paths=("deploy/**", "/srv/shop/live.cfg"), hosts=(*ProductionSettings().hosts, "db.live:5432")
)


@pytest.mark.parametrize("command, targets", ROWS["commands"])
def test_production_targets_are_found_in_commands(command: str, targets: str):
    assert ", ".join(find_targets_of_command(command, PRODUCTION)) == targets


@given(st.text(max_size=200))
def test_any_command_is_searched_for_production_targets(command: str):
    find_targets_of_command(command, PRODUCTION)


def test_paths_and_hosts_are_production_targets_by_the_settings():
    assert find_target_of_file("deploy/x", "/srv/shop", PRODUCTION) == ("path deploy/x",)
    assert find_target_of_file("live.cfg", "/srv/shop", PRODUCTION) == ("path live.cfg",)
    assert find_target_of_file("products.py", "/srv/shop", PRODUCTION) == ()
    assert find_target_of_host("api.prod.example.org", PRODUCTION)
    assert not find_target_of_host("docs.python.org", PRODUCTION)
