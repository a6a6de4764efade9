"""The audit log: a line for each ref, entry of a map, setting and repository that a request changed, or was not allowed
to change.

    change user=anna by=ssh from=192.0.2.7:50412 path=project ref=refs/heads/main old=1f3a... new=09bc... outcome=done

Fields are `name=value`, in this order, and fields without a value are left out. A value with characters that names and
paths do not have is a JSON string, so that a ref cannot forge a line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from smartserver.errors import shown
from smartserver.records.model import RefValue
from smartserver.server.context import RequestContext
from smartserver.server.logfmt import logfmt
from smartserver.store.transaction import Transaction
from smartserver.wire.messages import Outcome, Status, named
from transports.errors import CodedError

log = logging.getLogger("smartserver.audit")


def audit(context: RequestContext, transaction: Transaction | None, outcomes: Sequence[Outcome]) -> None:
    """Log a request that was carried out. `transaction`: the changes of the request, or None if it changed nothing."""
    if not log.isEnabledFor(logging.INFO):
        return
    who = {"user": context.access.user, "by": context.access.by, "from": context.peer, "via": context.via}
    where = {"path": context.header.message.path}
    try:
        for what in (*_refused(context, outcomes), *(() if transaction is None else _changes(transaction))):
            fields = {name: value for name, value in (who | where | what).items() if value}
            log.info("change %s", logfmt(fields))
    except CodedError as error:  # The change is made: an error here must not say that it is not.
        log.warning("change %s on %r: what it changed cannot be read: %s", who["user"], where["path"], error)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def _tips(value: RefValue | None) -> str:
    return ",".join(shown(tip.id) for tip in value or ())


def _refused(context: RequestContext, outcomes: Sequence[Outcome]) -> Iterator[dict[str, str]]:
    """Yield the fields of each call that was refused while others of its request were carried out. The access log has
    the requests that were refused as a whole."""
    for (verb, arguments), outcome in zip(context.header.calls, outcomes, strict=False):
        if outcome.status == Status.REFUSED and outcome.fault is not None:
            ref = getattr(arguments, "ref", None) or getattr(arguments, "of", None) or b""
            why = str(named(outcome.fault).get("why", ""))
            yield {"verb": verb.name, "ref": _text(ref), "outcome": outcome.fault.code, "why": why}


def _changes(transaction: Transaction) -> Iterator[dict[str, str]]:
    """Yield the fields of each change of a transaction that was carried out."""
    done = {"outcome": "done"}
    if transaction.deleted:
        yield {"repository": "deleted"} | done
    if transaction.created is not None:
        yield {"repository": "created"} | done
    view = None if transaction.snapshot is None or transaction.created is not None else transaction.snapshot.state
    for name, value in transaction.changes.items():
        old = None if view is None else view.ref(name)
        yield {"ref": _text(name), "old": _tips(old), "new": _tips(value)} | done
    for table, entries in transaction.entries.items():
        for key, content in entries.items():
            of, nul, rest = key.partition(b"\0")
            stored = None if view is None else view.map(table).get(key)
            entry = {"ref": _text(of), "entry": f"{table}/{_text(rest)}"} if nul else {"entry": f"{table}/{_text(of)}"}
            yield entry | {"old": shown(stored or b""), "new": shown(content or b"")} | done
    for setting, content in transaction.setting_changes.items():
        yield {"setting": setting, "new": _text(content or b"")} | done
