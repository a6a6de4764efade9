"""Predicts the wants of a fetch, so that one pull is enough: git names its wants only after it has the refs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from smartserver.plugins.git.hint import Hint
from smartserver.vcs.git.names import HEADS, TAGS


class Wants(msgspec.Struct, frozen=True):
    """The arguments of a pull. `refs`: None for all refs. `follow`: as in `PullRequest`."""

    refs: tuple[bytes, ...] | None
    ids: tuple[bytes, ...] = ()
    follow: tuple[bytes, ...] = ()


def wants(hint: Hint, remote: str, settings: Mapping[str, Sequence[bytes]], id_length: int) -> Wants:
    """Return the refs and ids that git will want.

    `remote`: the name of the remote, or its URL if it has none. `settings`: the configuration, with names in lower case
    except for the subsection. `id_length`: the bytes of an object id.
    """
    if hint.command == "clone":
        return _clone(hint)
    if hint.command == "fetch":
        return _fetch(hint, remote, settings, id_length)
    return Wants(None)


def _clone(hint: Hint) -> Wants:
    shallow = any(option in hint.options for option in ("--depth", "--shallow-since", "--shallow-exclude"))
    single = "--single-branch" in hint.options or (shallow and "--no-single-branch" not in hint.options)
    if "--mirror" in hint.options and not single:
        return Wants(None)
    follow = () if "--no-tags" in hint.options else (TAGS,)
    branch = hint.values.get("--branch") or hint.values.get("-b")
    named = _sources(branch.encode("utf-8", "surrogateescape")) if branch else []
    if single:
        return Wants(tuple(named or [b"HEAD"]), follow=follow)
    return Wants((HEADS, *follow, *named))


def _fetch(hint: Hint, remote: str, settings: Mapping[str, Sequence[bytes]], id_length: int) -> Wants:
    refspecs = [word.encode("utf-8", "surrogateescape") for word in hint.refspecs]
    everything = hint.options & {"--all", "--multiple"}
    if not refspecs or everything:
        refspecs = list(settings.get(f"remote.{remote}.fetch", ()))
    tag_option = (settings.get(f"remote.{remote}.tagopt") or [b""])[-1]
    no_tags = "--no-tags" in hint.options or "-n" in hint.options or tag_option == b"--no-tags"
    all_tags = "--tags" in hint.options or "-t" in hint.options or tag_option == b"--tags"
    refs: list[bytes] = []
    ids: list[bytes] = []
    words = iter(refspecs)
    for word in words:
        source = word.lstrip(b"+").partition(b":")[0]
        if source.startswith(b"^"):  # A pull cannot leave refs out, so these may still come.
            continue
        if source == b"tag" and (tag := next(words, b"")):  # `git fetch origin tag v1`
            source = TAGS + tag
        key = _id(source, id_length)
        if key:
            ids.append(key)
        else:
            refs += _sources(source or b"HEAD")
    if not refspecs:
        refs.append(b"HEAD")
    if all_tags:
        refs.append(TAGS)
    # A repository of one branch that is checked out elsewhere asks for tags too unless it was told not to.
    return Wants(tuple(dict.fromkeys(refs)), tuple(ids), () if no_tags or all_tags else (TAGS,))


def _sources(name: bytes) -> list[bytes]:
    """Return the refs that a name in a refspec may mean, in git's order. `HEAD` and a full name mean themselves, and a
    full pattern is cut to its prefix."""
    if name == b"HEAD" or name.startswith(b"refs/"):
        # A pattern may have its star in the middle: all that begins like it is more than enough.
        return [name.partition(b"*")[0] + b"*" if b"*" in name else name]
    return [b"refs/" + name, TAGS + name, HEADS + name]


def _id(name: bytes, length: int) -> bytes:
    if len(name) != 2 * length:
        return b""
    try:
        return bytes.fromhex(name.decode("ascii"))
    except ValueError:
        return b""
