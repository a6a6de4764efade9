//! Parses segments as `records/segment.py` does, and refuses the same ones.

use std::collections::HashSet;

use pyo3::prelude::*;

use crate::limits::{MAX_ENTRIES, MAX_ID, MAX_META, MAX_PARENTS, MAX_RECORD, MAX_SEGMENT, MAX_SEGMENT_TEXT};
use crate::varint;

pub const STORED: u8 = 0;
pub const ZSTD: u8 = 1;
pub const HUNKS: u8 = 3;
pub const ZSTD_HUNKS: u8 = 4;

const LEAST_ENTRY: u64 = 7;
pub const FULL_KEY: u64 = 1;

/// In a segment of at most so many records, each is compared with all before it, which is quicker than a set.
const FEW: usize = 12;

/// A kind of record.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Bytes of a check in the header.
    pub check: usize,
    /// True if a record may have a base.
    pub base: bool,
}

impl Kind {
    /// Return a kind of `records.model`.
    pub fn of(kind: &Bound<'_, PyAny>) -> PyResult<Kind> {
        let check = kind.py().import("smartserver.records.check")?.call_method1("check_bytes", (kind,))?;
        Ok(Kind { check: check.extract()?, base: kind.getattr("base")?.extract()? })
    }

    /// Tell whether records of this kind are bases, and may differ though they have one key.
    pub fn may_conflict(&self) -> bool {
        self.base && self.check > 0
    }
}

/// One kind of records, whose keys are hashes of their texts.
pub const OF_HASHES: [Kind; 1] = [Kind { check: 0, base: true }];

pub struct Parent<'a> {
    pub id: &'a [u8],
    pub absent: bool,
}

/// The header of a record.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    pub kind: u8,
    pub encoding: u8,
    pub key: &'a [u8],
    pub meta: &'a [u8],
    /// The key of its base.
    pub base: Option<&'a [u8]>,
    /// Bytes of the text.
    pub length: usize,
    pub frame_length: usize,
    /// The place of the header in the segment.
    pub header: usize,
    /// A check besides the key; empty if the key is one.
    pub check: &'a [u8],
}

pub struct Segment<'a> {
    pub revision: &'a [u8],
    pub parents: Vec<Parent<'a>>,
    pub entries: Vec<Entry<'a>>,
    /// The place of the first frame.
    pub frames_at: usize,
}

/// Decode the segment in `buf`; `None` if `decode_segment` would refuse it, or if bytes are missing or left over.
pub fn decode<'a>(buf: &'a [u8], kinds: &[Kind]) -> Option<Segment<'a>> {
    let at = &mut 0;
    let length = varint::read(buf, at)?;
    let body = *at;
    if length > MAX_SEGMENT as u64 || length != (buf.len() - body) as u64 {
        return None;
    }
    let revision = some(varint::read_bytes(buf, at, MAX_ID)?)?;
    let parents = read_parents(buf, at, revision)?;
    let entries = read_entries(buf, at, revision, &parents, kinds)?;
    let frames: u64 = entries.iter().map(|entry| entry.frame_length as u64).sum();
    if (*at - body) as u64 + frames != length {
        return None;
    }
    Some(Segment { revision, parents, entries, frames_at: *at })
}

fn some(bytes: &[u8]) -> Option<&[u8]> {
    (!bytes.is_empty()).then_some(bytes)
}

fn read_count(buf: &[u8], at: &mut usize, most: u64, least_bytes: u64) -> Option<usize> {
    let count = varint::read(buf, at)?;
    (count <= most && count * least_bytes <= (buf.len() - *at) as u64).then_some(count as usize)
}

fn read_parents<'a>(buf: &'a [u8], at: &mut usize, revision: &[u8]) -> Option<Vec<Parent<'a>>> {
    let count = read_count(buf, at, MAX_PARENTS, 2)?;
    let mut parents = Vec::with_capacity(count);
    for _ in 0..count {
        let tag = varint::read(buf, at)?;
        if tag >> 1 > MAX_ID as u64 {
            return None;
        }
        let end = *at + (tag >> 1) as usize;
        let id = some(buf.get(*at..end)?)?;
        *at = end;
        if id == revision {
            return None;
        }
        parents.push(Parent { id, absent: tag & 1 == 1 });
    }
    Some(parents)
}

fn read_entries<'a>(
    buf: &'a [u8],
    at: &mut usize,
    revision: &'a [u8],
    parents: &[Parent<'a>],
    kinds: &[Kind],
) -> Option<Vec<Entry<'a>>> {
    let count = read_count(buf, at, MAX_ENTRIES, LEAST_ENTRY)?;
    let mut entries: Vec<Entry<'a>> = Vec::with_capacity(count);
    let mut seen: HashSet<(u8, &[u8])> = HashSet::new();
    let mut texts = 0;
    for _ in 0..count {
        let header = *at;
        let (kind, encoding) = (*buf.get(*at)?, *buf.get(*at + 1)?);
        *at += 2;
        let of_kind = kinds.get(kind as usize)?;
        if !matches!(encoding, STORED | ZSTD | HUNKS | ZSTD_HUNKS) {
            return None;
        }
        let mut key = varint::read_bytes(buf, at, MAX_ID)?;
        if key == revision {
            return None;
        }
        if key.is_empty() {
            key = revision;
        }
        if count > FEW {
            if !seen.insert((kind, key)) {
                return None;
            }
        } else if entries.iter().any(|entry| entry.kind == kind && entry.key == key) {
            return None;
        }
        let meta = varint::read_bytes(buf, at, MAX_META)?;
        let tag = varint::read(buf, at)?;
        let base = match tag {
            0 if matches!(encoding, HUNKS | ZSTD_HUNKS) => return None,
            0 => None,
            _ if !of_kind.base || encoding == STORED => return None,
            FULL_KEY => Some(some(varint::read_bytes(buf, at, MAX_ID)?)?),
            _ if tag & 1 == 1 => {
                let parent = parents.get(usize::try_from((tag - 3) >> 1).ok()?)?;
                if parent.absent {
                    return None;
                }
                Some(parent.id)
            }
            _ => {
                let before = entries.get(usize::try_from((tag - 2) >> 1).ok()?)?;
                if before.kind != kind {
                    return None;
                }
                Some(before.key)
            }
        };
        if base == Some(key) {
            return None;
        }
        let (length, frame_length) = (varint::read(buf, at)?, varint::read(buf, at)?);
        if length > MAX_RECORD as u64
            || (encoding == STORED && length != frame_length)
            || frame_length > MAX_SEGMENT as u64
        {
            return None;
        }
        let check = buf.get(*at..*at + of_kind.check)?;
        *at += of_kind.check;
        texts += length;
        entries.push(Entry {
            kind,
            encoding,
            key,
            meta,
            base,
            length: length as usize,
            frame_length: frame_length as usize,
            header,
            check,
        });
    }
    (texts <= MAX_SEGMENT_TEXT).then_some(entries)
}
