//! `Encoder`: makes segments one after the other. It takes Python's lock only to call Python.

use std::collections::HashMap;
use std::sync::Arc;

use blake2::digest::consts::U16;
use blake2::{Blake2b, Digest};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::ancestry::Ancestry;
use crate::bases::{Item, Siblings, Version, CANDIDATES, FRAME_CACHE, NONE};
use crate::keys::Keys;
use crate::limits::{MAX_ENTRIES, MAX_PARENTS, MAX_RECORD, MAX_SEGMENT};
use crate::packing::{Packer, BULK_LEVEL, LEVEL};
use crate::segment;
use crate::texts::{Bytes, Cache};
use crate::varint;

pub struct Kind {
    /// The start of a check, if records of this kind have one.
    pub check: Option<Vec<u8>>,
    pub base: bool,
}

impl Kind {
    pub fn of(kind: &Bound<'_, PyAny>) -> PyResult<Kind> {
        let name: String = kind.getattr("name")?.extract()?;
        let segment::Kind { check, base } = segment::Kind::of(kind)?;
        let mut begin = Vec::new();
        varint::write_bytes(&mut begin, name.as_bytes());
        Ok(Kind { check: (check > 0).then_some(begin), base })
    }
}

pub struct Encoder {
    pub kinds: Vec<Kind>,
    pub bulk: bool,
    pub level: i32,
    pub fetch: Option<Py<PyAny>>,
    pub hunks: Option<Py<PyAny>>,
    /// The kinds and keys of records.
    pub names: Keys,
    pub versions: Vec<Option<Version>>,
    /// The revision that introduced each copy, and the copy of the same version before it.
    pub copies: Vec<(u32, u32)>,
    pub texts: Cache<Bytes>,
    pub frames: Cache<Bytes>,
    pub siblings: HashMap<(u8, Vec<u8>, Vec<u8>), Siblings>,
    pub revisions: Keys,
    pub ancestry: Ancestry,
    /// The current revision, and its parents in the push.
    pub revision: u32,
    pub parents: Vec<u32>,
    pub packer: Packer,
}

/// A revision to send: its id, and its parents, each with whether it is absent.
pub struct Revision {
    pub id: PyBackedBytes,
    pub parents: Vec<(PyBackedBytes, bool)>,
}

/// A part of a segment after its header.
pub enum Sent {
    Joined(Vec<Bytes>),
    Part(PyBackedBytes),
}

/// A segment that is being made.
#[derive(Default)]
pub struct Made {
    /// Headers of records; in a finished segment, all bytes before the frames.
    pub head: Vec<u8>,
    /// Frames that are not in `sent` yet.
    frames: Vec<Bytes>,
    pub sent: Vec<Sent>,
    /// Bytes of all frames.
    size: usize,
    /// The number of records.
    count: u64,
    /// Bytes of the longest text.
    longest: usize,
    /// The tag of each possible base in this revision, by its name.
    tags: HashMap<u32, u64>,
}

impl Encoder {
    pub fn new(kinds: Vec<Kind>, bulk: bool, fetch: Py<PyAny>, cache: usize, hunks: Option<Py<PyAny>>) -> Self {
        Encoder {
            kinds,
            bulk,
            level: if bulk { BULK_LEVEL } else { LEVEL },
            fetch: Some(fetch),
            hunks,
            names: Keys::default(),
            versions: Vec::new(),
            copies: Vec::new(),
            texts: Cache::new(cache),
            frames: Cache::new(FRAME_CACHE),
            siblings: HashMap::new(),
            revisions: Keys::default(),
            ancestry: Ancestry::new(),
            revision: 0,
            parents: Vec::new(),
            packer: Packer::new(),
        }
    }

    /// Make the segment of a revision that introduced `items`.
    pub fn segment(&mut self, revision: &Revision, items: Vec<Sending>) -> PyResult<Made> {
        let mut made = self.begin(revision);
        items.into_iter().try_for_each(|item| self.write(revision, item, &mut made))?;
        made.finish(revision)
    }

    /// Begin the segment of a revision.
    pub fn begin(&mut self, revision: &Revision) -> Made {
        self.step(revision);
        let mut made = Made::default();
        for kind in 0..self.kinds.len() as u8 {
            for (place, (id, absent)) in revision.parents.iter().enumerate().rev() {
                if !absent {
                    made.tags.insert(self.name(kind, id), 3 + 2 * place as u64);
                }
            }
        }
        made
    }

    /// Add a record to a segment.
    pub fn write(&mut self, revision: &Revision, item: Sending, made: &mut Made) -> PyResult<()> {
        let mut item = self.item(item);
        let choice = self.settle(&mut item, &made.tags)?;
        let kind = &self.kinds[item.kind as usize];
        let (mut tag, mut base_key) = (0, 0..0);
        if choice.base != NONE {
            tag = made.tags.get(&choice.base).copied().unwrap_or(1);
            base_key = 1..self.names.key(choice.base).len();
        }
        let head = &mut made.head;
        head.extend_from_slice(&[item.kind, choice.encoding]);
        varint::write_bytes(head, if *item.key == *revision.id { b"" } else { &item.key });
        varint::write_bytes(head, &item.meta);
        varint::write(head, tag);
        if tag == 1 {
            varint::write_bytes(head, &self.names.key(choice.base)[base_key]);
        }
        let length = if choice.parts.is_empty() { choice.frame.len() } else { choice.cost };
        varint::write(head, choice.length as u64);
        varint::write(head, length as u64);
        if let (Some(begin), Some(text)) = (&kind.check, &item.text) {
            head.extend_from_slice(&check_of(begin, &item.key, &item.meta, text));
        }
        made.longest = made.longest.max(choice.length);
        made.size += length;
        made.tags.insert(item.name, 2 + 2 * made.count);
        made.count += 1;
        if kind.base {
            self.keep(&item, &choice);
        }
        if choice.parts.is_empty() {
            made.frames.push(choice.frame);
        } else {
            made.sent.push(Sent::Joined(std::mem::take(&mut made.frames)));
            made.sent.extend(choice.parts.into_iter().map(Sent::Part));
        }
        Ok(())
    }

    fn step(&mut self, revision: &Revision) {
        let known = revision.parents.iter().filter(|(_, absent)| !absent).filter_map(|(id, _)| self.revisions.find(id));
        self.parents = known.collect();
        let count = self.revisions.len();
        self.revision = self.revisions.number(&revision.id);
        if self.revision as usize == count {
            self.ancestry.add(&self.parents);
        }
    }

    pub fn name(&mut self, kind: u8, key: &[u8]) -> u32 {
        let name = self.names.number(&[&[kind], key].concat());
        if name as usize == self.versions.len() {
            self.versions.push(None);
        }
        name
    }

    pub fn version(&self, name: u32) -> Option<Version> {
        self.versions[name as usize]
    }

    /// Replace the keys that a record names by numbers.
    fn item(&mut self, item: Sending) -> Item {
        let Sending { kind, key, meta, candidates, path, text, length, parts } = item;
        let name = |(key, text): (Vec<u8>, Option<Bytes>)| (self.name(kind, &key), text);
        let candidates = candidates.into_iter().take(CANDIDATES).map(name).collect();
        Item { kind, name: self.name(kind, &key), key, meta, candidates, path, text, length, parts }
    }
}

impl Made {
    /// Assemble the bytes before the frames.
    pub fn finish(mut self, revision: &Revision) -> PyResult<Made> {
        self.sent.push(Sent::Joined(std::mem::take(&mut self.frames)));
        limit("parents of a revision", revision.parents.len() as u64, MAX_PARENTS)?;
        limit("records of a revision", self.count, MAX_ENTRIES)?;
        limit("bytes of a record", self.longest as u64, MAX_RECORD as u64)?;
        let mut header = Vec::with_capacity(64);
        varint::write_bytes(&mut header, &revision.id);
        varint::write(&mut header, revision.parents.len() as u64);
        for (id, absent) in &revision.parents {
            varint::write(&mut header, (id.len() as u64) << 1 | u64::from(*absent));
            header.extend_from_slice(id);
        }
        varint::write(&mut header, self.count);
        let length = header.len() + self.head.len() + self.size;
        limit("bytes of a segment", length as u64, MAX_SEGMENT as u64)?;
        let mut first = Vec::with_capacity(header.len() + self.head.len() + 9);
        varint::write(&mut first, length as u64);
        first.extend_from_slice(&header);
        first.extend_from_slice(&self.head);
        self.head = first;
        Ok(self)
    }
}

/// A record to send, as Python passes it: `NewRecord` or `HeldRecord`.
pub struct Sending {
    kind: u8,
    key: Vec<u8>,
    meta: Vec<u8>,
    candidates: Vec<(Vec<u8>, Option<Bytes>)>,
    path: Vec<u8>,
    text: Option<Bytes>,
    length: usize,
    parts: Option<Py<PyAny>>,
}

impl Sending {
    pub fn of(item: &Bound<'_, PyAny>) -> PyResult<Sending> {
        let is_new = item.len()? == 7;
        let after = usize::from(is_new);
        let parts = item.get_item(6).ok().filter(|parts| is_new && !parts.is_none());
        let candidates = item.get_item(3 + after)?.try_iter()?.take(CANDIDATES);
        Ok(Sending {
            kind: item.get_item(0)?.extract()?,
            key: item.get_item(1)?.extract()?,
            meta: item.get_item(2)?.extract()?,
            candidates: candidates.map(|each| candidate(&each?)).collect::<PyResult<_>>()?,
            path: item.get_item(4 + after)?.extract()?,
            text: if is_new { Some(own(item.get_item(3)?.extract()?)) } else { None },
            length: if is_new { 0 } else { item.get_item(5)?.extract()? },
            parts: parts.map(Bound::unbind),
        })
    }

    /// Return an object of git. `text`: `None` if it was sent before.
    pub fn object(
        kind: u8,
        key: &[u8],
        candidates: Vec<(Vec<u8>, Option<Bytes>)>,
        path: &[u8],
        text: Option<Bytes>,
    ) -> Sending {
        let (key, meta, path) = (key.to_vec(), vec![kind], path.to_vec());
        Sending { kind: 0, key, meta, candidates, path, text, length: 0, parts: None }
    }

    /// Return the bytes of its text.
    pub fn size(&self) -> usize {
        self.text.as_ref().map_or(0, |text| text.len())
    }
}

fn own(text: PyBackedBytes) -> Bytes {
    Bytes::Python(Arc::new(text))
}

fn candidate(pair: &Bound<'_, PyAny>) -> PyResult<(Vec<u8>, Option<Bytes>)> {
    let (key, text): (Vec<u8>, Option<PyBackedBytes>) = pair.extract()?;
    Ok((key, text.map(own)))
}

fn limit(what: &str, value: u64, most: u64) -> PyResult<()> {
    if value <= most {
        return Ok(());
    }
    Python::attach(|py| {
        let class = py.import("smartserver.errors")?.getattr("LimitExceeded")?;
        Err(PyErr::from_value(class.call1((what, value, most))?))
    })
}

/// Return the check for a record's header, as `records/check.py` makes it.
pub fn check_of(begin: &[u8], key: &[u8], meta: &[u8], text: &[u8]) -> [u8; 16] {
    let mut head = begin.to_vec();
    varint::write_bytes(&mut head, key);
    varint::write_bytes(&mut head, meta);
    Blake2b::<U16>::new().chain_update(head).chain_update(text).finalize().into()
}
