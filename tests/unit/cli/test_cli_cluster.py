"""smartserver.cli.cluster: which addresses `init` refuses; tests/sockets/test_cluster.py has the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import run, why


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("postgresql://u:secret@h/d", "--log must not have password: "),
        ("postgresql://u@h/d?password=secret&sslpassword=secret", "--log must not have password and sslpassword: "),
        ("postgres://u@h/d?passfile=secret", "--log must not have passfile: "),
        ("postgresql://u@h/d?pass=word", '--log: invalid URI query parameter: "pass"'),
        ("host=h dbname=d", "--log 'host=h dbname=d': expected postgresql://"),
    ],
)
def test_addresses_that_a_store_does_not_get(tmp_path: Path, address: str, said: str) -> None:
    assert why(run("cluster", "init", tmp_path, "--log", address)).startswith(said)
    assert list(tmp_path.iterdir()) == []
