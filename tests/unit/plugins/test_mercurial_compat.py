"""plugins.mercurial.compat, with the release of Mercurial that the extra installs."""

from __future__ import annotations

from pathlib import Path

import pytest
from mercurial import changegroup, hg, localrepo, ui

from smartserver.plugins.mercurial import compat


@pytest.fixture
def repository(tmp_path: Path) -> localrepo.localrepository:
    try:
        from mercurial import initialization  # Since 7.2.
    except ImportError:
        pass
    else:
        initialization.init()
    made = ui.ui.load()
    return hg.repository(made, bytes(tmp_path / "made"), create=True)


def test_a_repository_takes_changegroups_of_version_3(
    repository: localrepo.localrepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    compat.allow_changegroup_3(repository)
    assert repository.baseui.configsource(b"experimental", b"changegroup3") != b"hpss"
    monkeypatch.setattr(changegroup, "supportedincomingversions", lambda _: {b"01", b"02"})  # As 6.3 has it.
    compat.allow_changegroup_3(repository)
    assert repository.baseui.configsource(b"experimental", b"changegroup3") == b"hpss"
