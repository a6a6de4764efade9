"""The command `brz hpss-mirrors`, for the local mirrors of repositories on hpss:// servers."""

from __future__ import annotations

import time

from breezy.commands import Command
from breezy.errors import CommandError
from breezy.option import Option
from breezy.trace import note
from breezy.urlutils import split_segment_parameters

from smartserver.client.mirrors import ALL_MIRRORS
from smartserver.client.places import parse_place
from smartserver.client.url import BadUrl
from smartserver.plugins.breezy.mirror import mirrors


class cmd_hpss_mirrors(Command):  # type: ignore[misc]  # Breezy is not typed.
    """Show, or remove, the local mirrors of repositories on hpss:// servers.

    A command that reads a branch on a server receives its history into a mirror, so that the next command receives only
    new revisions. The option hpss.mirror_size limits the size of one mirror, by default to 1 GB, and that of all
    mirrors to four times as much. Mirrors that were not used for the longest time are removed first. With 0 no command
    keeps or reads a mirror; --clear removes those that exist.

    Nothing is lost when a mirror is removed: the history is received again when it is needed.
    """

    takes_args = ["location?"]
    takes_options = [Option("clear", help="Remove the mirror of LOCATION, or all mirrors.")]

    def run(self, location: str | None = None, clear: bool = False) -> int:
        """List the mirrors, or with `clear` remove those that are not in use."""
        kept = mirrors()
        if kept is None:
            raise CommandError("there are no mirrors: neither HOME nor XDG_CACHE_HOME names a folder for them")
        wanted = None if location is None else _key(location)
        left = found = 0
        for mirror in kept.kept():
            if wanted is not None and not f"{wanted}/".startswith(f"{mirror.url.rstrip('/')}/"):
                continue
            found += 1
            state = ""
            if clear and not kept.remove(mirror.name):
                left, state = left + 1, "  in use: not removed"
            elif clear:
                state = "  removed"
            used = time.strftime("%Y-%m-%d %H:%M", time.localtime(mirror.used))
            self.outf.write(f"{mirror.size / 1e6:10.1f} MB  {used}  {mirror.url}{state}\n")
        if not found and location is not None:
            note("There is no mirror of %s.", location)
        if not clear and wanted is None:
            one, all_of_them = kept.limit / 1e6, kept.limit * ALL_MIRRORS / 1e6
            self.outf.write(f"At most {one:.1f} MB of one repository, {all_of_them:.1f} MB in all: {kept.folder}\n")
        return 1 if left else 0


def _key(location: str) -> str:
    place, parameters = split_segment_parameters(location)
    try:
        return parse_place("/".join(filter(None, (place, parameters.get("branch"))))).key
    except BadUrl as error:
        raise CommandError(str(error)) from None
