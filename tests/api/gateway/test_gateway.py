"""Opening and closing the gateway, and where it listens (SPEC 10.1, 11.1)."""

import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.api.gateway.access import apply_options, check_certificate, make_listen_address
from engine.api.gateway.gateway import STOPPED, Gateway
from engine.api.gateway.routes import build_server
from engine.config import GatewaySettings
from engine.model import Refusal
from tests.api.gateway.served import Serve
from tests.support.helpers import needs, refused


@pytest.mark.parametrize(
    "settings, host, answers",
    [
        ({}, "127.0.0.1:8477", True),
        ({}, "localhost:9000", True),
        ({}, "[::1]", True),
        ({}, "127.0.0.2", True),
        ({}, "10.0.0.7", False),
        ({}, "phone.example", False),
        ({}, "LocalHost:8477", True),
        *(({}, host, False) for host in ("localhost.", "", ":8477", "[::1", "a:b", "127.0.0.1:80:80")),
        ({"hosts": ["phone.example"]}, "Phone.Example:443", True),
        ({"hosts": ["phone.example"]}, "a.phone.example", False),
        ({"host": "0.0.0.0", "tunnel": True}, "10.0.0.7:8477", True),
        ({"host": "0.0.0.0", "tunnel": True}, "evil.example", False),
    ],
)
def test_the_gateway_answers_to_its_own_host_names_only(settings: dict[str, Any], host: str, answers: bool):
    assert make_listen_address(GatewaySettings.model_validate(settings)).answers_to(host) is answers


@pytest.mark.parametrize(
    "settings, code",
    [
        ({"host": "0.0.0.0"}, "unsafe_address"),
        ({"host": "192.168.1.7"}, "unsafe_address"),
        ({"host": "::"}, "unsafe_address"),
        ({"certificate": "/nowhere/cert.pem"}, "no_certificate"),
        ({"certificateKey": __file__}, "no_certificate"),
    ],
)
def test_unsafe_addresses_are_refused(settings: dict[str, Any], code: str):
    refused(code, lambda: make_listen_address(GatewaySettings.model_validate(settings)))


@pytest.mark.parametrize("options", [{"port": 65536}, {"port": -1}, {"host": "nonsense"}, {"host": "127.0.0.1:80"}])
def test_an_invalid_address_is_refused(options: dict[str, Any]):
    refused("bad_address", lambda: apply_options(GatewaySettings(), options))


# Opening and closing


def run_openssl(*arguments: str):
    """Run OpenSSL. Skips the test where it is not installed."""
    needs("openssl")
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def make_certificate(folder: Path) -> Path:
    """Make a certificate for this machine, and its key, in one file."""
    file = folder / "both.pem"
    name = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    run_openssl("req", "-x509", "-nodes", "-newkey", "rsa:2048", "-keyout", str(file), "-out", str(file), *name)
    return file


@pytest.mark.long
def test_a_gateway_that_ended_by_itself_is_reported(serve: Serve):
    served = serve()
    served.server.close()
    served.gateway.apply_settings()
    state = served.gateway.state()
    assert (state.url, state.description) == ("", STOPPED)
    (fault,) = served.engine.ledger.latest(1, kinds=("FaultReported",))
    assert fault.payload["message"] == STOPPED
    served.gateway.open(port=0)
    assert served.ask("GET", "/api/v1/health").status_code == 200


@pytest.mark.long
def test_the_gateway_opens_and_closes_as_the_settings_say(serve: Serve):
    served = serve()
    gateway, settings = served.gateway, served.engine.settings
    gateway.close()
    gateway.apply_settings()
    assert not gateway.state().url
    settings.set("gateway.port", 0)
    settings.set("gateway.enabled", True)
    gateway.apply_settings()
    first = served.url
    assert first
    gateway.apply_settings()
    assert served.url == first, "nothing changed"
    settings.set("gateway.hosts", ["phone.example"])
    gateway.apply_settings()
    assert served.ask("GET", "/api/v1/health", headers={"Host": "phone.example"}).status_code == 200
    settings.set("gateway.enabled", False)
    gateway.apply_settings()
    assert not gateway.state().url


@pytest.mark.long
def test_a_new_token_waits_until_it_is_shown(serve: Serve):
    """The settings open the gateway while nobody is there. The operator who then opens it is shown the token."""
    served = serve()
    served.gateway.close()
    served.engine.settings.set("gateway.port", 0)
    served.engine.settings.set("gateway.enabled", True)
    gateway = Gateway(served.engine, build_server, announce=lambda url: None)
    gateway.apply_settings()
    try:
        first = gateway.state().url
        assert first
        token = gateway.open(port=0, tunnel=False)
        assert token.startswith("clawpy_")
        assert gateway.state().url != first
        assert gateway.take_new_token() == ""
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{gateway.state().url}/api/v1/health", headers=headers, trust_env=False).status_code == 200
        second = gateway.state().url
        assert gateway.open(port=0) == ""
        assert gateway.state().url == second
    finally:
        gateway.end()


@pytest.mark.long
def test_a_port_in_use_is_reported_once(serve: Serve):
    served = serve()
    served.gateway.close()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused("port_taken", lambda: served.gateway.open(port=port))
        served.engine.settings.set("gateway.port", port)
        served.engine.settings.set("gateway.enabled", True)
        served.gateway.apply_settings()
        served.gateway.apply_settings()
    faults = served.engine.ledger.latest(10, kinds=("FaultReported",))
    assert [fault.payload["where"] for fault in faults] == ["gateway"]
    assert "used by another program" in served.gateway.state().description
    served.engine.settings.set("gateway.port", 0)
    served.gateway.apply_settings()
    assert served.gateway.state().url


def test_a_gateway_that_was_opened_by_hand_takes_on_names_and_origins_of_the_settings(serve: Serve):
    """`clawpy config set gateway.hosts …` while `clawpy serve` runs cuts no connection."""
    served = serve()
    renamed = {"Host": "laptop.tail1234.ts.net", "Origin": "https://phone.example"}
    with httpx.Client(base_url=served.url, headers=served.headers, trust_env=False) as client:
        assert client.get("/api/v1/health", headers=renamed).status_code == 421
        settings = served.engine.settings
        settings.set("gateway.hosts", ["laptop.tail1234.ts.net"])
        settings.set("gateway.origins", ["https://phone.example"])
        url = served.url
        served.gateway.apply_settings()
        assert served.url == url
        reply = client.get("/api/v1/health", headers=renamed)
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (200, "https://phone.example")
        settings.set("gateway.hosts", [])
        served.gateway.apply_settings()
        assert client.get("/api/v1/health", headers=renamed).status_code == 421


@pytest.mark.long
def test_with_a_certificate_it_speaks_tls(serve: Serve):
    served = serve()
    served.gateway.close()
    file = make_certificate(served.folder)
    served.token = served.gateway.open(port=0, certificate=str(file)) or served.token
    assert served.url.startswith("https://")
    trusted = ssl.create_default_context(cafile=str(file))
    reply = httpx.get(served.url + "/api/v1/health", headers=served.headers, verify=trusted, trust_env=False)
    assert reply.json()["status"] == "ok"
    with pytest.raises(httpx.HTTPError):
        httpx.get(served.url.replace("https", "http") + "/api/v1/health", trust_env=False)
    served.gateway.close()
    file.write_text("no certificate")
    refused("bad_certificate", lambda: served.gateway.open(port=0, certificate=str(file)))


def test_a_locked_key_is_refused_and_nobody_is_asked(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """OpenSSL would ask for the pass phrase on the terminal, in the middle of the console."""
    key_file = tmp_path / "key.pem"
    run_openssl("genrsa", "-aes256", "-passout", "pass:secret", "-out", str(key_file))
    with pytest.raises(Refusal) as caught:
        check_certificate(str(make_certificate(tmp_path)), str(key_file))
    assert caught.value.message == f"the key in {key_file} is protected by a passphrase"
    assert f"openssl pkey -in {key_file}" in caught.value.fix
    assert capfd.readouterr() == ("", "")
