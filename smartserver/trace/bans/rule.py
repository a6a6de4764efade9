"""`SIDE:VERB[:PATH]`: a ban of the calls of some verbs, on some paths. Only this module knows the grammar."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import ClassVar

from smartserver.trace.bans.model import Ban, Finding, WatchedRequest, paths_of
from smartserver.verbs.declare import AnyVerb, Calls

SIDES = ("vfs", "rpc", "*")
"""The classes of verbs."""

NEAR = 5
"""The most similar rules that are listed for an unknown one. A user would not read more."""


class BadRule(ValueError):
    """A rule is not valid, or would ban nothing."""


class Rule(Ban):
    """Calls by their names.

    `SIDE` is a class of verbs: `vfs` for the file-level ones, `rpc` for all others, `*` for both. `VERB` is a name, and
    `PATH` a path on the server. Both may have the shell's `*`, `?` and `[...]`, which match slashes too. The paths of a
    call are that of its request and, for a VFS verb, each one in its arguments. These paths begin at the served root,
    which is `/`. A slash is put before a `PATH` that begins with neither a slash nor a wildcard. Every call that
    matches is banned, even the first one.
    """

    name: ClassVar[str] = "SIDE:VERB[:PATH]"

    def __init__(self, text: str) -> None:
        """Parse a rule.

        Raises:
            BadRule: the text is not a rule, or no verb matches.
        """
        side, _, rest = text.partition(":")
        verb, second, path = rest.partition(":")
        if side not in SIDES or not verb or bool(second) != bool(path):
            raise BadRule(f"no such rule: {text!r}{nearest(text)}")
        self.text = text
        self._side = side
        self._verb = verb
        self._path = path if not path or path[0] in "/*?[" else f"/{path}"
        if verb != "*" and not any(map(self._names, _every_verb())):
            raise BadRule(f"the rule {text!r} matches no verb{nearest(text)}")

    def _names(self, verb: AnyVerb) -> bool:
        return self._side in (_side(verb), "*") and fnmatchcase(verb.name, self._verb)

    def banned(self, path: str, calls: Calls) -> str:
        """Return the verb of the first banned call; empty if no call is banned."""
        for verb, arguments in calls:
            if self._names(verb) and (
                not self._path or any(fnmatchcase(each, self._path) for each in paths_of(path, verb, arguments))
            ):
                return verb.name
        return ""

    def asking(self, asked: WatchedRequest) -> Finding | None:
        """Return a finding if the rule bans a call of the request."""
        verb = self.banned(asked.path, asked.calls)
        return Finding(verb) if verb else None


def nearest(text: str, others: Sequence[str] = ()) -> str:
    """Return the end of a message about an unknown rule: similar rules, and the forms of a rule.

    `others`: further names that are valid rules.
    """
    import difflib  # It takes 4 ms to load, which only a mistake costs.

    rules = [*others, "vfs:*", "rpc:*", *(f"{_side(verb)}:{verb.name}" for verb in _every_verb())]
    verb = text.partition(":")[2].partition(":")[0]
    written = {name.lower(): rule for rule in rules for name in (rule, rule.partition(":")[2]) if name not in ("", "*")}
    wanted = [name.lower() for name in (text, verb) if name]
    found = [each for name in wanted for each in difflib.get_close_matches(name, written, NEAR)]
    found += [name for name in written for part in wanted if part in name]
    similar = list(dict.fromkeys(written[name] for name in found))[:NEAR]
    forms = " or ".join((f"{Rule.name} with a SIDE of {', '.join(SIDES)}", *others))
    return f"{'; near it: ' if similar else ''}{', '.join(similar)}; a rule is {forms}"


def _side(verb: AnyVerb) -> str:
    return "vfs" if verb.is_vfs else "rpc"


def _every_verb() -> list[AnyVerb]:
    from smartserver.verbs.all import every_verb  # A client has loaded only the verbs that it uses.

    return every_verb()
