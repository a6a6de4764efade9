//! `SegmentWriter`: the segments that a client sends, as `records/bases.py` makes them; the rules are explained there.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use blake2::digest::consts::U16;
use blake2::{Blake2b, Digest};
use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};

use crate::ancestry::Ancestry;
use crate::keys::Keys;
use crate::limits::{MAX_BASED, MAX_ENTRIES, MAX_HUNKS, MAX_PARENTS, MAX_RECORD, MAX_SEGMENT, MIN_BASE};
use crate::meters;
use crate::segment::{HUNKS, STORED, ZSTD, ZSTD_HUNKS};
use crate::sys::Writer;
use crate::texts::Cache;
use crate::varint;

const SKIP: u32 = 32;
const CANDIDATES: usize = 2;
const SIBLINGS: usize = 5;
const SIBLING_DEPTH: u32 = 64;
const SIBLINGS_KEPT: usize = 20;
const LEAST_SIBLING: usize = 64;
const FRAME_CACHE: usize = 32 << 20;
const ENTRY: usize = 250;
const MAX_DEPTH: u32 = 255;
const MAX_CHAIN: u64 = 1 << 30;

/// As in `records/delta.py`.
const LEVEL: i32 = 9;
const BULK_LEVEL: i32 = 6;
const LARGE_LEVEL: i32 = 3;
const LARGE: usize = 64 << 10;
const HUNKS_LEVEL: i32 = 3;
const LEAST_PACKED: usize = 256;
const PROBE_LEVEL: i32 = 1;
const PROBE: usize = 64 << 10;
const PROBED: usize = 128 << 10;

/// Records between two looks whether the user has interrupted it.
const LOOK: u64 = 64;

const NONE: u32 = u32::MAX;

/// How frames on a base are made in bulk.
#[derive(Clone, Copy)]
struct Looks {
    least: usize,
    first: i32,
    enough: usize,
    second: i32,
}

const LARGE_FIRST: Looks = Looks { least: 128 << 10, first: 3, enough: 1000, second: BULK_LEVEL };
const ALIKE: Looks = Looks { least: 0, first: 1, enough: 2000, second: 5 };

/// Bytes that several hold.
#[derive(Clone)]
enum Bytes {
    Python(Arc<PyBackedBytes>),
    Own(Arc<Vec<u8>>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Python(bytes) => bytes,
            Bytes::Own(bytes) => bytes,
        }
    }
}

struct Kind {
    /// What a check begins with, where a record has one.
    check: Option<Vec<u8>>,
    base: bool,
}

/// What is known of a record that was sent, or that a parent of what is sent has.
#[derive(Clone, Copy)]
struct Version {
    size: u32,
    base: u32,
    number: u32,
    depth: u32,
    chain: u64,
    encoding: u8,
    /// Its last copy, none where it was there before this push.
    last: u32,
}

/// How a record could be encoded; `cost` counts the bytes that name the base.
struct Choice {
    encoding: u8,
    frame: Bytes,
    base: u32,
    number: u32,
    cost: usize,
    length: usize,
    /// The frame of a text that came in parts.
    parts: Vec<PyBackedBytes>,
}

/// A record to send.
struct Item<'py> {
    kind: u8,
    name: u32,
    key: PyBackedBytes,
    meta: PyBackedBytes,
    candidates: Vec<(u32, Option<Bytes>)>,
    path: PyBackedBytes,
    text: Option<Bytes>,
    /// Of a text that is held elsewhere, if it can be said in hunks.
    length: usize,
    parts: Option<Bound<'py, PyAny>>,
}

/// Records of one folder and extension, the newest last.
type Siblings = Vec<(Vec<u8>, u32)>;

#[pyclass(module = "smartserver._native")]
pub struct SegmentWriter {
    kinds: Vec<Kind>,
    bulk: bool,
    looks: Option<Looks>,
    level: i32,
    fetch: Option<Py<PyAny>>,
    hunks: Option<Py<PyAny>>,
    /// Kinds and keys.
    names: Keys,
    versions: Vec<Option<Version>>,
    /// The revision that introduced a copy, and the copy before it of the same version.
    copies: Vec<(u32, u32)>,
    texts: Cache<Bytes>,
    frames: Cache<Bytes>,
    siblings: HashMap<(u8, Vec<u8>, Vec<u8>), Siblings>,
    revisions: Keys,
    ancestry: Ancestry,
    /// The revision at hand, and its parents in the push.
    revision: u32,
    parents: Vec<u32>,
    writer: Writer,
    /// Frames made, bytes of texts and of frames, nanoseconds.
    tally: [u64; 4],
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
            writer: Writer::new(),
            tally: [0; 4],
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

    /// As `segment`, but frames of texts that came in parts are not joined.
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
        self.count(py)?;
        joined(py, first, sent)
    }

    /// Whether a record that may be a base was sent before.
    fn sent(&self, kind: u8, key: &[u8]) -> bool {
        let found = self.names.find(&[&[kind], key].concat());
        found.and_then(|name| self.version(name)).is_some_and(|version| version.last != NONE)
    }
}

/// What is sent behind the header.
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

fn skip_distance(number: u32) -> u32 {
    let mut distance = 1u32;
    while number % (distance.saturating_mul(SKIP)) == 0 && distance < 1 << 25 {
        distance *= SKIP;
    }
    distance
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

    fn name(&mut self, kind: u8, key: &[u8]) -> u32 {
        let name = self.names.number(&[&[kind], key].concat());
        if name as usize == self.versions.len() {
            self.versions.push(None);
        }
        name
    }

    fn version(&self, name: u32) -> Option<Version> {
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

    /// How a record is encoded; one that is held gets its text where that is needed.
    fn settle(&mut self, py: Python<'_>, item: &mut Item<'_>, tags: &HashMap<u32, u64>) -> PyResult<Choice> {
        if item.text.is_none() {
            if self.kinds[item.kind as usize].check.is_none() {
                if let Some(again) = self.again(item) {
                    return Ok(again);
                }
                if item.length > 0 {
                    if let Some(choice) = self.try_candidates(py, item, tags)? {
                        if choice.cost * 2 <= item.length {
                            return Ok(choice);
                        }
                    }
                }
            }
            item.text = Some(self.text(py, item.name)?);
        }
        self.encode(py, item, tags)
    }

    fn encode(&mut self, py: Python<'_>, item: &Item<'_>, tags: &HashMap<u32, u64>) -> PyResult<Choice> {
        if let Some(parts) = &item.parts {
            let length: usize = parts.getattr("length")?.extract()?;
            let made = py.import("smartserver.records.delta")?.call_method1("compress_parts", (parts,))?;
            let (encoding, parts): (u8, Vec<PyBackedBytes>) = made.extract()?;
            let cost = parts.iter().map(|part| part.len()).sum();
            return Ok(Choice { encoding, frame: nothing(), base: NONE, number: 0, cost, length, parts });
        }
        if !self.kinds[item.kind as usize].base {
            return Ok(self.alone(item));
        }
        if let Some(again) = self.again(item) {
            return Ok(again);
        }
        let length = text_of(item).len();
        let best = self.try_candidates(py, item, tags)?;
        if let Some(choice) = &best {
            if choice.encoding == STORED || choice.cost * 2 <= length {
                return Ok(best.expect("it was just looked at"));
            }
        }
        let alone = self.alone(item);
        match best {
            // In bulk a little is paid for a full text, which makes every read of what follows cheaper.
            Some(best) if alone.cost * 10 >= best.cost * if self.bulk { 11 } else { 10 } => Ok(best),
            None if alone.encoding != STORED => Ok(self.try_siblings(py, item, &alone, tags)?.unwrap_or(alone)),
            _ => Ok(alone),
        }
    }

    fn alone(&mut self, item: &Item<'_>) -> Choice {
        let text = text_of(item);
        let (encoding, frame) = self.compress(text, &nothing(), self.level);
        let (cost, length) = (frame.len(), text.len());
        Choice { encoding, frame, base: NONE, number: 0, cost, length, parts: Vec::new() }
    }

    /// The frame of an earlier copy of the record, where its base is one of this revision also.
    fn again(&mut self, item: &Item<'_>) -> Option<Choice> {
        let version = self.version(item.name).filter(|version| version.last != NONE)?;
        if version.base == NONE {
            if !item.candidates.is_empty() {
                return None;
            }
        } else if !self.is_in(version.base) {
            return None;
        }
        let frame = self.frames.get(item.name)?;
        let (cost, length) = (frame.len(), version.size as usize);
        let (encoding, base, number) = (version.encoding, version.base, version.number);
        Some(Choice { encoding, frame, base, number, cost, length, parts: Vec::new() })
    }

    /// Whether this revision, or an ancestor in the push, introduced a version.
    fn is_in(&mut self, name: u32) -> bool {
        let mut copy = self.version(name).map_or(NONE, |version| version.last);
        while copy != NONE {
            let (ordinal, before) = self.copies[copy as usize];
            if ordinal == self.revision || self.parents.iter().any(|&parent| self.ancestry.reaches(parent, ordinal)) {
                return true;
            }
            copy = before;
        }
        false
    }

    fn try_candidates(
        &mut self,
        py: Python<'_>,
        item: &Item<'_>,
        tags: &HashMap<u32, u64>,
    ) -> PyResult<Option<Choice>> {
        let mut best: Option<Choice> = None;
        for (name, text) in &item.candidates {
            if *name == item.name {
                continue;
            }
            let known = self.known(py, *name, text)?;
            let number = known.number + 1;
            let mut base = if self.bulk { self.skip(*name, number) } else { *name };
            if base == item.name {
                base = *name;
            }
            let choice = if item.text.is_none() {
                self.in_hunks(py, item, base, number, tags)?
            } else {
                self.against(py, item, base, number, tags)?
            };
            let Some(choice) = choice else { continue };
            let is_stored = choice.encoding == STORED;
            if best.as_ref().map_or(true, |best| choice.cost < best.cost) {
                best = Some(choice);
            }
            if is_stored {
                break;
            }
        }
        Ok(best)
    }

    /// Whether a text of that size cannot rest on a version: its chain would be too long.
    fn is_too_deep(&self, base: u32, size: usize) -> bool {
        self.version(base)
            .map_or(true, |version| version.depth >= MAX_DEPTH || version.chain + size as u64 > MAX_CHAIN / 2)
    }

    fn against(
        &mut self,
        py: Python<'_>,
        item: &Item<'_>,
        base: u32,
        number: u32,
        tags: &HashMap<u32, u64>,
    ) -> PyResult<Option<Choice>> {
        let text = text_of(item).clone();
        if self.is_too_deep(base, text.len()) {
            return Ok(None);
        }
        let on = self.text(py, base)?;
        if !is_usable(&text, &on) {
            return Ok(None);
        }
        let (encoding, frame) = match self.looks {
            Some(looks) if text.len() + on.len() >= looks.least => {
                let made = self.compress(&text, &on, looks.first);
                if made.1.len() > looks.enough {
                    self.compress(&text, &on, looks.second)
                } else {
                    made
                }
            }
            _ => self.compress(&text, &on, self.level),
        };
        let (cost, length) = (frame.len(), text.len());
        let parts = Vec::new();
        if encoding == STORED {
            return Ok(Some(Choice { encoding, frame, base: NONE, number: 0, cost, length, parts }));
        }
        let cost = cost + self.named(base, tags);
        Ok(Some(Choice { encoding, frame, base, number, cost, length, parts }))
    }

    /// Bytes that it takes to name a base.
    fn named(&self, base: u32, tags: &HashMap<u32, u64>) -> usize {
        if tags.contains_key(&base) {
            0
        } else {
            self.names.key(base).len() // Its kind is in it, and would be its length.
        }
    }

    fn in_hunks(
        &mut self,
        py: Python<'_>,
        item: &Item<'_>,
        base: u32,
        number: u32,
        tags: &HashMap<u32, u64>,
    ) -> PyResult<Option<Choice>> {
        let Some(differences) = &self.hunks else { return Ok(None) };
        if self.is_too_deep(base, item.length) {
            return Ok(None);
        }
        let (key, on) = (PyBytes::new(py, &item.key), PyBytes::new(py, &self.names.key(base)[1..]));
        let mut hunks = Vec::new();
        let mut at = 0;
        for hunk in differences.bind(py).call1((item.kind, key, on))?.try_iter()? {
            let (start, end, added): (u64, u64, PyBackedBytes) = hunk?.extract()?;
            varint::write(&mut hunks, start - at);
            varint::write(&mut hunks, end - start);
            varint::write_bytes(&mut hunks, &added);
            at = end;
        }
        if hunks.len() > MAX_HUNKS {
            return Ok(None);
        }
        let (encoding, frame) = self.pack_hunks(hunks);
        let cost = frame.len() + self.named(base, tags);
        Ok(Some(Choice { encoding, frame, base, number, cost, length: item.length, parts: Vec::new() }))
    }

    fn pack_hunks(&mut self, hunks: Vec<u8>) -> (u8, Bytes) {
        let hunks = Bytes::Own(Arc::new(hunks));
        if hunks.len() > LEAST_PACKED {
            let (encoding, frame) = self.compress(&hunks, &nothing(), HUNKS_LEVEL);
            if encoding == ZSTD {
                let mut packed = Vec::with_capacity(frame.len() + 9);
                varint::write(&mut packed, hunks.len() as u64);
                packed.extend_from_slice(&frame);
                return (ZSTD_HUNKS, Bytes::Own(Arc::new(packed)));
            }
        }
        (HUNKS, hunks)
    }

    /// The best of the newest siblings, when it saves a tenth of what the record costs alone.
    fn try_siblings(
        &mut self,
        py: Python<'_>,
        item: &Item<'_>,
        alone: &Choice,
        tags: &HashMap<u32, u64>,
    ) -> PyResult<Option<Choice>> {
        let text = text_of(item).clone();
        if item.path.is_empty() || text.len() < LEAST_SIBLING {
            return Ok(None);
        }
        let names: Vec<u32> = match self.siblings.get(&place_of(item)) {
            Some(siblings) => siblings.iter().rev().map(|(_, name)| *name).collect(),
            None => Vec::new(),
        };
        let (mut best, mut least) = (NONE, self.writer.write(&text, b"", PROBE_LEVEL).len());
        let mut tried = 0;
        for name in names {
            let is_deep = self.version(name).map_or(true, |version| version.depth >= SIBLING_DEPTH);
            if is_deep || !self.is_in(name) || name == item.name {
                continue;
            }
            let on = self.text(py, name)?;
            if is_usable(&text, &on) {
                let size = self.writer.write(&text, &apart(&text, &on), PROBE_LEVEL).len();
                if size < least {
                    (best, least) = (name, size);
                }
            }
            tried += 1;
            if tried == SIBLINGS {
                break;
            }
        }
        if best == NONE {
            return Ok(None);
        }
        let number = self.version(best).map_or(0, |version| version.number) + 1;
        let choice = self.against(py, item, best, number, tags)?;
        Ok(choice.filter(|choice| choice.cost * 10 <= alone.cost * 9))
    }

    /// The base the chain's rule names for the successor of a version, or that itself.
    fn skip(&mut self, name: u32, number: u32) -> u32 {
        let target = number - skip_distance(number);
        let mut base = name;
        while let Some(version) = self.version(base) {
            if version.number <= target || version.base == NONE {
                break;
            }
            base = version.base;
        }
        if base == name || self.is_in(base) {
            base
        } else {
            name
        }
    }

    fn known(&mut self, py: Python<'_>, name: u32, text: &Option<Bytes>) -> PyResult<Version> {
        if let Some(text) = text {
            self.texts.put(name, text.clone(), text.len() + ENTRY);
        }
        if let Some(known) = self.version(name) {
            return Ok(known);
        }
        let size = self.text(py, name)?.len();
        Ok(self.add(name, size, NONE, 0, STORED))
    }

    fn add(&mut self, name: u32, size: usize, base: u32, number: u32, encoding: u8) -> Version {
        let on = if base == NONE { None } else { self.version(base) };
        let depth = on.map_or(0, |on| on.depth + 1);
        let chain = on.map_or(0, |on| on.chain) + size as u64;
        let made = Version { size: size as u32, base, number, depth, chain, encoding, last: NONE };
        self.versions[name as usize] = Some(made);
        made
    }

    fn text(&mut self, py: Python<'_>, name: u32) -> PyResult<Bytes> {
        if let Some(text) = self.texts.get(name) {
            return Ok(text);
        }
        let key = self.names.key(name);
        let fetch = self.fetch.as_ref().ok_or_else(|| PyRuntimeError::new_err("nothing gives texts any more"))?;
        let text: PyBackedBytes = fetch.bind(py).call1((key[0], PyBytes::new(py, &key[1..])))?.extract()?;
        let text = Bytes::Python(Arc::new(text));
        self.texts.put(name, text.clone(), text.len() + ENTRY);
        Ok(text)
    }

    fn keep(&mut self, item: &Item<'_>, choice: &Choice) {
        let name = item.name;
        if self.version(name).is_none() {
            self.add(name, choice.length, choice.base, choice.number, choice.encoding);
            if choice.parts.is_empty() {
                self.frames.put(name, choice.frame.clone(), choice.frame.len() + ENTRY);
                if let Some(text) = &item.text {
                    self.texts.put(name, text.clone(), text.len() + ENTRY);
                }
            }
        }
        if let Some(version) = &mut self.versions[name as usize] {
            self.copies.push((self.revision, version.last));
            version.last = self.copies.len() as u32 - 1;
        }
        if !item.path.is_empty() {
            let siblings = self.siblings.entry(place_of(item)).or_default();
            siblings.retain(|(path, _)| *path != item.path[..]);
            siblings.push((item.path.to_vec(), name));
            if siblings.len() > SIBLINGS_KEPT {
                siblings.remove(0);
            }
        }
    }

    /// Encoding and frame of a text; one that would be no smaller is stored.
    fn compress(&mut self, text: &Bytes, base: &Bytes, mut level: i32) -> (u8, Bytes) {
        let base = if is_usable(text, base) { apart(text, base) } else { nothing() };
        if text.len() >= PROBED && base.is_empty() && self.is_incompressible(text) {
            return (STORED, text.clone());
        }
        if text.len() >= LARGE && base.is_empty() {
            level = level.min(LARGE_LEVEL);
        }
        let start = Instant::now();
        let frame = if text.is_empty() { &[] } else { self.writer.write(text, &base, level) };
        let made = frame.len();
        let chosen =
            if made >= text.len() { (STORED, text.clone()) } else { (ZSTD, Bytes::Own(Arc::new(frame.to_vec()))) };
        self.writer.trim();
        let [frames, came, gave, nanoseconds] = &mut self.tally;
        *frames += 1;
        *came += text.len() as u64;
        *gave += made as u64;
        *nanoseconds += start.elapsed().as_nanos() as u64;
        chosen
    }

    /// Whether a piece from the middle gains under 2 % alone, as compressed and encrypted files do.
    fn is_incompressible(&mut self, text: &[u8]) -> bool {
        let middle = text.len().saturating_sub(PROBE) / 2;
        let piece = &text[middle..text.len().min(middle + PROBE)];
        self.writer.write(piece, b"", PROBE_LEVEL).len() * 100 > piece.len() * 98
    }

    fn count(&mut self, py: Python<'_>) -> PyResult<()> {
        let [frames, came, made, nanoseconds] = std::mem::take(&mut self.tally);
        let counts = [
            ("COMPRESSED", frames),
            ("COMPRESSED_IN", came),
            ("COMPRESSED_OUT", made),
            ("COMPRESSION_TIME", nanoseconds),
        ];
        meters::count(py, &counts)
    }
}

fn nothing() -> Bytes {
    Bytes::Own(Arc::default())
}

fn text_of<'a>(item: &'a Item<'_>) -> &'a Bytes {
    item.text.as_ref().expect("a record that is encoded has its text")
}

/// Whether a base counts, and is not too long.
fn is_usable(text: &[u8], base: &[u8]) -> bool {
    base.len() >= MIN_BASE && base.len() + text.len() <= MAX_BASED
}

/// A base that does not overlap the text in memory: zstd would drop it.
fn apart(text: &Bytes, base: &Bytes) -> Bytes {
    if text.as_ptr() == base.as_ptr() {
        Bytes::Own(Arc::new(base.to_vec()))
    } else {
        base.clone()
    }
}

/// Kind, folder and extension.
fn place_of(item: &Item<'_>) -> (u8, Vec<u8>, Vec<u8>) {
    let (folder, name) = match memchr::memrchr(b'/', &item.path) {
        Some(at) => (&item.path[..at], &item.path[at + 1..]),
        None => (&item.path[..0], &item.path[..]),
    };
    let extension = memchr::memrchr(b'.', name).map_or(name, |at| &name[at + 1..]);
    (item.kind, folder.to_vec(), extension.to_vec())
}
