"""The media between a client and a server, ours and git's: a server of each behind a link of packets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sshd import Sshd

from bench.links import AUTHORITY, PORT, Across, agent, server
from bench.process import MODULES
from bench.servers import Workspace, run, serving_git
from smartserver.cli.errors import CommandError

LOGIN = "ssh -F {config}"
CONTROL = f"{LOGIN} -o ControlMaster=auto -o ControlPersist=600 -o ControlPath={{control}}"


@dataclass(frozen=True)
class Medium:
    """A way to a repository. `reach` fills in the `{names}` in its words."""

    name: str
    url: str
    serve: Callable[[Path, str, int], Sequence[str]] | None = None
    """Makes the command of its server from a folder, a host and a port; None: a server that several media share."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Variables in the environment of its clients."""
    close: str = "smartserver agent forget {url}"
    """The command that closes the connection that an agent holds between commands."""

    @property
    def is_ours(self) -> bool:
        """True if this medium leads to a server of ours."""
        return self.name.startswith("hpss")


TCP = Medium("hpss://", "hpss://{host}:{port}/{name}")
ALONE = Medium("hpss://, without the agent", TCP.url, settings={"SMARTSERVER_AGENT": "0"})
TLS = Medium("hpss+tls://", "hpss+tls://{host}:{port}/{name}?ca={ca}")
SSH = Medium("hpss+ssh://", "hpss+ssh://{host}:{sshd}{served}/{name}")
GIT = Medium("git://", "git://{host}:{port}/{name}", serving_git, close="true")
GIT_SSH = Medium(
    "git over ssh, ControlPersist", "ssh://{host}:{sshd}{served}/{name}", settings={"GIT_SSH_COMMAND": CONTROL},
    close=f"{CONTROL} -O exit -p {{sshd}} {{host}}",
)  # fmt: skip


@dataclass(frozen=True)
class Reached:
    """A medium with a server at its other end."""

    medium: Medium
    names: Mapping[str, object]
    environment: Mapping[str, str]
    """The environment of a client."""

    def words(self, text: str) -> list[str]:
        """Return the words of a command, with its names filled in."""
        return text.format_map(self.names).split()


@contextmanager
def reach(there: Across, work: Workspace, media: Sequence[Medium]) -> Iterator[list[Reached]]:
    """Start the servers of these media, and an agent of their user. The `{url}` of each medium has a repository of its
    own: for git an empty one, for ours one that a push makes."""
    user = work.environment("user")
    keys = work.folder / "sshd"
    keys.mkdir()
    with ExitStack() as stack:
        held = stack.enter_context(agent(there.run, user))
        sshd = Sshd(keys, listener=there.network.listen(), session={key: user[key] for key in ("PATH", "HOME")})
        try:
            stack.enter_context(sshd)
        except FileNotFoundError as missing:
            raise CommandError(str(missing)) from None
        found = []
        for number, medium in enumerate(media):
            served, name, port = work.folder / "served", f"project{number}", PORT
            if not medium.is_ours:
                served = work.folder / "served-git"
                run(["git", "init", "--quiet", "--bare", str(served / name)], None, user)
            if medium.serve is not None:
                port += 1 + number
                words = medium.serve(served, sshd.host, port)
                stack.enter_context(server(there.network, words, work.folder, {**user, **MODULES}))
            names: dict[str, object] = {
                "host": sshd.host, "port": port, "sshd": sshd.port, "config": sshd.config, "served": served,
                "name": name, "ca": work.folder / AUTHORITY, "control": f"{held['XDG_RUNTIME_DIR']}/%C",
            }  # fmt: skip
            names["url"] = medium.url.format_map(names)
            settings = {"GIT_SSH_COMMAND": LOGIN, **medium.settings}
            environment = {
                **work.environment(f"user{number}", {"gc.auto": "0", "maintenance.auto": "0"}),
                **held,
                **{key: value.format_map(names) for key, value in settings.items()},
            }
            found.append(Reached(medium, names, environment))
            stack.callback(there.run, found[-1].words(medium.close), work.folder, environment)
        yield found
