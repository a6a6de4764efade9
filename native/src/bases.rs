//! The choice of a record's encoding and base, by the rules of `records/bases.py`.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::delta::Ends;
use crate::encoder::Encoder;
use crate::limits::MAX_HUNKS;
use crate::packing::{is_usable, single_hunk};
use crate::segment::{HUNKS, STORED};
use crate::texts::Bytes;
use crate::varint;

const SKIP: u32 = 32;
pub const CANDIDATES: usize = 2;
const SIBLINGS: usize = 5;
const SIBLING_DEPTH: u32 = 64;
const SIBLINGS_KEPT: usize = 20;
const LEAST_SIBLING: usize = 64;
pub const FRAME_CACHE: usize = 32 << 20;
const FEW: usize = 64;
const ENTRY: usize = 250;
const MAX_DEPTH: u32 = 255;
const MAX_CHAIN: u64 = 1 << 30;

pub const NONE: u32 = u32::MAX;

/// A record that was sent, or that a parent of a sent revision has.
#[derive(Clone, Copy)]
pub struct Version {
    pub size: u32,
    pub base: u32,
    pub number: u32,
    pub depth: u32,
    pub chain: u64,
    pub encoding: u8,
    /// Its last copy; `NONE` if it was on the server before this push.
    pub last: u32,
}

/// One encoding of a record; `cost` counts the bytes that name the base.
pub struct Choice {
    pub encoding: u8,
    pub frame: Bytes,
    pub base: u32,
    pub number: u32,
    pub cost: usize,
    pub length: usize,
    /// The frame of a text in parts.
    pub parts: Vec<PyBackedBytes>,
}

/// A record to send.
pub struct Item {
    pub kind: u8,
    pub name: u32,
    pub key: Vec<u8>,
    pub meta: Vec<u8>,
    pub candidates: Vec<(u32, Option<Bytes>)>,
    pub path: Vec<u8>,
    pub text: Option<Bytes>,
    /// Bytes of a text that is held elsewhere, if hunks can give it; else 0.
    pub length: usize,
    pub parts: Option<Py<PyAny>>,
}

/// Records of one folder and extension, the newest last.
pub type Siblings = Vec<(Vec<u8>, u32)>;

fn skip_distance(number: u32) -> u32 {
    let mut distance = 1u32;
    while number % (distance.saturating_mul(SKIP)) == 0 && distance < 1 << 25 {
        distance *= SKIP;
    }
    distance
}

impl Encoder {
    /// Choose the encoding of a record. A held record gets its text if that is needed.
    pub fn settle(&mut self, item: &mut Item, tags: &HashMap<u32, u64>) -> PyResult<Choice> {
        if item.text.is_none() {
            if self.kinds[item.kind as usize].check.is_none() {
                if let Some(again) = self.again(item) {
                    return Ok(again);
                }
                if item.length > 0 {
                    if let Some(choice) = self.try_candidates(item, tags)? {
                        if choice.cost * 2 <= item.length {
                            return Ok(choice);
                        }
                    }
                }
            }
            item.text = Some(self.text(item.name)?);
        }
        self.encode(item, tags)
    }

    fn encode(&mut self, item: &Item, tags: &HashMap<u32, u64>) -> PyResult<Choice> {
        if let Some(parts) = &item.parts {
            let (length, (encoding, parts)) = Python::attach(|py| -> PyResult<(usize, (u8, Vec<PyBackedBytes>))> {
                let length = parts.bind(py).getattr("length")?.extract()?;
                let made = py.import("smartserver.records.delta")?.call_method1("compress_parts", (parts,))?;
                Ok((length, made.extract()?))
            })?;
            let cost = parts.iter().map(|part| part.len()).sum();
            return Ok(Choice { encoding, frame: Bytes::default(), base: NONE, number: 0, cost, length, parts });
        }
        if !self.kinds[item.kind as usize].base {
            return Ok(self.alone(item));
        }
        if let Some(again) = self.again(item) {
            return Ok(again);
        }
        let length = text_of(item).len();
        let best = self.try_candidates(item, tags)?;
        if let Some(choice) = &best {
            if choice.encoding == STORED || choice.cost * 2 <= length {
                return Ok(best.expect("it was just looked at"));
            }
        }
        let alone = self.alone(item);
        match best {
            // In bulk, a full text may cost a little more, because it makes each read of later versions cheaper.
            Some(best) if alone.cost * 10 >= best.cost * if self.bulk { 11 } else { 10 } => Ok(best),
            None if alone.encoding != STORED => Ok(self.try_siblings(item, &alone, tags)?.unwrap_or(alone)),
            _ => Ok(alone),
        }
    }

    fn alone(&mut self, item: &Item) -> Choice {
        let text = text_of(item);
        let (encoding, frame) = self.packer.compress(text, &Bytes::default(), self.level);
        let (cost, length) = (frame.len(), text.len());
        Choice { encoding, frame, base: NONE, number: 0, cost, length, parts: Vec::new() }
    }

    /// Return the frame of an earlier copy of the record, if this revision has the base of the copy, too.
    fn again(&mut self, item: &Item) -> Option<Choice> {
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

    /// Tell whether this revision, or an ancestor in the push, introduced a version.
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

    fn try_candidates(&mut self, item: &Item, tags: &HashMap<u32, u64>) -> PyResult<Option<Choice>> {
        let mut best: Option<Choice> = None;
        for (name, text) in &item.candidates {
            if *name == item.name {
                continue;
            }
            let known = self.known(*name, text)?;
            let number = known.number + 1;
            let mut base = if self.bulk { self.skip(*name, number) } else { *name };
            if base == item.name {
                base = *name;
            }
            let Some(choice) = self.against(item, base, number, tags)? else { continue };
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

    /// Tell whether a text of this size cannot have a version as base, because its chain would be too long.
    fn is_too_deep(&self, base: u32, size: usize) -> bool {
        self.version(base)
            .map_or(true, |version| version.depth >= MAX_DEPTH || version.chain + size as u64 > MAX_CHAIN / 2)
    }

    /// Return the encoding of a record on a base; `None` if it cannot have this base.
    fn against(&mut self, item: &Item, base: u32, number: u32, tags: &HashMap<u32, u64>) -> PyResult<Option<Choice>> {
        let length = item.text.as_ref().map_or(item.length, |text| text.len());
        if self.is_too_deep(base, length) {
            return Ok(None);
        }
        let made = match &item.text {
            Some(text) => self.frame_on(text, base)?,
            None => self.hunks_on(item, base)?,
        };
        let Some((encoding, frame)) = made else { return Ok(None) };
        let (parts, cost) = (Vec::new(), frame.len());
        if encoding == STORED {
            return Ok(Some(Choice { encoding, frame, base: NONE, number: 0, cost, length, parts }));
        }
        let cost = cost + self.named(base, tags);
        Ok(Some(Choice { encoding, frame, base, number, cost, length, parts }))
    }

    /// Return the encoding and the frame of a text on a base.
    fn frame_on(&mut self, text: &Bytes, base: u32) -> PyResult<Option<(u8, Bytes)>> {
        let on = self.text(base)?;
        if !is_usable(text, &on) {
            return Ok(None);
        }
        // If hunks are read elsewhere, readers keep them as their own deltas, which may have rules of their own.
        let ends = Ends::of(text, &on);
        let hunk = if self.hunks.is_none() { single_hunk(text, &on, ends, FEW) } else { None };
        Ok(Some(match hunk {
            Some(hunk) => (HUNKS, Bytes::Own(Arc::new(hunk))),
            None if self.bulk => self.packer.compress_near(text, &on, ends),
            None => self.packer.compress(text, &on, self.level),
        }))
    }

    /// Return the encoding and the frame of the hunks that Python reads, for a text that is held elsewhere.
    fn hunks_on(&mut self, item: &Item, base: u32) -> PyResult<Option<(u8, Bytes)>> {
        let Some(differences) = &self.hunks else { return Ok(None) };
        let hunks = Python::attach(|py| -> PyResult<Vec<u8>> {
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
            Ok(hunks)
        })?;
        Ok((hunks.len() <= MAX_HUNKS).then(|| self.packer.pack_hunks(hunks)))
    }

    /// Return the number of bytes that name a base.
    fn named(&self, base: u32, tags: &HashMap<u32, u64>) -> usize {
        if tags.contains_key(&base) {
            0
        } else {
            self.names.key(base).len() // The byte of its kind stands for that of its length.
        }
    }

    /// Return the encoding on the best of the newest siblings, if it saves a tenth of the record's cost alone.
    fn try_siblings(&mut self, item: &Item, alone: &Choice, tags: &HashMap<u32, u64>) -> PyResult<Option<Choice>> {
        let text = text_of(item).clone();
        if item.path.is_empty() || text.len() < LEAST_SIBLING {
            return Ok(None);
        }
        let names: Vec<u32> = match self.siblings.get(&place_of(item)) {
            Some(siblings) => siblings.iter().rev().map(|(_, name)| *name).collect(),
            None => Vec::new(),
        };
        let (mut best, mut least) = (NONE, self.packer.probe(&text, &Bytes::default()));
        let mut tried = 0;
        for name in names {
            let is_deep = self.version(name).map_or(true, |version| version.depth >= SIBLING_DEPTH);
            if is_deep || !self.is_in(name) || name == item.name {
                continue;
            }
            let on = self.text(name)?;
            if is_usable(&text, &on) {
                let size = self.packer.probe(&text, &on);
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
        let choice = self.against(item, best, number, tags)?;
        Ok(choice.filter(|choice| choice.cost * 10 <= alone.cost * 9))
    }

    /// Return the base that the chain's rule names for the successor of a version, or the version itself.
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

    fn known(&mut self, name: u32, text: &Option<Bytes>) -> PyResult<Version> {
        if let Some(text) = text {
            self.texts.put(name, text.clone(), text.len() + ENTRY);
        }
        if let Some(known) = self.version(name) {
            return Ok(known);
        }
        let size = self.text(name)?.len();
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

    fn text(&mut self, name: u32) -> PyResult<Bytes> {
        if let Some(text) = self.texts.get(name) {
            return Ok(text);
        }
        let key = self.names.key(name);
        let fetch = self.fetch.as_ref().ok_or_else(|| PyRuntimeError::new_err("nothing gives texts any more"))?;
        let ask = |py: Python<'_>| fetch.bind(py).call1((key[0], PyBytes::new(py, &key[1..])))?.extract();
        // The thread may still run when Python ends.
        let text: PyBackedBytes =
            Python::try_attach(ask).unwrap_or_else(|| Err(PyRuntimeError::new_err("Python has ended")))?;
        let text = Bytes::Python(Arc::new(text));
        self.texts.put(name, text.clone(), text.len() + ENTRY);
        Ok(text)
    }

    pub fn keep(&mut self, item: &Item, choice: &Choice) {
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
}

fn text_of(item: &Item) -> &Bytes {
    item.text.as_ref().expect("a record that is encoded has its text")
}

/// Return kind, folder and extension.
fn place_of(item: &Item) -> (u8, Vec<u8>, Vec<u8>) {
    let (folder, name) = match memchr::memrchr(b'/', &item.path) {
        Some(at) => (&item.path[..at], &item.path[at + 1..]),
        None => (&item.path[..0], &item.path[..]),
    };
    let extension = memchr::memrchr(b'.', name).map_or(name, |at| &name[at + 1..]);
    (item.kind, folder.to_vec(), extension.to_vec())
}
