"""A second implementation of the repository's log, written from doc/spec/disk.md alone: it imports nothing of ours.

It reads a repository in a folder of this machine, and makes the content of checkpoints.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from struct import calcsize, pack, unpack_from
from typing import Any

import msgspec

unpacked, packed = msgspec.msgpack.decode, msgspec.msgpack.encode

RECORD, CHECKPOINT = "<8sHH16s", "<8sHHI16s"
DAY, MARGIN = 24 * 3600 * 1000, 10 * 60 * 1000


class DamageError(Exception):
    """Something does not follow what is there."""


def hashed(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def published(path: Path) -> bytes | None:
    """The content of a file that was created exclusively, in either form."""
    for form in (path / "record", path):
        try:
            return form.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except IsADirectoryError:
            return None
    return None


def parse_record(content: bytes) -> tuple[list[Any], bytes]:
    """The fields of a record, and its hash."""
    magic, version, flags, check = unpack_from(RECORD, content)
    payload = content[calcsize(RECORD) :]
    if (magic, version, flags) != (b"hpss-rec", 1, 0) or hashed(payload) != check:
        raise DamageError("no record")
    fields: list[Any] = unpacked(payload)
    if fields[2]:
        raise DamageError(f"unknown features {fields[2]}")
    return fields, check


class State:
    """A repository after record `version`."""

    def __init__(self, record_hash: bytes) -> None:
        self.version, self.hash = 1, record_hash
        self.features: list[str] = []
        self.incarnation, self.vcs, self.kinds = b"", "", list[Any]()
        self.packs: list[list[Any]] = []
        self.settings: dict[str, bytes] = {}
        self.settings_version = 0
        self.tables: dict[str, tuple[str, dict[bytes, bytes]]] = {}
        self.dropped: dict[bytes, list[int]] = {}
        self.history: list[list[Any]] = []
        self.horizon = [0, 0, 0]

    # -- what follows

    def follow(self, content: bytes) -> None:
        """Become the state after the next record."""
        (number, parent, features, time, entries, joins, dropped, forgotten, *_), record_hash = parse_record(content)
        if (number, parent) != (self.version + 1, self.hash):
            raise DamageError(f"record {number} does not follow")
        self.version, self.hash = number, record_hash
        self.features += [each for each in features if each not in self.features]
        forgets = False
        for request, user, outcomes, changes, arrived, begins, deletes, *more in entries:
            if begins is not None:
                self.incarnation, self.vcs, self.kinds, complete = begins
                self.tables.setdefault("refs", ("ids", {}))
                self.settings_version = number
                forgets |= not complete
            for table, key, _, new in changes:
                self.change(table, key, new)
            if arrived is not None:
                self.packs.append(arrived)
            if deletes:
                self.drop([each[0] for each in self.packs], time)
                self.packs, self.tables, self.settings, self.settings_version = [], {}, {}, number
                self.incarnation, self.vcs, self.kinds = b"", "", []
            mark = int.from_bytes(record_hash[:2], "big")
            options = more[0] if more else []
            self.history.append([number, mark, time, user, request, outcomes, changes, options])
        for names, into in joins:
            at = [each[0] for each in self.packs].index(names[0])
            if [each[0] for each in self.packs[at : at + len(names)]] != names:
                raise DamageError(f"record {number} joins what does not lie side by side")
            self.packs[at : at + len(names)] = [into]
            self.drop(names, time)
        self.drop(dropped, time)
        for name in forgotten:
            self.dropped.pop(name, None)
        self.trim(time)
        if forgets:
            self.horizon[2] = time

    def change(self, table: str, key: bytes, new: bytes | None) -> None:
        if table == "maps":
            name = f"map/{key.decode()}"
            if new is None:
                del self.tables[name]
            else:
                self.tables[name] = (new.decode(), self.tables.get(name, ("", {}))[1])
            return
        if table == "settings":
            self.settings_version = self.version
        entries: dict[Any, bytes] = self.settings if table == "settings" else self.tables[table][1]
        name_or_key = key.decode() if table == "settings" else key
        if new is None:
            del entries[name_or_key]
        else:
            entries[name_or_key] = new

    def drop(self, names: list[bytes], time: int) -> None:
        self.dropped.update((name, [time, self.version]) for name in names)

    def trim(self, now: int) -> None:
        size = sum(len(packed(each)) for each in self.history)
        while len(self.history) > 1:
            version, mark, time = self.history[0][:3]
            if size <= 16_777_216 and not (len(self.history) > 1000 and now - time > DAY):
                return
            size -= len(packed(self.history.pop(0)))
            self.horizon = [version, mark, min(time, now) + MARGIN]

    # -- checkpoints

    def checkpoint(self) -> bytes:
        heads, contents = [], []
        for name, (kind, entries) in sorted(self.tables.items()):
            bodies = [pack("<H", len(key)) + key + value for key, value in sorted(entries.items())]
            ends = [sum(map(len, bodies[:count])) for count in range(len(bodies) + 1)]
            content = pack(f"<{len(ends) + 1}I", len(bodies), *ends) + b"".join(bodies)
            heads.append([name, kind, sum(len(key) + len(value) for key, value in entries.items()), len(content)])
            contents.append(content)
        settings, dropped = (dict(sorted(each.items())) for each in (self.settings, self.dropped))
        head = packed(
            [
                *[self.version, self.hash, self.features, self.incarnation, self.vcs, self.kinds, self.packs],
                *[settings, self.settings_version, heads, dropped, self.horizon],
            ]
        )
        rest = head + b"".join(contents) + packed(self.history)
        return pack(CHECKPOINT, b"hpss-ckp", 1, 0, len(head), hashed(rest)) + rest

    @classmethod
    def parse(cls, content: bytes) -> State:
        magic, version, flags, length, check = unpack_from(CHECKPOINT, content)
        rest = content[calcsize(CHECKPOINT) :]
        if (magic, version, flags) != (b"hpss-ckp", 1, 0) or hashed(rest) != check:
            raise DamageError("no checkpoint")
        head = unpacked(rest[:length])
        made = cls(head[1])
        made.version, _, made.features, made.incarnation, made.vcs, made.kinds, made.packs = head[:7]
        made.settings, made.settings_version, tables, made.dropped, made.horizon = head[7:12]
        at = length
        for name, kind, _, size in tables:
            content = rest[at : at + size]
            (count,) = unpack_from("<I", content)
            ends, entries = unpack_from(f"<{count + 1}I", content, 4), content[4 * (count + 2) :]
            made.tables[name] = (kind, {})
            for index in range(count):
                body = entries[ends[index] : ends[index + 1]]
                (key,) = unpack_from("<H", body)
                made.tables[name][1][body[2 : 2 + key]] = body[2 + key :]
            at += size
        made.history = unpacked(rest[at:])
        return made


class SecondStore:
    """A repository in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if published(folder / "format") != b"smartserver repository 2\n":
            raise DamageError("no repository of this version")
        self.state = self.open()

    def record(self, number: int) -> bytes | None:
        return published(self.folder / f"log/{number:010}")

    def open(self) -> State:
        """The newest state, from the newest checkpoint that serves."""
        for name in sorted((path.name for path in (self.folder / "checkpoints").iterdir()), reverse=True):
            version, _, record_hash = name.partition("-")
            record = self.record(int(version))
            if record is not None and parse_record(record)[1].hex() == record_hash:
                state = State.parse((self.folder / "checkpoints" / name).read_bytes())
                return self.look(state)
        first = self.record(1)
        if first is None:
            raise DamageError("record 1 is missing")
        return self.look(State(parse_record(first)[1]))

    def look(self, state: State) -> State:
        """Follow all records that came, then look back at the one it stood on and at the last but one."""
        stood = [(state.version, state.hash)]
        while (content := self.record(state.version + 1)) is not None:
            state.follow(content)
            stood.append((state.version, state.hash))
        for number, record_hash in {stood[0], stood[-2:][0]}:
            content = self.record(number)
            if content is None or parse_record(content)[1] != record_hash:
                return self.open()
        return state
