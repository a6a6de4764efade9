//! `SegmentWriter`: the segments that a client sends, as `records/bases.py` makes them; the rules are explained there.

use std::collections::HashMap;
use std::sync::Arc;

use blake2::digest::consts::U16;
use blake2::{Blake2b, Digest};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};

use crate::ancestry::Ancestry;
use crate::bases::{Item, Looks, Siblings, Version, ALIKE, CANDIDATES, FRAME_CACHE, LARGE_FIRST, NONE};
use crate::keys::Keys;
use crate::limits::{MAX_ENTRIES, MAX_PARENTS, MAX_RECORD, MAX_SEGMENT};
use crate::packing::{Packer, BULK_LEVEL, LEVEL};
use crate::texts::{Bytes, Cache};
use crate::varint;

/// Records between two looks whether the user has interrupted it.
const LOOK: u64 = 64;

pub struct Kind {
    /// The begin of a check, where a record has one.
    pub check: Option<Vec<u8>>,
    pub base: bool,
}

#[pyclass(module = "smartserver._native")]
pub struct SegmentWriter {
    pub kinds: Vec<Kind>,
    pub bulk: bool,
    pub looks: Option<Looks>,
    pub level: i32,
    pub fetch: Option<Py<PyAny>>,
    pub hunks: Option<Py<PyAny>>,
    /// Kinds and keys.
    pub names: Keys,
    pub versions: Vec<Option<Version>>,
    /// The revision that introduced a copy, and the copy before it of the same version.
    pub copies: Vec<(u32, u32)>,
    pub texts: Cache<Bytes>,
    pub frames: Cache<Bytes>,
    pub siblings: HashMap<(u8, Vec<u8>, Vec<u8>), Siblings>,
    pub revisions: Keys,
    pub ancestry: Ancestry,
    /// The revision at hand, and its parents in the push.
    pub revision: u32,
    pub parents: Vec<u32>,
    pub packer: Packer,
}

#[pymethods]
impl SegmentWriter {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.fetch)?;
        visit.call(&self.hunks)
    }

    fn __clear__(&mut self) {
        self.fetch = None;
        self.hunks = None;
    }

    #[new]
    #[pyo3(signature = (kinds, *, bulk, texts, cache=128 << 20, alike=false, hunks=None))]
    fn new(
        kinds: Vec<Bound<'_, PyAny>>,
        bulk: bool,
        texts: Py<PyAny>,
        cache: usize,
        alike: bool,
        hunks: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let looks = bulk.then_some(if alike { ALIKE } else { LARGE_FIRST });
        Ok(SegmentWriter {
            kinds: kinds.iter().map(kind_of).collect::<PyResult<_>>()?,
            bulk,
            looks,
            level: if bulk { BULK_LEVEL } else { LEVEL },
            fetch: Some(texts),
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
        })
    }

    /// Say all revisions to come, which is not needed here.
    fn begin(&self, _graph: &Bound<'_, PyAny>) {}

    /// The whole segment of a revision that introduced `items`.
    fn segment<'py>(
        &mut self,
        py: Python<'py>,
        revision: PyBackedBytes,
        parents: Vec<(PyBackedBytes, bool)>,
        items: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        PyBytes::new(py, b"").call_method1("join", (self.parts(py, revision, parents, items)?,))
    }

    /// The same as `segment`, but frames of texts that came in parts are not joined.
    fn parts<'py>(
        &mut self,
        py: Python<'py>,
        revision: PyBackedBytes,
        parents: Vec<(PyBackedBytes, bool)>,
        items: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.step(&revision, &parents);
        // By its kind, how a base of this revision is named.
        let mut tags: HashMap<u32, u64> = HashMap::new();
        for kind in 0..self.kinds.len() as u8 {
            for (place, (id, absent)) in parents.iter().enumerate().rev() {
                if !absent {
                    tags.insert(self.name(kind, id), 3 + 2 * place as u64);
                }
            }
        }
        let mut head = Vec::with_capacity(256);
        let mut frames: Vec<Bytes> = Vec::new();
        let mut sent: Vec<Sent> = Vec::new();
        let (mut size, mut count, mut longest) = (0, 0u64, 0);
        for item in items.try_iter()? {
            if count % LOOK == 0 {
                py.check_signals()?;
            }
            let mut item = self.item(&item?)?;
            let choice = self.settle(py, &mut item, &tags)?;
            let kind = &self.kinds[item.kind as usize];
            let (mut tag, mut base_key) = (0, 0..0);
            if choice.base != NONE {
                tag = tags.get(&choice.base).copied().unwrap_or(1);
                base_key = 1..self.names.key(choice.base).len();
            }
            head.extend_from_slice(&[item.kind, choice.encoding]);
            varint::write_bytes(&mut head, if item.key == revision { b"" } else { &item.key });
            varint::write_bytes(&mut head, &item.meta);
            varint::write(&mut head, tag);
            if tag == 1 {
                varint::write_bytes(&mut head, &self.names.key(choice.base)[base_key]);
            }
            let length = if choice.parts.is_empty() { choice.frame.len() } else { choice.cost };
            varint::write(&mut head, choice.length as u64);
            varint::write(&mut head, length as u64);
            if let (Some(begin), Some(text)) = (&kind.check, &item.text) {
                head.extend_from_slice(&check_of(begin, &item.key, &item.meta, text));
            }
            longest = longest.max(choice.length);
            size += length;
            tags.insert(item.name, 2 + 2 * count);
            count += 1;
            if choice.parts.is_empty() {
                frames.push(choice.frame.clone());
            } else {
                sent.push(Sent::Joined(std::mem::take(&mut frames)));
                sent.extend(choice.parts.iter().map(|part| Sent::Part(PyBytes::new(py, part).unbind())));
            }
            if kind.base {
                self.keep(&item, &choice);
            }
        }
        sent.push(Sent::Joined(frames));
        limit(py, "parents of a revision", parents.len() as u64, MAX_PARENTS)?;
        limit(py, "records of a revision", count, MAX_ENTRIES)?;
        limit(py, "bytes of a record", longest as u64, MAX_RECORD as u64)?;
        let mut header = Vec::with_capacity(head.len() + 64);
        varint::write_bytes(&mut header, &revision);
        varint::write(&mut header, parents.len() as u64);
        for (id, absent) in &parents {
            varint::write(&mut header, (id.len() as u64) << 1 | u64::from(*absent));
            header.extend_from_slice(id);
        }
        varint::write(&mut header, count);
        let length = header.len() + head.len() + size;
        limit(py, "bytes of a segment", length as u64, MAX_SEGMENT as u64)?;
        let mut first = Vec::with_capacity(header.len() + head.len() + 9);
        varint::write(&mut first, length as u64);
        first.extend_from_slice(&header);
        first.extend_from_slice(&head);
        self.packer.count(py)?;
        joined(py, first, sent)
    }

    /// Tell whether a record that may be a base was sent before.
    fn sent(&self, kind: u8, key: &[u8]) -> bool {
        let found = self.names.find(&[&[kind], key].concat());
        found.and_then(|name| self.version(name)).is_some_and(|version| version.last != NONE)
    }
}

/// A part of a segment behind the header.
enum Sent {
    Joined(Vec<Bytes>),
    Part(Py<PyBytes>),
}

/// The parts of a segment: what lies between those that came in parts is one.
fn joined<'py>(py: Python<'py>, first: Vec<u8>, sent: Vec<Sent>) -> PyResult<Bound<'py, PyList>> {
    let parts = PyList::empty(py);
    let mut before: Option<Vec<u8>> = Some(first);
    for each in sent {
        match each {
            Sent::Part(part) => parts.append(part)?,
            Sent::Joined(frames) => {
                let before = before.take().unwrap_or_default();
                let size = before.len() + frames.iter().map(|frame| frame.len()).sum::<usize>();
                if size == 0 {
                    continue;
                }
                parts.append(PyBytes::new_with(py, size, |mut out| {
                    for piece in std::iter::once(&before[..]).chain(frames.iter().map(|frame| &frame[..])) {
                        let (now, rest) = out.split_at_mut(piece.len());
                        now.copy_from_slice(piece);
                        out = rest;
                    }
                    Ok(())
                })?)?;
            }
        }
    }
    Ok(parts)
}

fn limit(py: Python<'_>, what: &str, value: u64, most: u64) -> PyResult<()> {
    if value <= most {
        return Ok(());
    }
    let class = py.import("smartserver.errors")?.getattr("LimitExceeded")?;
    Err(PyErr::from_value(class.call1((what, value, most))?))
}

fn kind_of(kind: &Bound<'_, PyAny>) -> PyResult<Kind> {
    let name: String = kind.getattr("name")?.extract()?;
    let check: usize =
        kind.py().import("smartserver.records.check")?.call_method1("check_bytes", (kind,))?.extract()?;
    let mut begin = Vec::new();
    varint::write_bytes(&mut begin, name.as_bytes());
    Ok(Kind { check: (check > 0).then_some(begin), base: kind.getattr("base")?.extract()? })
}

/// The check for a record's header, as `records/check.py` makes it.
fn check_of(begin: &[u8], key: &[u8], meta: &[u8], text: &[u8]) -> [u8; 16] {
    let mut head = begin.to_vec();
    varint::write_bytes(&mut head, key);
    varint::write_bytes(&mut head, meta);
    Blake2b::<U16>::new().chain_update(head).chain_update(text).finalize().into()
}

impl SegmentWriter {
    fn step(&mut self, revision: &[u8], parents: &[(PyBackedBytes, bool)]) {
        let known = parents.iter().filter(|(_, absent)| !absent).filter_map(|(id, _)| self.revisions.find(id));
        self.parents = known.collect();
        let count = self.revisions.len();
        self.revision = self.revisions.number(revision);
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

    /// A record as Python names it: `NewRecord` or `HeldRecord`.
    fn item<'py>(&mut self, item: &Bound<'py, PyAny>) -> PyResult<Item<'py>> {
        let kind: u8 = item.get_item(0)?.extract()?;
        let key: PyBackedBytes = item.get_item(1)?.extract()?;
        let is_new = item.len()? == 7;
        let after = usize::from(is_new);
        let mut candidates = Vec::new();
        for candidate in item.get_item(3 + after)?.try_iter()?.take(CANDIDATES) {
            let (key, text): (PyBackedBytes, Option<PyBackedBytes>) = candidate?.extract()?;
            candidates.push((self.name(kind, &key), text.map(|text| Bytes::Python(Arc::new(text)))));
        }
        let parts = item.get_item(6).ok().filter(|parts| is_new && !parts.is_none());
        let text: Option<PyBackedBytes> = if is_new { Some(item.get_item(3)?.extract()?) } else { None };
        Ok(Item {
            kind,
            name: self.name(kind, &key),
            key,
            meta: item.get_item(2)?.extract()?,
            candidates,
            path: item.get_item(4 + after)?.extract()?,
            text: text.map(|text| Bytes::Python(Arc::new(text))),
            length: if is_new { 0 } else { item.get_item(5)?.extract()? },
            parts,
        })
    }
}
