"""smartserver.cli.logs: lines for a person, and lines for the systemd journal where standard error is that."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from smartserver.cli.errors import CommandError
from smartserver.cli.logs import LINES, NO_SYSLOG, PERIOD, RateLimit, is_journal, log_requests_to, log_to
from smartserver.meters import NOTHING
from smartserver.server.request_log import EndedRequest, log_request
from smartserver.server.request_log import log as request_log


@pytest.fixture(autouse=True)
def _as_they_were(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let all logs be afterwards as they were. The handlers of the root are pytest's until a test has none."""
    logs = [logging.getLogger(), logging.getLogger("smartserver.audit"), request_log]
    levels = [each.level for each in logs]
    monkeypatch.setattr(request_log, "handlers", [])
    monkeypatch.setattr(request_log, "propagate", True)
    monkeypatch.setattr(logging.getLogger("paramiko"), "propagate", True)
    monkeypatch.setattr(logging, "raiseExceptions", True)
    yield
    for each, level in zip(logs, levels, strict=True):
        each.setLevel(level)
    for stream in request_log.handlers:
        stream.close()


@pytest.mark.parametrize(
    ("journal", "lines"),
    [
        (True, ["<6>said", "<4>odd", "<3>wrong", "<3>NoneType: None"]),
        (False, ["INFO said", "WARNING odd", "ERROR wrong", "NoneType: None"]),
    ],
)
def test_lines_are_dated_unless_the_journal_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], journal: bool, lines: list[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    log_to(None, True, journal=journal, audits=False)
    log = logging.getLogger("smartserver")
    log.info("said")
    log.warning("odd")
    log.error("wrong", exc_info=(None, None, None))
    logging.getLogger("paramiko.transport").error("Error reading SSH protocol banner")  # Which is raised, too.
    said = capsys.readouterr().err.splitlines()
    dated = [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ", "", line) for line in said]
    assert dated == lines
    assert (dated == said) is journal


@pytest.mark.parametrize("journal", [False, True])
def test_a_name_in_a_message_begins_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal: bool) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    log_to(None if journal else str(tmp_path / "log"), False, journal=journal, audits=False)
    (handler,) = logging.getLogger().handlers
    record = logging.LogRecord("x", logging.WARNING, "", 0, "tidying %s", ("a\n<3>b\x1b[1m\u2028\u65e5\udc80",), None)
    assert handler.format(record).endswith("tidying a <3>b [1m \u65e5 ")
    if isinstance(handler, logging.FileHandler):
        assert (handler.encoding, handler.errors) == ("utf-8", "backslashreplace")
    handler.close()


def test_only_the_file_systemd_named_is_the_journal(tmp_path: Path) -> None:
    """A child of a service that was redirected still has the variable."""
    with open(tmp_path / "journal", "w") as journal, open(tmp_path / "other", "w") as other:
        found = os.fstat(journal.fileno())
        environment = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert is_journal(journal.fileno(), environment)
        assert not is_journal(other.fileno(), environment)
        assert not is_journal(journal.fileno(), {})
        closed = journal.fileno()
    assert not is_journal(closed, environment)


def test_a_flood_of_lines_of_a_kind_is_bounded_and_counted() -> None:
    passed: list[str] = []

    def log(level: int, kind: str, number: int, at: float) -> None:
        record = logging.LogRecord("smartserver", level, "", 0, kind, (number,), None)
        record.created = at
        if bounded.filter(record):
            passed.append(record.getMessage())

    bounded = RateLimit()
    for number in range(LINES + 5):
        log(logging.WARNING, "full: %d", number, 0.0)
    assert passed == [f"full: {number}" for number in range(LINES)]
    passed.clear()
    log(logging.ERROR, "wrong: %d", 1, 0.0)
    for number in range(2 * LINES):
        log(logging.INFO, "said: %d", number, 0.0)  # Who asks for these wants all of them.
    assert len(passed) == 1 + 2 * LINES
    passed.clear()
    log(logging.WARNING, "full: %d", 1, PERIOD)
    log(logging.WARNING, "full: %d", 2, PERIOD)
    log(logging.WARNING, "full: %d", 3, 0.0)  # The clock was set back.
    assert passed == ["full: 1 (and 5 others like it since the last such line)", "full: 2", "full: 3"]


def test_a_syslog_that_is_missing_ends_a_server_but_no_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr("smartserver.cli.logs.SYSLOG", str(tmp_path / "absent"))
    with pytest.raises(CommandError, match=r"--log syslog: .*absent: No such file"):
        log_to("syslog", False, journal=False, audits=False)
    log_to("syslog", False, journal=False, audits=False, is_login=True)
    logging.getLogger("smartserver").error("a line")
    assert capsys.readouterr().err == f"smartserver: {NO_SYSLOG}: nothing is logged\n"


def test_lines_for_syslog_and_for_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither says anything to a client when a line cannot be written; a file that was rotated is opened again."""
    place, root, audit = tmp_path / "log", logging.getLogger(), logging.getLogger("smartserver.audit")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(tmp_path / "journal"))
        monkeypatch.setattr("smartserver.cli.logs.SYSLOG", str(tmp_path / "journal"))
        for where in ("syslog", str(place)):
            monkeypatch.setattr(root, "handlers", [])
            log_to(where, False, journal=True, audits=True)
            audit.info("a change")
            logging.getLogger("smartserver").info("a request")
            assert not logging.raiseExceptions
            if where == "syslog":
                assert re.fullmatch(rb"<14>smartserver\[\d+\]: a change\x00?", journal.recv(1000))
                root.handlers[0].close()
        place.rename(tmp_path / "log.1")
        audit.info("another")
        root.handlers[0].close()
    assert (tmp_path / "log.1").read_text().endswith(" INFO a change\n")
    assert place.read_text().endswith(" INFO another\n")


ENDED = EndedRequest("192.0.2.7:50412", "an na", "", None, 12, 34, 0.0015, 0, 0, NOTHING, ["unsupported"])
TIME = r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00 "


def test_requests_are_lines_of_fields_in_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log_requests_to(str(tmp_path / "requests"))
    log_request(ENDED)
    log_request(ENDED)
    lines = (tmp_path / "requests").read_text().splitlines()
    wanted = 'user="an na" from=192.0.2.7:50412 up=12 down=34 ms=1.5 outcome=unsupported'
    assert [re.sub(f"^{TIME}", "", line) for line in lines] == [wanted, wanted]
    assert not caplog.records, "they are not in the other log too"


def test_requests_are_objects_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    log_requests_to("json:-")
    log_request(ENDED)
    found = json.loads(capsys.readouterr().out)
    assert re.fullmatch(TIME, f"time={found.pop('time')} ")
    assert found == ENDED.fields()


def test_a_file_of_requests_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"^--access-log json:.*: .*/absent/requests: No such file or directory$"):
        log_requests_to(f"json:{tmp_path}/absent/requests")
