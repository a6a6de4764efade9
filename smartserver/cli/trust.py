"""`smartserver trust`: confirm the certificate of a server once."""

from __future__ import annotations

import os
import socket
import ssl
import sys

import click

from smartserver.cli.errors import CommandError
from smartserver.client.media.tcp import CONNECT_TIMEOUT
from smartserver.client.tls_url import TlsLocation, parse_tls
from smartserver.client.trust import fingerprint_known, trust
from smartserver.client.url import TLS, BadUrl
from smartserver.wire.tls import fingerprint as fingerprint_of


@click.command(short_help="Confirm the certificate of a server once.")
@click.argument("host")
@click.option("--fingerprint", metavar="SHA256:...", help="Confirm it without a question, if the server has this one.")
@click.option("--forget", is_flag=True, help="Check the server by the authorities of this system again.")
def command(host: str, fingerprint: str | None, forget: bool) -> None:
    """Confirm the certificate of the server at HOST[:PORT], or at an hpss+tls:// URL, as ssh does for keys of hosts.

    This is for servers whose certificate no authority signed (`smartserver serve --tls auto`). From then on the server
    must have exactly this certificate. Ask its owner for the fingerprint, which the server prints when it starts.

    \b
    smartserver trust example.org
    smartserver trust example.org:4155 --fingerprint SHA256:bRcDr1wcZFFGVsfdhBXVhqqJCmOIQ1k7TvQnaDJ1xZE
    smartserver trust example.org --forget
    """
    place = _place(host)
    try:
        if forget:
            click.echo(f"{place.where} is checked by authorities: {trust(place.where, '', os.environ)}")
            return
        known = fingerprint_known(place.where, os.environ)
        found = _fingerprint(place)
        if fingerprint is not None and fingerprint != found:
            why = f"expected {fingerprint}, got {found}"
            raise CommandError(f"{place.where} has another certificate: {why}. Somebody may be listening in")
        if fingerprint is None and found != known:
            _ask(place, known, found)
        click.echo(f"{place.where} is trusted as {found}: {trust(place.where, found, os.environ)}")
    except OSError as error:
        raise CommandError(f"{error.filename or place.where}: {error.strerror or error}") from None


def _place(host: str) -> TlsLocation:
    try:
        return parse_tls(host if "://" in host else f"{TLS}://{host}/")
    except BadUrl as error:
        raise CommandError(str(error)) from None


def _fingerprint(place: TlsLocation) -> str:
    """Return the fingerprint of the server's certificate, whose signature is not checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((place.host, place.port), CONNECT_TIMEOUT) as plain,
            context.wrap_socket(plain, server_hostname=place.host) as connection,
        ):
            return fingerprint_of(connection.getpeercert(binary_form=True) or b"")
    except ssl.SSLError as error:
        raise CommandError(f"{place.where} does not speak TLS: {error.reason or error}") from None
    except OSError as error:
        raise CommandError(f"cannot connect to {place.where}: {error.strerror or error}") from None
    except UnicodeError:
        raise CommandError(f"cannot connect to {place.where}: it is not a valid host name") from None


def _ask(place: TlsLocation, known: str, found: str) -> None:
    if not sys.stdin.isatty():
        how = "without a terminal, confirm it by --fingerprint SHA256:..., as its owner told you"
        raise CommandError(f"{place.where} has the certificate {found}: {how}")
    if known:
        click.echo(f"The certificate of {place.where} has changed. It was {known}.")
    click.confirm(f"{place.where} has the certificate {found}\nIs that what its owner told you?", abort=True, err=True)
