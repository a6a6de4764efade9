from __future__ import annotations

import pytest

from smartserver.plugins.mercurial.credentials import source_of


class Ui:
    """The part of Mercurial's `ui` that is asked."""

    def __init__(self, auth: dict[str, str], given: str = "", *, interactive: bool = True) -> None:
        self.auth = auth
        self.given = given
        self.asked: list[bytes] = []
        self.is_interactive = interactive

    def configitems(self, section: bytes) -> list[tuple[bytes, bytes]]:
        assert section == b"auth"
        return [(name.encode(), value.encode()) for name, value in self.auth.items()]

    def interactive(self) -> bool:
        return self.is_interactive

    def getpass(self, prompt: bytes, default: bytes) -> bytes:
        self.asked.append(prompt)
        return self.given.encode() or default


def auth(prefix: str, password: str = "hpss_kept", **more: str) -> dict[str, str]:
    return {"x.prefix": prefix, "x.password": password, **{f"x.{name}": value for name, value in more.items()}}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (auth("hpss+tls://example.org"), "hpss_kept"),
        (auth("hpss+tls://example.org:7878/path"), "hpss_kept"),
        (auth("hpss+tls://*"), "hpss_kept"),
        (auth("example.org", schemes="https hpss+tls"), "hpss_kept"),
        (auth("hpss+tls://example.org", "secret"), ""),
        # As in Mercurial these are for https.
        (auth("example.org"), ""),
        (auth("*"), ""),
        (auth("example.org", schemes="https"), ""),
        (auth("https://example.org"), ""),
        (auth("hpss://example.org"), ""),
        (auth("hpss+tls://other.example.org"), ""),
        (
            auth("hpss+tls://*")
            | {"y.prefix": "hpss+tls://example.org", "y.password": "hpss_nearer"}
            | {"z.prefix": "example.org:7878", "z.password": "hpss_web"},
            "hpss_nearer",
        ),
        ({"odd": "x"}, ""),
    ],
)
def test_the_group_that_fits_best(given: dict[str, str], found: str) -> None:
    credentials = source_of(Ui(given))("hpss+tls", "example.org:7878")
    assert credentials.stored() == found


def test_one_that_was_refused_is_given_no_more() -> None:
    ui = Ui(auth("hpss+tls://*"), "typed")
    credentials = source_of(ui)("hpss+tls", "example.org:7878")
    assert credentials.ask() == "hpss_kept"
    credentials.reject()
    assert credentials.stored() == ""
    assert credentials.ask() == "typed"
    assert ui.asked == [b"token for hpss+tls://example.org:7878: "]
    credentials.approve()


def test_nobody_is_asked_where_nobody_is() -> None:
    ui = Ui({}, "typed", interactive=False)
    assert source_of(ui)("hpss", "localhost:7878").ask() == ""
    assert ui.asked == []
