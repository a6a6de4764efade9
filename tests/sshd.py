"""`Sshd`: a real OpenSSH server on loopback, or behind any socket, for tests and measurements. It runs as the user that
starts it, and accepts the one key it makes.

    with Sshd(folder) as server:
        account = Account(server.host, port=server.port, config=str(server.config))
"""

from __future__ import annotations

import getpass
import os
import select
import socket
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from needs import Missing, program

SEPARATION = Path("/run/sshd")
"""An empty folder that a server of root's insists on; where no system starts it, nobody has made it."""

ALIAS = "the-server-of-this-test"
"""Its name in `known_hosts`, whatever port leads to it."""

SERVER = """\
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
Subsystem sftp {subsystem}
{session}
"""

CLIENT = """\
Host *
  HostKeyAlias {alias}
  UserKnownHostsFile {folder}/known_hosts
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
"""


class Sshd:
    """The server, as a context. `config` is a file for clients (`ssh -F`) that says all but host and port."""

    def __init__(
        self, folder: Path, *, subsystem: str = "internal-sftp", listener: socket.socket | None = None,
        session: Mapping[str, str] = {},
    ) -> None:  # fmt: skip
        """`folder`: where its keys are made. `listener`: the socket that clients connect to, which may be in another
        network namespace; it is closed with the server. `session`: variables in the environment of each session."""
        self.folder = folder
        self.config = folder / "config"
        self.user = getpass.getuser()
        self._subsystem = subsystem
        self._variables = session
        self._sessions: list[subprocess.Popen[bytes]] = []
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        self.host: str
        self.port: int
        self.host, self.port = self._listener.getsockname()
        self._thread = threading.Thread(target=self._serve, name="sshd")

    def __enter__(self) -> Self:
        """Begin.

        Raises:
            Missing: there is no OpenSSH on this machine.
        """
        try:
            self._program, keygen = program("sshd"), program("ssh-keygen")
        except Missing:
            self._listener.close()
            raise
        if os.getuid() == 0:
            SEPARATION.mkdir(mode=0o755, exist_ok=True)
        for name in ("host_key", "user_key"):
            command = [keygen, "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(self.folder / name)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        host_key = (self.folder / "host_key.pub").read_text()
        (self.folder / "known_hosts").write_text(f"{ALIAS} {host_key}")
        (self.folder / "authorized_keys").write_text((self.folder / "user_key.pub").read_text())
        variables = " ".join(f'"{name}={value}"' for name, value in self._variables.items())
        session = f"SetEnv {variables}" if variables else ""
        config = SERVER.format(folder=self.folder, subsystem=self._subsystem, session=session)
        (self.folder / "sshd_config").write_text(config)
        self.config.write_text(CLIENT.format(folder=self.folder, alias=ALIAS))
        self._ended, self._end = socket.socketpair()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()
        self._thread.join()
        self._ended.close()
        self._listener.close()
        for session in self._sessions:
            session.terminate()
            session.wait()

    def _serve(self) -> None:
        """A server for each connection, as inetd starts one: so the port is ours from the first moment on.

        It starts itself again for each session, and so must be started by its full path."""
        command = [self._program, "-i", "-e", "-f", str(self.folder / "sshd_config")]
        while self._ended not in select.select([self._listener, self._ended], [], [])[0]:
            connection, _ = self._listener.accept()
            with connection:
                fd = connection.fileno()
                with open(self.folder / "log", "ab") as log:
                    self._sessions.append(subprocess.Popen(command, stdin=fd, stdout=fd, stderr=log))
