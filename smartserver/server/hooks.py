"""Runs the hooks of an access file before a change is made.

A hook is a command. Its standard input is JSON with the changes, and `SMARTSERVER_NEW` in its environment names a
repository as it would be after them (`hook_place`). Its status decides: 0 accepts the change. Its output is shown to
the user. While it runs, only the verdict of the request is locked, not the repository. So another change may be made
meanwhile. If that moves a ref of this change, the hook is run again.

A hook that exceeds its time limit is killed with its process group. The verdict about a request is kept (`verdicts`): a
repetition of the request on another connection waits for it, and does not run the command again.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from smartserver.errors import RefusedByHook
from smartserver.programs import exit_reason
from smartserver.server import jail
from smartserver.server.hook_place import make_place
from smartserver.server.hook_process import run_command
from smartserver.server.hook_rules import Hook
from smartserver.server.verdicts import Verdict, Verdicts
from smartserver.store.preview import Preview
from smartserver.store.preview_folder import NEW, PreviewedStore
from smartserver.store.upload import Report
from transports.errors import TransportError, TransportFailed

log = logging.getLogger("smartserver")


class Hooks:
    """The hooks of a server. Any thread may use them."""

    def __init__(
        self,
        rules: Callable[[], Sequence[Hook]] = tuple,
        environment: Mapping[str, str] | None = None,
        verdicts: Verdicts | None = None,
        bucket: PreviewedStore | None = None,
    ) -> None:
        """`rules`: returns the current hooks of the access file. `environment`: the variables of the commands. Without
        `verdicts`, a repeated request is judged again. `bucket`: the place of the store if it is a bucket."""
        self._rules = rules
        self.environment = environment or {}
        self._verdicts = verdicts
        self._bucket = bucket

    def may_concern(self, path: str) -> bool:
        """Return True if a hook may judge a request with this path, which may lead below a repository."""
        try:
            rules = self._rules()
        except TransportFailed:  # The request gets that error when its change is planned.
            return True
        judging = [hook for hook in rules if hook.before]
        return bool(judging) and any(hook.fits(above) for above in jail.prefixes(path.strip("/")) for hook in judging)

    def of(self, path: str) -> list[Hook]:
        """Return the hooks that judge changes of the repository at a path."""
        return [hook for hook in self._rules() if hook.before and hook.fits(path)]

    def receivers(self, path: str) -> list[Hook]:
        """Return the hooks that are notified of changes of the repository at a path."""
        return [hook for hook in self._rules() if hook.receiver and hook.fits(path)]

    def judge(self, request: bytes, digest: bytes, hooks: Sequence[Hook], run: Callable[[Hook], str]) -> None:
        """Let hooks judge the changes of a request, once for all its repetitions. `digest`: the digest of everything
        that the hooks judge. `run`: returns the reason why a hook refuses the changes; empty if it accepts them.

        Raises:
            RefusedByHook: a hook refuses the changes, or cannot be run.
        """

        def verdict() -> Verdict:
            refused = ((hook, why) for hook in hooks if (why := run(hook)))
            found = next(refused, None)
            return Verdict(digest) if found is None else Verdict(digest, found[0].name, found[1])

        try:
            made = verdict() if self._verdicts is None else self._verdicts.get(request, digest, verdict)
        except OSError as error:
            log.warning("the verdict of hooks cannot be stored, so the change is refused: %s", error)
            raise RefusedByHook(hooks[0].name, f"its verdict cannot be stored: {error.strerror}") from error
        if made.hook:
            raise RefusedByHook(made.hook, made.why)

    def run(
        self, hook: Hook, said: Mapping[str, object], preview: Preview | None, folder: str | None, report: Report
    ) -> str:
        """Run a hook. Return the reason why it refuses the changes; empty if it accepts them. `said`: its input.
        `preview`: None if the change deletes the repository. `folder`: the folder of the repository; None if it is in
        no folder of this machine. `report`: is called while the hook runs, with the seconds so far and the time
        limit."""
        store = folder if folder is not None or self._bucket is None else self._bucket.below(str(said["path"]))
        if store is None:
            return "it needs a repository in a folder of the server's machine, or in a bucket"
        try:
            place = Path(tempfile.mkdtemp(prefix="smartserver-hook-"))
            try:
                return self._run(hook, said, preview, store, place, report)
            finally:
                shutil.rmtree(place, ignore_errors=True)
        except (OSError, TransportError) as error:
            log.warning("the hook %s cannot be run: %s", hook.before[0], error)
            return f"it cannot be run: {getattr(error, 'strerror', None) or error}"

    def _run(
        self,
        hook: Hook,
        said: Mapping[str, object],
        preview: Preview | None,
        store: str | PreviewedStore,
        place: Path,
        report: Report,
    ) -> str:
        environment = {**self.environment}
        if preview is not None:
            new = place / "new"
            new.mkdir()
            make_place(preview, store, new)
            environment[NEW] = str(new)
        start = time.monotonic()
        pulse = partial(report, f"hook {hook.name}")
        ended = run_command(
            hook.before, said, environment, place, hook.time_limit, lambda seconds: pulse(seconds, hook.time_limit)
        )
        seconds = time.monotonic() - start
        what = "no end" if ended.status is None else exit_reason(ended.status)
        log.info("the hook %s on %s: %s after %.1f s", hook.before[0], said["path"], what, seconds)
        if ended.status is None:
            log.warning("the hook %s on %s was killed after %d s", hook.before[0], said["path"], hook.time_limit)
        return ended.why
