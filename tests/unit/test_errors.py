"""smartserver.errors and transports.errors: each error is sent as its code and fields, and received unchanged."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

import smartserver.errors as errors
import transports.errors as storage
from transports.errors import CodedError

KEY = bytes(range(20))
EXAMPLES: dict[str, object] = {
    "str": "a/path: größer",
    "bytes": KEY,
    "int": 7_340_033,
    "bool": True,
    "list[bytes]": [KEY, KEY[::-1]],
}
"""A value of each type that a field may have."""

CODES = sorted(CodedError.by_code)


def example(cls: type[CodedError]) -> CodedError:
    """Return an error of that class with a value in each field."""
    assert dataclasses.is_dataclass(cls)
    made = cls(**{field.name: EXAMPLES[str(field.type)] for field in dataclasses.fields(cls)})
    assert isinstance(made, CodedError)
    return made


def travel(error: CodedError) -> CodedError:
    """Encode an error for the wire, and return the error that the peer decodes."""
    arguments = msgspec.msgpack.decode(msgspec.msgpack.encode(error.wire_arguments()))
    return errors.error_from_wire(error.code, arguments)


@pytest.mark.parametrize("code", CODES)
def test_an_error_comes_back_as_it_was(code: str) -> None:
    sent = example(CodedError.by_code[code])
    got = travel(sent)
    assert type(got) is type(sent)
    assert got.wire_arguments() == sent.wire_arguments()
    assert got.code == code
    assert str(got) == str(sent)


@pytest.mark.parametrize("code", CODES)
def test_a_message_is_one_line_that_names_what_it_is_about(code: str) -> None:
    sent = example(CodedError.by_code[code])
    said = str(sent)
    assert said
    assert "\n" not in said
    for value in sent.wire_arguments().values():
        if isinstance(value, int) and not isinstance(value, bool):
            assert str(value) in said
        if isinstance(value, str):
            assert value in said
        if isinstance(value, bytes):
            assert value.hex() in said or errors._name(value) in said
        if isinstance(value, list):
            assert all(key.hex() in said for key in value)


def test_every_class_of_the_trees_has_a_code_or_only_groups() -> None:
    groups = {"SmartServerError", "RequestError", "RepositoryError", "TransportError"}
    for module in (errors, storage):
        for name, cls in vars(module).items():
            if isinstance(cls, type) and issubclass(cls, CodedError) and cls is not CodedError:
                assert (name in groups) != (CodedError.by_code.get(cls.code) is cls), name
                if name not in groups:
                    assert name in (module.__doc__ or ""), f"{name} is not in the tree {module.__name__} shows"


def test_an_unknown_code_is_kept_as_it_came() -> None:
    got = errors.error_from_wire("flooded", {"room": "cellar"})
    assert isinstance(got, errors.UnknownRemoteError)
    assert got.remote_code == "flooded"
    assert str(got).endswith(" a newer release knows: flooded: {'room': 'cellar'}")


def test_an_argument_of_a_later_release_is_skipped_and_one_that_says_nothing_is_not_sent() -> None:
    got = errors.error_from_wire("no-such-branch", {"ref": b"refs/heads/main", "since": 3})
    assert isinstance(got, errors.NoSuchBranch)
    assert got.wire_arguments() == {"ref": b"refs/heads/main"}
    assert errors.error_from_wire("no-such-repository", {"path": "a"}).wire_arguments() == {"path": "a"}
    assert errors.NoSuchRepository("a").wire_arguments() == {"path": "a"}
    assert errors.NoSuchRepository("a", "a file").wire_arguments() == {"path": "a", "found": "a file"}
    assert errors.NoSuchRepository("").wire_arguments() == {"path": ""}


@pytest.mark.parametrize("arguments", [{}, {"ref": 3}, {"ref": None}, {"ref": "base64"}, {"ref": "bWFpbg=="}])
def test_arguments_that_do_not_fit_are_never_guessed(arguments: dict[str, object]) -> None:
    got = errors.error_from_wire("no-such-branch", arguments)
    assert isinstance(got, errors.UnknownRemoteError)
    assert got.remote_code == "no-such-branch"
    assert got.detail.startswith(repr(arguments))


def test_a_code_has_one_owner() -> None:
    with pytest.raises(TypeError, match="'no-such-file' is already NoSuchFile"):

        class Second(CodedError, code="no-such-file"):
            pass

    assert CodedError.by_code["no-such-file"] is storage.NoSuchFile


def test_a_coded_class_that_is_no_dataclass_is_unknown_when_it_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CodedError, "by_code", dict(CodedError.by_code))

    class Plain(CodedError, code="plain", retryable=True):
        pass

    error = Plain("the message")
    assert error.retryable
    got = travel(error)
    assert isinstance(got, errors.UnknownRemoteError)
    assert got.detail == "{'message': 'the message'}"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            errors.NoSuchBranch(b"refs/heads/gr\xf6n"),
            "there is no branch or tag 'refs/heads/gr\\\\xf6n': check the name, or pull again",
        ),
        (
            errors.StaleLease(b"a", b"", b"\x01\x02"),
            "'a' is at 0102, but was expected not to exist: pull first, then try again",
        ),
        (
            errors.StaleLease(b"a", b"\x01", b""),
            "'a' does not exist, but was expected at 01: pull first, then try again",
        ),
        (
            errors.MissingBase([b"\x01", b"\x02", b"\x03", b"\x04", b"\x05"]),
            "the repository lacks delta bases: 01, 02, 03 and 2 more",
        ),
        (errors.CorruptRecord(b"", b"", "segment 3 of the stream: cut off"), "segment 3 of the stream: cut off"),
        (
            errors.CorruptRecord(b"\x01", b"\x02", "too long"),
            "record 02 of revision 01 is not valid: too long",
        ),
        (errors.CorruptRecord(b"\x01", b"", "came twice"), "revision 01 is not valid: came twice"),
        (
            errors.DivergedBranches(b"trunk", b"\xab"),
            "'trunk' has diverged: it is at ab; pull and merge first, or force the push",
        ),
        (
            errors.NewHeads(b"default", [b"\xab", b"\xac"]),
            "'default' would get a new head ab, ac: pull and merge first, or force the push",
        ),
        (
            errors.DivergedBranches(b"trunk", b"\xab", behind=True),
            "'trunk' is at ab, ahead of the pushed revision: pull, or force the push",
        ),
        (errors.NoSuchRepository("a"), "there is no repository at 'a'"),
        (errors.NoSuchRepository("a", "a file"), "there is no smartserver repository at 'a', but a file"),
        (errors.NoSuchRepository(""), "there is no repository at the server's root"),
        (errors.WrongVcs("/", "hg", "git"), "the repository at the server's root is hg, not git"),
        (
            errors.NestedRepository("a", ""),
            "'a' is inside the repository at the server's root: use that repository, or a path outside it",
        ),
        (errors.InvalidPath("", "a file is there"), "invalid repository path: a file is there"),
    ],
)
def test_what_a_person_reads(error: CodedError, said: str) -> None:
    assert str(error) == said


@pytest.mark.parametrize(
    ("above", "path", "known"),
    [
        ("", "code/a", "code/a"),
        ("/srv/", "code/a", "/srv/code/a"),
        ("~/", "a b", "~/a b"),
        ("me@h:22:/srv/", "a:/b", "/srv/a:/b"),
        ("[::1]:~/", "a", "~/a"),
        ("/srv/a?b:/", "c", "/srv/a?b:/c"),
        ("sftp://h/srv/?host-key=SHA256:x/y", "a", "sftp://h/srv/a"),
        ("sftp://h/srv/", "a b", "sftp://h/srv/a%20b"),
        ("sftp://h/srv/", "", "sftp://h/srv"),
        ("/", "", "/"),
    ],
)
def test_a_path_is_called_what_its_user_calls_it(above: str, path: str, known: str) -> None:
    """The error names the full path, and not only the part below the served folder."""
    assert errors.known_as(above, path) == known
    wrong = errors.WrongVcs(path, "hg", "git")
    errors.name_from(above, wrong)
    assert wrong.path == known
    nested = errors.NestedRepository(f"{path}/x".strip("/"), path)
    errors.name_from(above, nested)
    assert nested.inside == known


def test_what_has_no_path_gets_none() -> None:
    wrong: list[CodedError] = [
        storage.TransportFailed("", "lost"), errors.InvalidPath("", "why"), errors.AccessDenied("write", "why"),
        errors.CorruptFile("packs/x", 1, "why"), errors.NotDone(),
    ]  # fmt: skip
    before = list(map(str, wrong))
    for each in wrong:
        errors.name_from("/srv/", each)
    assert list(map(str, wrong)) == before


def test_what_is_unknown_is_said_once() -> None:
    """The failed step has said it before, as in a store reached by a server's file operations."""
    unknown = "it is unknown whether the change was made"
    assert (
        str(errors.OutcomeUnknown("it is gone"))
        == f"{unknown}: it is gone; look at the repository before you repeat the command"
    )
    step = f"putting the new root in place failed: vfs://h: {unknown}: it is gone"
    assert str(errors.OutcomeUnknown(step)) == step


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (bytes(range(20)), "000102030405060708090a0b0c0d0e0f10111213"),
        (b"\xe9" * 20, "e9" * 20),
        (b"joe@example.org-20261122-x1", "joe@example.org-20261122-x1"),
        (b"readme-id\0joe@example.org-1", "readme-id joe@example.org-1"),
        ("jos\u00e9-1".encode(), "jos\u00e9-1"),
        (b"a\nb", "610a62"),
        (b"\x1b[31m", "1b5b33316d"),
        ("\u202e".encode(), "e280ae"),
        (b"", ""),
    ],
)
def test_keys_are_shown_as_text_where_they_are_that(key: bytes, said: str) -> None:
    assert errors.shown(key) == said
    assert (
        str(errors.MissingRevision(key)) == f"the repository does not have revision {said}: check the id, or pull again"
    )
