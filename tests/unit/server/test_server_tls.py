"""server.tls: a server's certificate and key."""

from __future__ import annotations

import os
import shutil
import ssl
from pathlib import Path

import pytest
from certificates import Authority

from smartserver.server.tls import BadKeyPair, KeyPair, make_key_pair
from smartserver.wire.tls import fingerprint


def served(pair: KeyPair) -> str:
    """The subject of the certificate of a new connection."""
    certificate = pair.serverConnectionForTLS(None).get_certificate()
    assert certificate is not None
    return certificate.to_cryptography().subject.rfc4514_string()


def test_a_pair_is_read_again_when_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path / "authority")
    files = tmp_path / "certificate.pem", tmp_path / "key.pem"
    for source, target in zip(authority.sign("old"), files, strict=True):
        shutil.copy(source, target)
    pair = KeyPair(*files)
    assert served(pair) == "CN=old"
    shutil.copy(authority.sign("new")[0], files[0])  # Half of it.
    assert served(pair) == "CN=old"
    assert f"{files[1]}: expected the key of {files[0]}, without" in caplog.text
    assert "the certificate in use stays the one before" in caplog.text
    shutil.copy(authority.sign("new")[0], files[0])
    shutil.copy(tmp_path / "authority/new.key", files[1])
    assert served(pair) == "CN=new"
    assert f"{files[0]}: the new certificate is in use" in caplog.text
    files[0].unlink()
    assert served(pair) == "CN=new"
    assert f"{files[0]}: No such file or directory; the certificate in use" in caplog.text


@pytest.mark.parametrize("expired", [False, True])
def test_a_certificate_that_clients_refuse_for_its_dates_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, expired: bool
) -> None:
    certificate, key = Authority(tmp_path).sign("localhost", expired=expired)
    pair = KeyPair(certificate, key)
    served(pair)
    assert [f"{certificate}: the certificate expired on" in line for line in caplog.messages] == [True] * 2 * expired


def test_what_cannot_be_used(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.sign("here")
    other = authority.sign("other")[1]
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("nonsense")
    for pair, why in (
        ((tmp_path / "nothing", key), "nothing: No such file or directory"),
        ((nonsense, key), "nonsense: expected a certificate in PEM form"),
        ((certificate, nonsense), "nonsense: expected the key of .*, without a passphrase, in PEM form"),
        ((certificate, other), f"{other}: expected the key of {certificate}, "),
    ):
        with pytest.raises(BadKeyPair, match=why):
            KeyPair(*pair)


def test_a_certificate_of_its_own_is_made_once(tmp_path: Path) -> None:
    folder = tmp_path / "state/smartserver"
    files = make_key_pair(folder)
    content = [each.read_bytes() for each in files]
    assert make_key_pair(folder) == files
    assert [each.read_bytes() for each in files] == content
    assert [each.stat().st_mode & 0o777 for each in (folder, *files)] == [0o700, 0o600, 0o600]
    assert sorted(os.listdir(folder)) == ["certificate.pem", "key.pem"]
    assert KeyPair(*files).fingerprint == fingerprint(ssl.PEM_cert_to_DER_cert(content[0].decode()))


def test_a_start_that_was_interrupted_between_the_files_goes_on(tmp_path: Path) -> None:
    certificate, key = make_key_pair(tmp_path)
    certificate.unlink()
    KeyPair(*make_key_pair(tmp_path))
    key.write_text("nonsense")
    certificate.unlink()
    with pytest.raises(BadKeyPair, match=f"{tmp_path}: no certificate can be made"):
        make_key_pair(tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadKeyPair, match=r"no certificate can be made: .*Not a directory"):
        make_key_pair(tmp_path / "file/state")
