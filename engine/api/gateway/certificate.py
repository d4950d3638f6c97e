"""Checks a certificate and its private key, and says which of the two to fix (SPEC 10.1)."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from engine.model import Refusal, sanitise

MAKE = "to make a pair for this machine only: openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -addext "
MAKE += "subjectAltName=DNS:localhost,IP:127.0.0.1 -days 365 -keyout key.pem -out cert.pem"


def check_pair(certificate: str, key: str) -> None:
    """Load both without asking for a pass phrase, as OpenSSL would on the terminal. Raises `Refusal`
    `bad_certificate`."""
    import ssl  # only who has a certificate pays for it

    _look(certificate, "CERTIFICATE-----", "certificate", MAKE)
    _look(key, "PRIVATE KEY-----", "private key", "name the file that contains it with --certificate-key")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: _locked(key))
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise _bad(
                f"{key} is not the key of {certificate}", "name the certificate and key that were made together"
            ) from error
        message = f"{certificate} with {key} cannot be used: {error.reason or error}"
        raise _bad(
            message, "`openssl x509 -noout -text -in` and `openssl pkey -check -in` show what is wrong"
        ) from error


def _look(file: str, mark: str, kind: str, fix: str) -> None:
    try:
        is_pem = mark in Path(file).read_text(errors="replace")
    except OSError as error:
        raise _bad(
            f"{file} cannot be read: {error.strerror or error}", "make it readable for the user that runs clawpy"
        ) from error
    if not is_pem:
        raise _bad(f"{file} has no {kind} in PEM form", fix)


def _locked(key: str) -> NoReturn:
    fix = (
        f"clawpy cannot ask for it at every start; remove it: openssl pkey -in {key} -out open.pem, and name that file"
    )
    raise _bad(f"the key in {key} is protected by a passphrase", fix)


def _bad(message: str, fix: str) -> Refusal:
    return Refusal("bad_certificate", sanitise(message), sanitise(fix))
