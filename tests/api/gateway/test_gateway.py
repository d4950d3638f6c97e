"""Where the gateway listens, and when it opens and closes (SPEC 10.1)."""

import socket
import ssl
import subprocess
from typing import Any

import httpx
import pytest

from engine.api.gateway.access import make_listen_address
from engine.config.external_sections import GatewaySettings
from tests.api.gateway.served import Serve
from tests.support import read_table
from tests.support.checks import refused
from tests.support.programs import needs


@pytest.mark.parametrize("settings, host, answers", read_table(__file__)["hosts"])
def test_the_gateway_answers_to_its_own_host_names_only(settings: dict[str, Any], host: str, answers: bool):
    assert make_listen_address(GatewaySettings.model_validate(settings)).answers_to(host) is answers


@pytest.mark.parametrize(
    "settings, code",
    [({"host": "0.0.0.0"}, "unsafe_address"), ({"certificate": "/nowhere/cert.pem"}, "no_certificate")],
)
def test_unsafe_addresses_are_refused(settings: dict[str, Any], code: str):
    refused(code, lambda: make_listen_address(GatewaySettings.model_validate(settings)))


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
    gateway.set_enabled(False)
    assert not gateway.state().url


@pytest.mark.long
def test_new_host_names_apply_while_it_is_open(serve: Serve):
    served = serve()
    served.engine.settings.set("gateway.hosts", ["phone.example"])
    served.gateway.apply_settings()
    assert served.ask("GET", "/api/v1/health", headers={"Host": "phone.example"}).status_code == 200


@pytest.mark.long
def test_a_port_that_another_program_uses_is_named(serve: Serve):
    served = serve()
    served.gateway.close()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        served.engine.settings.set("gateway.port", taken.getsockname()[1])
        refused("port_taken", lambda: served.gateway.set_enabled(True))
    assert "is used by another program" in served.gateway.state().description


@pytest.mark.long
def test_with_a_certificate_it_speaks_tls(serve: Serve):
    needs("openssl")
    served = serve()
    served.gateway.close()
    file = served.folder / "both.pem"
    request = ["openssl", "req", "-x509", "-nodes", "-newkey", "rsa:2048", "-keyout", str(file), "-out", str(file)]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*request, *name], check=True, capture_output=True)
    served.token = served.gateway.open(port=0, certificate=str(file)) or served.token
    trusted = ssl.create_default_context(cafile=str(file))
    reply = httpx.get(served.url + "/api/v1/health", headers=served.headers, verify=trusted, trust_env=False)
    assert reply.json()["status"] == "ok"
    with pytest.raises(httpx.HTTPError):
        httpx.get(served.url.replace("https", "http") + "/api/v1/health", trust_env=False)
    served.gateway.close()
    file.write_text("no certificate")
    refused("bad_certificate", lambda: served.gateway.open(port=0, certificate=str(file)))
