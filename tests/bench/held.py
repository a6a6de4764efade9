"""`python -m bench.held URL BYTES PUSHES PAUSE`: pushes of so many bytes, as JSON.

One connection, which the first push opens; before the last there is a pause of PAUSE seconds. Each push: a name and its
seconds. Run by `bench cold` on the near side of a link.
"""

from __future__ import annotations

import json
import sys
import time

from smartserver.cli.errors import CommandError
from smartserver.cli.operations import BRANCH, KINDS, VCS, Commits
from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, Outcome, RefUpdate
from smartserver.client.url import parse
from smartserver.verbs.rules import Rule

FRESH, HELD, PAUSED = "fresh", "held", "paused"


def pushes(url: str, content: int, count: int, pause: float) -> list[tuple[str, float]]:
    """Push, and say how long each took; what is made before the first is not counted."""
    location = parse(url)
    commits = Commits()
    found = []
    with Client(lambda: TcpMedium(location.host, location.port), agent="bench") as client:
        remote = RemoteRepository(client, location.path, Knowledge(None, url))

        def push(size: int) -> float:
            commit = commits.next(size)
            rule = Rule.FF if commit.parents else Rule.FORCE
            new = NewRepository(VCS, KINDS, {"HEAD": b"refs/heads/main"})
            begun = time.monotonic()
            (done,) = remote.push([RefUpdate(BRANCH, commit.id, rule)], commit, new)
            seconds = time.monotonic() - begun
            if done.outcome is not Outcome.DONE:
                raise CommandError(f"a push was refused: {done.error}")
            return seconds

        push(8)
        client.close()
        found.append((FRESH, push(content)))
        found += [(HELD, push(content)) for _ in range(count)]
        if pause:
            time.sleep(pause)
            found.append((PAUSED, push(content)))
    return found


if __name__ == "__main__":
    print(json.dumps(pushes(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))))
