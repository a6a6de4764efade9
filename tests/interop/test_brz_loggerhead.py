"""Loggerhead, which nobody here wrote, uses Breezy as a library: it shows a branch on a server as a local one, and sees
what another user pushes at its next request: plugins.breezy.branch, plugins.breezy.remote."""

from __future__ import annotations

import pytest
from brz_sides import Users
from test_brz_process import program

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

BROWSE = """
import io, re, warnings
warnings.simplefilter("ignore")
from loggerhead.apps.branch import BranchWSGIApp
from smartserver.client.call import Client

asked = []
request = Client.request
Client.request = lambda self, outgoing: (asked.append(1), request(self, outgoing))[1]

def page(location, path):
    branch = Branch.open(location)
    environment = {
        "REQUEST_METHOD": "GET", "SCRIPT_NAME": "", "PATH_INFO": path, "QUERY_STRING": "", "SERVER_NAME": "localhost",
        "SERVER_PORT": "80", "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(), "wsgi.errors": sys.stderr,
        "wsgi.version": (1, 0), "wsgi.multithread": False, "wsgi.multiprocess": False, "wsgi.run_once": False,
    }
    said, written = [], []
    application = BranchWSGIApp(branch, "trunk", {"cache_dir": None}, {}, is_root=True)
    rest = application.app(environment, lambda status, headers, *_: (said.append(status), written.append)[1])
    body = b"".join([*written, *rest])
    assert said == ["200 OK"], (said, body)
    return re.sub(rb"\\d+ (seconds?|minutes?) ago|trunk/?|a/", b"", body.replace(location.encode(), b""))

def compare(*paths):
    for path in paths:
        del asked[:]
        theirs = page(url, path)
        count = len(asked)
        assert theirs == page(here, path), path
        assert count <= 3, (path, count)
"""


def test_loggerhead_shows_what_it_shows_of_a_local_branch(users: Users) -> None:
    source = """
compare("/changes", "/files", "/annotate/head:/two", "/revision/2", "/view/head:/one")
open(f"{here}/four", "w").write("four")
tree = WorkingTree.open(here)
tree.add(["four"])
tree.commit("another", committer="a <a@example.org>")
push(here, url)
compare("/changes", "/files", "/view/head:/four")
print("same")
"""
    assert program(users, "b", BROWSE + source, url=users.url(), here=str(users.path("a"))) == ["same"]
