"""netem.run and the command `netem run`: clients and servers of other people's, as a user starts them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest
from on_threads import PATIENCE

from netem.link import Link
from netem.packets.network import Packets
from netem.run import Crossing, RunError

pytestmark = pytest.mark.packets

Start = Callable[..., Packets]
ROOT = Path(__file__).parents[2]
NETEM = [sys.executable, "-c", "import sys; from netem.cli.main import main; sys.exit(main())", "run"]
RTT = ["--rtt", "20ms"]

SERVER = """
import socket, sys
with socket.create_server(("", 4000)) as listener:
    while True:
        with listener.accept()[0] as connection:
            connection.sendall(connection.recv(100) * int(sys.argv[1]))
"""
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], 4000)) as connection:
    connection.sendall(b"asked")
    print(len(b"".join(iter(lambda: connection.recv(65536), b""))), flush=True)
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def words(start: Start, tmp_path: Path) -> tuple[str, list[str]]:
    """A server's command, and a client's but for the status it ends with."""
    start(Link(0.02)).close()  # or skip
    for name, text in (("server.py", SERVER), ("client.py", CLIENT)):
        (tmp_path / name).write_text(text)
    return f"{sys.executable} {tmp_path / 'server.py'} 1000", [sys.executable, f"{tmp_path / 'client.py'}", "{server}"]


def netem(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*NETEM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=ROOT)


def test_a_line_on_stderr_and_the_status_of_the_client(words: tuple[str, list[str]]) -> None:
    server, client = words
    done = netem(*RTT, "--server", server, "--", *client, "7")
    assert (done.returncode, done.stdout) == (7, "5000\n"), done.stderr
    assert "netem: 2 round trips (1 handshake), 1 connection, 5 B up, 5.0 KB down, " in done.stderr


def test_json_a_picture_and_losses(words: tuple[str, list[str]], tmp_path: Path) -> None:
    server, client = words
    picture = tmp_path / "it.svg"
    picture.write_text("another one")
    assert netem(*RTT, "--svg", str(picture), "--server", "no-such-server", "--", *client, "0").returncode == 125
    assert picture.read_text() == "another one"
    options = ["--json", "--svg", str(picture), "--loss", "20%", "--seed", "5"]
    done = netem(*RTT, *options, "--server", server, "--", *client, "0")
    assert done.returncode == 0, done.stderr
    cost = json.loads(done.stdout)
    assert (cost["rounds"], cost["bytes_up"], cost["bytes_down"], cost["status"]) == (2, 5, 5000, 0)
    assert cost["dropped"] > 0
    assert done.stderr.startswith("5000\n")
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_what_a_user_does_wrong_is_one_line(words: tuple[str, list[str]], tmp_path: Path) -> None:
    server, client = words
    for arguments, why in (
        ([*RTT, "--server", "no-such-server", "--", "true"], "no-such-server: No such file or directory"),
        ([*RTT, "--server", "sh -c 'exit 3'", "--", "true"], "the server sh -c 'exit 3' ended with status 3 before it"),
        ([*RTT, "--server", "'", "--", "true"], 'the server "\'": No closing quotation'),
        ([*RTT, "--server", "", "--", "true"], "an empty server command"),
        ([*RTT, "--server", server, "--", "no-such-client"], "no-such-client: No such file or directory"),
        ([*RTT, "--svg", str(tmp_path), "--server", server, "--", *client, "0"], f"{tmp_path}: Is a directory"),
        (
            [*RTT, "--congestion", "no-such", "--server", server, "--", "true"],
            "cannot create a packet network: a route",
        ),
        (
            [*RTT, "--set", "net.no.such=1", "--server", server, "--", "true"],
            "the setting net.no.such cannot be '1': No",
        ),
    ):
        done = netem(*arguments)
        assert (done.returncode, done.stdout) == (125, ""), arguments
        assert done.stderr.startswith(f"netem: {why}"), done.stderr
        assert done.stderr.count("\n") == 1


def test_a_signal_goes_to_the_client_and_nothing_is_left(words: tuple[str, list[str]], tmp_path: Path) -> None:
    server, _ = words
    script = "trap 'echo cleaned; exit 5' INT; echo ready; while :; do sleep 0.02; done"
    with subprocess.Popen(
        [*NETEM, *RTT, "--server", server, "--", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, cwd=ROOT,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        try:
            out, _ = running.communicate(timeout=PATIENCE)  # whose end says that nobody holds the pipe any more
        finally:
            running.kill()
    assert (running.returncode, out) == (5, "cleaned\n")


def test_a_second_signal_ends_a_client_that_does_not_listen(words: tuple[str, list[str]]) -> None:
    server, _ = words
    script = "trap 'echo heard' TERM; echo ready; while :; do sleep 0.02; done"
    with subprocess.Popen(
        [*NETEM, *RTT, "--server", server, "--", "sh", "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as running:
        assert running.stdout is not None
        for line in ("ready\n", "heard\n"):
            assert running.stdout.readline() == line
            running.send_signal(signal.SIGTERM)
        running.communicate(timeout=PATIENCE)
    assert running.returncode == 128 + signal.SIGTERM


def test_a_signal_before_there_is_a_client_ends_it(words: tuple[str, list[str]], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [*NETEM, *RTT, "--server", f"sh -c 'echo begun >{pipe}; sleep 1000'", "--", "true"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as running:
        assert pipe.read_text() == "begun\n"
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=PATIENCE)
    assert (running.returncode, said) == (130, "netem: interrupted\n")


def test_several_clients_and_servers(words: tuple[str, list[str]], start: Start) -> None:
    server, client = words
    other = f"{sys.executable} -c 'import socket, time; held = socket.create_server((\"\", 4001)); time.sleep(1000)'"
    network = Packets(Link(0.02))
    with Crossing(network, [server, other]) as crossing, open(os.devnull, "w") as nowhere:
        assert network.listening(1) == 2
        for status in (0, 3):
            crossed = crossing.run([*client, str(status)], stdout=nowhere.fileno())
            assert (crossed.status, crossed.counts.rounds, crossed.counts.bytes_down) == (status, 2, 5000)
            assert crossed.seconds >= 0.04
        with pytest.raises(RunError, match="no-such-client: No such file"):
            crossing.run(["no-such-client"])


def test_an_ordinary_user_runs_it_too_or_is_told_why_not(start: Start) -> None:
    """One line says so where the system does not let users make namespaces."""
    start(Link(0.02)).close()  # or skip
    # A copy that others may read, whatever the rights on this folder; and a Python that they may.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        shutil.copytree(ROOT / "netem", f"{folder}/netem", ignore=shutil.ignore_patterns("__pycache__"))
        for name, text in (("server.py", SERVER), ("client.py", CLIENT)):
            Path(folder, name).write_text(text)
        python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable
        script = "import sys; sys.path.insert(0, '.'); from netem.cli.main import main; sys.exit(main())"
        command = [
            python, "-c", script, "run", "--rtt", "20ms", "--server", f"{python} server.py 1000", "--",
            python, "client.py", "{server}", "7",
        ]  # fmt: skip
        root = os.getuid() == 0
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False,
            user=65534 if root else None, group=65534 if root else None, extra_groups=[] if root else None,
        )  # fmt: skip
    if done.returncode == 125:
        assert done.stderr.startswith("netem: cannot create a packet network: ")
        assert done.stderr.count("\n") == 1
    else:
        assert (done.returncode, done.stdout) == (7, "5000\n"), done.stderr
        assert "2 round trips (1 handshake), 1 connection" in done.stderr


def test_a_machine_without_any_way_is_told_what_is_missing(start: Start) -> None:
    start(Link(0.02)).close()  # or skip
    closed = "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all"
    words = [*NETEM, "--rtt", "20ms", "--server", "x", "--", "true"]
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", f'{closed} "$@"', "sh", *words],
        capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=ROOT,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == (
        "netem: cannot create a packet network: a user namespace (may users make one here?): No space left on device\n"
    )


def test_a_second_socket_of_the_first_server_is_not_the_second_server(start: Start, tmp_path: Path) -> None:
    network = start(Link(0.004))
    network.close()
    before = len(os.listdir("/proc/self/fd"))
    (tmp_path / "first.py").write_text(
        "import socket, sys, time; from pathlib import Path; folder = Path(sys.argv[1])\n"
        "first, second = socket.create_server(('', 4000)), socket.socket()\n"
        "while not (folder / 'started').exists(): time.sleep(0.01)\n"
        "second.listen(); (folder / 'two').touch(); time.sleep(1000)"
    )
    first = f"{sys.executable} {tmp_path / 'first.py'} {tmp_path}"
    second = f"sh -c 'cd {tmp_path}; touch started; until test -e two; do sleep 0.01; done; sleep 0.3; exit 3'"
    with pytest.raises(RunError, match="ended with status 3 before it listened"), Crossing(network, [first, second]):
        pass
    assert len(os.listdir("/proc/self/fd")) == before
