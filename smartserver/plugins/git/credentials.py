"""Gets the user's token from git's credential helpers, which store it as a password, or lets git ask the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from smartserver.client.credentials import token_in
from smartserver.spans import Part, span

USER = "token"
"""The user name in git's prompts and helpers. The server ignores it, because the token itself identifies the user."""

SILENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": ""}
"""Variables that keep git from prompting its user. An empty GIT_ASKPASS overrides core.askPass and SSH_ASKPASS."""


class RunProgram(Protocol):
    """Runs a program at the user's terminal. It returns the program's output, which is empty if the program failed."""

    def __call__(self, words: Sequence[str], variables: Mapping[str, str], said: bytes, *, quiet: bool) -> bytes:
        """Run the program and arguments in `words`. `variables`: added to the environment. `said`: the input of the
        program. `quiet`: True to hide its error messages."""


class GitCredentials:
    """Gets the token for one server from git, and tells git whether the server accepted it."""

    def __init__(self, scheme: str, where: str, run: RunProgram) -> None:
        """`where`: the host and port of the server."""
        # A newline would add a line about another server.
        about = f"protocol={scheme}\nhost={where}\n" if where.isprintable() else ""
        self._about = about.encode("utf-8", "surrogateescape")
        self._run = run
        self._found = b""
        """The output of the last `git credential fill`, if it had a token."""

    def stored(self) -> str:
        """Return the token that one of git's credential helpers has stored; empty if none has a token."""
        return self._fill(b"", asks=False)

    def ask(self) -> str:
        """Return the stored token. If there is none, let git ask its user for it."""
        return self.stored() or self._fill(b"username=%s\n" % USER.encode(), asks=True)

    def approve(self) -> None:
        """Let the helpers store the last token."""
        self._tell("approve")

    def reject(self) -> None:
        """Let the helpers remove the last token."""
        self._tell("reject")

    def _fill(self, more: bytes, *, asks: bool) -> str:
        if not self._about:
            return ""
        interactive = [] if asks else ["-c", "credential.interactive=false"]
        words = ["git", *interactive, "credential", "fill"]
        with span(Part.LOCAL, "ask for credentials"):
            self._found = self._run(words, {} if asks else SILENT, self._about + more + b"\n", quiet=not asks)
        lines = self._found.split(b"\n")
        password = next((line.removeprefix(b"password=") for line in lines if line.startswith(b"password=")), b"")
        token = token_in(password.decode("utf-8", "surrogateescape"))
        if not token:
            self._found = b""  # It is a password for something else.
        return token

    def _tell(self, action: str) -> None:
        if self._found:
            with span(Part.LOCAL, f"{action} credentials"):
                self._run(["git", "credential", action], {}, self._found + b"\n", quiet=False)
