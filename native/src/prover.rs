//! `Prover`: the segments of one stream of git's, each proved in one go.
//!
//! It takes what is in order and by far the most: a commit whose parents came before it in the stream, with trees
//! and files that rest on and refer to nothing but records of the stream, and that have no fault. Such a segment is
//! proved as `store/incoming.py` and `store/proof.py` do it. With anything else it stops and has changed nothing:
//! Python looks at that segment, decides, and says what became of it (`note`). So no error is named here, and
//! nothing is accepted here that Python would refuse.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use pyo3::exceptions::{PyLookupError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::ancestry::Ancestry;
use crate::frame::{decompress, Tally};
use crate::guard::run;
use crate::index::{Columns, EXTERNAL, NO_BASE, OUTSIDE};
use crate::keys::Keys;
use crate::objects::{compare_trees, has_id, id, is_clean_commit, read_commit, Id, References, BLOB, COMMIT, TREE};
use crate::segment::{decode, Entry, Kind, Segment};
use crate::sys::{file_of, Reader};
use crate::texts::{Text, Texts};

/// As in `store/incoming.py`: a record that would lie deeper is encoded anew, which Python does.
const MAX_STORED_DEPTH: u32 = 64;
const MAX_CHAIN_KIB: u32 = 1 << 20;

/// Bytes of a text and its base together, and of the texts of a segment, over which Python takes its turn.
const LARGE: usize = 32 << 20;

/// Copies of a record that are looked at before a segment is left to Python.
const COPIES: usize = 256;

/// Bytes that one call decodes, and steps that it takes, at most: about a second.
const DECODED: u64 = 256 << 20;
const STEPS: u64 = 4 << 20;

/// What is known of one copy of a record.
#[derive(Clone, Copy)]
struct Record {
    /// Its number in `names`.
    name: u32,
    /// The copy before it of the same name.
    before: u32,
    segment: u32,
    header: u32,
    frame: u32,
    frame_length: u32,
    length: u32,
    /// A record, `NO_BASE`, or `EXTERNAL` and a number in `external`.
    base: u32,
    chain: u32,
    lineage: u32,
    meta: u32,
    depth: u16,
    encoding: u8,
    /// Of the frame of a file, by two keys of this process; 0 of others.
    mark: u128,
}

const NONE: u32 = u32::MAX;

impl Record {
    /// Depth, chain and lineage.
    fn row(&self) -> (u32, u32, u32) {
        (u32::from(self.depth), self.chain, self.lineage)
    }
}

/// Where the bytes of a stream are read again.
enum Source {
    File(File),
    /// Gives bytes by offset and size.
    Python(Py<PyAny>),
}

/// Why it stops: it is Python's turn, as much was done as may be, or a read has failed.
enum Stop {
    Turn,
    Spent,
    Python(PyErr),
}

/// What a record rests on: a record of its segment, or a name of the stream.
enum Below {
    Nothing,
    Own(usize),
    Stream(u32),
}

/// A record of the segment at hand, before that is known to be right.
struct New<'a> {
    entry: Entry<'a>,
    name: Vec<u8>,
    base: u32,
    depth: u32,
    chain: u32,
    lineage: u32,
    at: usize,
    mark: u128,
    /// None of a repeat.
    text: Option<Text>,
}

struct State {
    width: usize,
    judges: bool,
    names: Keys,
    /// By name: the first copy, and the newest.
    copies: Vec<(u32, u32)>,
    metas: Keys,
    records: Vec<Record>,
    revisions: Keys,
    /// Of each segment its source and where it begins there.
    segments: Vec<(u32, u64)>,
    end: u64,
    /// Parents as an index has them: numbers of revisions, or `OUTSIDE` and a number in `outside`.
    parent_starts: Vec<u32>,
    parents: Vec<u32>,
    outside: Keys,
    external: Keys,
    ancestry: Ancestry,
    texts: Texts,
    reader: Reader,
    tally: Tally,
    hashed: (u64, u64),
    reads: (u64, u64),
    sources: Vec<Source>,
    /// Whether the repository has a record, by kind and key: it would be the base that a key names.
    is_stored: Option<Py<PyAny>>,
    /// Names that it has not.
    not_stored: HashSet<u32>,
    /// Bytes that may still be decoded.
    room: u64,
    /// Steps of `ancestry` at which the call ends.
    last_step: u64,
    marks: (RandomState, RandomState),
}

/// Segments that were not written yet.
struct Batch<'a> {
    blocks: &'a [PyBackedBytes],
    /// The number of the first.
    first: usize,
}

impl State {
    /// Prove a segment, and take it.
    fn prove(&mut self, batch: &Batch<'_>, at: u64) -> Result<(), Stop> {
        let block = &batch.blocks[self.segments.len() - batch.first];
        let kinds = [Kind { check: 0, base: true }];
        let segment = decode(block, &kinds).ok_or(Stop::Turn)?;
        if segment.revision.len() != self.width || self.revisions.find(segment.revision).is_some() {
            return Err(Stop::Turn);
        }
        let mut parents = Vec::with_capacity(segment.parents.len());
        for parent in &segment.parents {
            parents.push(self.revisions.find(parent.id).filter(|_| !parent.absent).ok_or(Stop::Turn)?);
        }
        if segment.entries.iter().map(|entry| entry.length).sum::<usize>() > LARGE {
            return Err(Stop::Turn);
        }
        let news = self.prove_records(batch, block, &segment, &parents)?;
        self.ancestry.steps += (1 + parents.len() + news.len()) as u64;
        self.take(&segment, &parents, news, at, block.len());
        Ok(())
    }

    fn prove_records<'a>(
        &mut self,
        batch: &Batch<'_>,
        block: &'a [u8],
        segment: &Segment<'a>,
        parents: &[u32],
    ) -> Result<Vec<New<'a>>, Stop> {
        let mut news: Vec<New<'a>> = Vec::with_capacity(segment.entries.len());
        let mut own: HashMap<&[u8], usize> = HashMap::with_capacity(segment.entries.len());
        let mut bases: HashMap<Id, u8> = HashMap::new();
        let mut granted: HashSet<(u8, Id)> = HashSet::new();
        let mut needed: References = Vec::new();
        let mut has_own_record = false;
        let mut at = segment.frames_at;
        for entry in &segment.entries {
            let frame = &block[at..at + entry.frame_length];
            let [kind] = *entry.meta else { return Err(Stop::Turn) };
            if entry.kind != 0 || entry.key.len() != self.width || !matches!(kind, COMMIT | TREE | BLOB) {
                return Err(Stop::Turn);
            }
            let mut new = New {
                entry: *entry,
                name: [&[0], entry.key].concat(),
                base: NO_BASE,
                depth: 0,
                chain: kib(entry.length),
                lineage: 0,
                at,
                mark: if kind == BLOB { self.mark(frame) } else { 0 },
                text: None,
            };
            let mut kind_of_base = 0;
            let mut below = Below::Nothing;
            if let Some(key) = entry.base {
                if self.is_stored(key)? {
                    return Err(Stop::Turn);
                }
                let known = self.find(key);
                // What a key names is its first copy.
                let first = known.map(|name| self.copies[name as usize].0);
                let row = if let Some(&number) = own.get(key) {
                    let on = &news[number];
                    kind_of_base = on.entry.meta[0];
                    below = Below::Own(number);
                    new.base = first.unwrap_or((self.records.len() + number) as u32);
                    first.map_or((on.depth, on.chain, on.lineage), |first| self.records[first as usize].row())
                } else {
                    let (name, first) = known.zip(first).ok_or(Stop::Turn)?;
                    let is_granted = [COMMIT, TREE, BLOB].iter().any(|&each| granted.contains(&(each, id(key))));
                    if !is_granted && !self.is_reached(name, parents)? {
                        return Err(Stop::Turn);
                    }
                    let on = self.records[first as usize];
                    let [meta] = *self.metas.key(on.meta) else { return Err(Stop::Turn) };
                    kind_of_base = meta;
                    bases.insert(id(key), kind_of_base);
                    below = Below::Stream(name);
                    new.base = first;
                    on.row()
                };
                new.depth = row.0 + 1;
                new.chain += row.1;
                new.lineage = row.2 + 1;
            }
            if kind == BLOB && self.is_repeat(entry, new.mark) {
                // Its bytes were proved before, on the same base, whose text was used now.
                entry.base.and_then(|key| self.find(key)).and_then(|name| self.texts.get(name));
                at += entry.frame_length;
                own.insert(entry.key, news.len());
                news.push(new);
                continue;
            }
            let base = match below {
                Below::Nothing => Text::default(),
                Below::Stream(name) => self.text(batch, name)?,
                Below::Own(number) => match &news[number].text {
                    Some(text) => Arc::clone(text),
                    None => self.text(batch, self.find(news[number].entry.key).ok_or(Stop::Turn)?)?,
                },
            };
            let is_deep = new.depth > MAX_STORED_DEPTH || new.chain > MAX_CHAIN_KIB;
            if is_deep || entry.length + base.len() > LARGE {
                return Err(Stop::Turn);
            }
            let length = entry.length;
            // What a tree leaves out of a large base is looked at, too.
            self.spend(if kind == TREE { length + base.len().saturating_sub(4 * length) } else { length })?;
            let text = decompress(&mut self.reader, &mut self.tally, entry.encoding, frame, length, &base);
            let text = text.filter(|text| has_id(kind, text, entry.key)).ok_or(Stop::Turn)?;
            self.hashed.0 += 1;
            self.hashed.1 += length as u64;
            let is_on_like = kind_of_base == kind;
            let mut removed = References::new();
            match kind {
                TREE => {
                    let below: &[u8] = if is_on_like { &base } else { b"" };
                    let width = self.width;
                    if !compare_trees(&text, below, width, self.judges, &mut needed, &mut removed) {
                        return Err(Stop::Turn);
                    }
                }
                COMMIT => {
                    // Another commit, or a bare one, is Python's.
                    if entry.key != segment.revision {
                        return Err(Stop::Turn);
                    }
                    has_own_record = true;
                    let named = read_commit(&text, self.width).ok_or(Stop::Turn)?;
                    let is_same = named[1..].iter().copied().eq(segment.parents.iter().map(|parent| id(parent.id)));
                    if !is_same || (self.judges && !is_clean_commit(&text)) {
                        return Err(Stop::Turn);
                    }
                    needed.push((TREE, named[0]));
                    needed.extend(named[1..].iter().map(|&parent| (COMMIT, parent)));
                    if is_on_like {
                        let below = read_commit(&base, self.width).ok_or(Stop::Turn)?;
                        removed.push((TREE, below[0]));
                        removed.extend(below[1..].iter().map(|&parent| (COMMIT, parent)));
                    }
                }
                _ => {}
            }
            if !matches!(below, Below::Own(_)) {
                granted.extend(removed);
            }
            new.text = Some(Text::new(text));
            at += entry.frame_length;
            own.insert(entry.key, news.len());
            news.push(new);
        }
        if !has_own_record {
            return Err(Stop::Turn);
        }
        for (kind, key) in needed {
            let place = &key[..self.width];
            if granted.contains(&(kind, key)) {
                continue;
            }
            let found = match (own.get(place), bases.get(&key)) {
                (Some(&number), _) => news[number].entry.meta[0],
                (None, Some(&kind)) => kind,
                (None, None) => {
                    let name = self.find(place).ok_or(Stop::Turn)?;
                    if !self.is_reached(name, parents)? {
                        return Err(Stop::Turn);
                    }
                    let meta = self.records[self.copies[name as usize].0 as usize].meta;
                    let [kind] = *self.metas.key(meta) else { return Err(Stop::Turn) };
                    kind
                }
            };
            if found != kind {
                return Err(Stop::Turn);
            }
        }
        Ok(news)
    }

    /// The number of a name of git's one kind of record.
    fn find(&self, key: &[u8]) -> Option<u32> {
        let mut name = [0; 33];
        name[1..=key.len().min(32)].copy_from_slice(key.get(..32).unwrap_or(key));
        (key.len() <= 32).then(|| self.names.find(&name[..=key.len()])).flatten()
    }

    fn is_stored(&mut self, key: &[u8]) -> Result<bool, Stop> {
        let Some(ask) = &self.is_stored else { return Ok(false) };
        let name = self.find(key);
        if name.is_some_and(|name| self.not_stored.contains(&name)) {
            return Ok(false);
        }
        let found = Python::attach(|py| ask.bind(py).call1((0, PyBytes::new(py, key)))?.extract::<bool>());
        let found = found.map_err(Stop::Python)?;
        if !found {
            self.not_stored.extend(name);
        }
        Ok(found)
    }

    /// Whether one of some revisions is or descends from one that brought a record.
    fn is_reached(&mut self, name: u32, parents: &[u32]) -> Result<bool, Stop> {
        let mut copy = self.copies[name as usize].1;
        for _ in 0..COPIES {
            let record = self.records[copy as usize];
            for &parent in parents {
                if self.ancestry.reaches(parent, record.segment) {
                    return Ok(true);
                }
            }
            if self.ancestry.steps > self.last_step {
                return Err(Stop::Spent);
            }
            copy = record.before;
            if copy == NONE {
                return Ok(false);
            }
        }
        Err(Stop::Turn)
    }

    /// The text of the first copy of a record, decoded again where it was dropped.
    fn text(&mut self, batch: &Batch<'_>, wanted: u32) -> Result<Text, Stop> {
        let mut chain = Vec::new();
        let mut name = wanted;
        let mut text = loop {
            if let Some(found) = self.texts.get(name) {
                break found;
            }
            let number = self.copies[name as usize].0;
            let base = self.records[number as usize].base;
            chain.push(number);
            if base == NO_BASE {
                break Text::default();
            }
            if base & EXTERNAL != 0 {
                return Err(Stop::Turn);
            }
            name = self.records[base as usize].name;
        };
        for number in chain.into_iter().rev() {
            let record = self.records[number as usize];
            self.spend(record.length as usize)?;
            let frame = self.frame(batch, &record)?;
            let length = record.length as usize;
            let made = decompress(&mut self.reader, &mut self.tally, record.encoding, &frame, length, &text);
            text = Text::new(made.ok_or(Stop::Turn)?);
        }
        // What lies between is not kept: it would drive out what is wanted again.
        self.texts.put(wanted, &text);
        Ok(text)
    }

    /// Whether the same bytes came before as this record, on the same base.
    fn is_repeat(&self, entry: &Entry<'_>, mark: u128) -> bool {
        let Some(name) = self.find(entry.key) else { return false };
        let first = self.records[self.copies[name as usize].0 as usize];
        let sizes = (first.frame_length as usize, first.length as usize, first.encoding);
        if sizes != (entry.frame_length, entry.length, entry.encoding) || self.metas.key(first.meta) != entry.meta {
            return false;
        }
        let base = match first.base {
            NO_BASE => None,
            base if base & EXTERNAL != 0 => return false,
            base => Some(&self.names.key(self.records[base as usize].name)[1..]),
        };
        base == entry.base && first.mark == mark
    }

    /// A mark of bytes that nobody can foresee, so that two that have one are the same.
    fn mark(&self, frame: &[u8]) -> u128 {
        u128::from(self.marks.0.hash_one(frame)) << 64 | u128::from(self.marks.1.hash_one(frame))
    }

    /// Charge bytes before they are decoded.
    fn spend(&mut self, size: usize) -> Result<(), Stop> {
        self.room = self.room.checked_sub(size as u64).ok_or(Stop::Spent)?;
        Ok(())
    }

    fn frame(&mut self, batch: &Batch<'_>, record: &Record) -> Result<Vec<u8>, Stop> {
        let (start, size) = (record.frame as usize, record.frame_length as usize);
        let number = record.segment as usize;
        if number >= batch.first {
            return Ok(batch.blocks[number - batch.first][start..start + size].to_vec());
        }
        let (source, offset) = self.segments[number];
        let offset = offset + start as u64;
        self.reads.0 += 1;
        self.reads.1 += size as u64;
        match &self.sources[source as usize] {
            Source::File(file) => {
                let mut frame = vec![0; size];
                // What cannot be read here, Python cannot read either, and says so.
                file.read_exact_at(&mut frame, offset).map_err(|_| Stop::Turn)?;
                Ok(frame)
            }
            Source::Python(read) => Python::attach(|py| -> PyResult<Vec<u8>> {
                let frame: PyBackedBytes = read.bind(py).call1((offset, size))?.extract()?;
                Ok(frame.to_vec())
            })
            .map_err(Stop::Python),
        }
    }

    fn take(&mut self, segment: &Segment<'_>, parents: &[u32], news: Vec<New<'_>>, at: u64, length: usize) {
        let number = self.begin(segment, parents, at, length);
        for new in news {
            let entry = new.entry;
            let name = self.names.number(&new.name);
            let is_first = name as usize == self.copies.len();
            let (base, meta) = (new.base, self.metas.number(entry.meta));
            self.add(Record {
                name,
                before: NONE,
                segment: number,
                header: entry.header as u32,
                frame: new.at as u32,
                frame_length: entry.frame_length as u32,
                length: entry.length as u32,
                base,
                chain: new.chain,
                lineage: new.lineage,
                meta,
                depth: new.depth as u16,
                encoding: entry.encoding,
                mark: new.mark,
            });
            if let (true, Some(text)) = (is_first, &new.text) {
                self.texts.put(name, text);
            }
        }
    }

    /// Note a segment; its number.
    fn begin(&mut self, segment: &Segment<'_>, parents: &[u32], at: u64, length: usize) -> u32 {
        let number = self.revisions.number(segment.revision);
        self.segments.push((self.sources.len() as u32 - 1, at));
        self.end = at + length as u64;
        for parent in segment.parents.iter().filter(|parent| !parent.absent) {
            let found = self.revisions.find(parent.id);
            self.parents.push(found.unwrap_or_else(|| OUTSIDE | self.outside.number(parent.id)));
        }
        self.parent_starts.push(self.parents.len() as u32);
        self.ancestry.add(parents);
        number
    }

    fn add(&mut self, mut record: Record) {
        let number = self.records.len() as u32;
        match self.copies.get_mut(record.name as usize) {
            Some((_, newest)) => {
                record.before = *newest;
                *newest = number;
            }
            None => self.copies.push((number, number)),
        }
        self.records.push(record);
    }
}

/// Numbers as an array of Python's holds them.
fn numbers(py: Python<'_>, numbers: impl Iterator<Item = u32>) -> Bound<'_, PyBytes> {
    PyBytes::new(py, &numbers.flat_map(u32::to_ne_bytes).collect::<Vec<u8>>())
}

/// What a text adds to the size of a chain.
fn kib(length: usize) -> u32 {
    ((length + 1023) >> 10) as u32
}

#[pyclass(module = "smartserver._native")]
pub struct Prover {
    state: State,
}

/// Columns of records as `Arrivals` has them.
type Records<'py> = (
    (Bound<'py, PyBytes>, Vec<u32>),
    (Vec<Bound<'py, PyBytes>>, Vec<u32>),
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>),
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>),
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>),
);

#[pymethods]
impl Prover {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for source in &self.state.sources {
            if let Source::Python(read) = source {
                visit.call(read)?;
            }
        }
        visit.call(&self.state.is_stored)
    }

    fn __clear__(&mut self) {
        self.state.sources.clear();
        self.state.is_stored = None;
    }

    /// Drop texts and marks: nothing more is proved.
    fn forget(&mut self) {
        self.state.texts.clear();
        self.state.ancestry.forget();
    }

    /// `width`: bytes of a key. `cache`: bytes of texts that are kept. `judges`: whether faults matter. `is_stored`:
    /// whether the repository has a record, by kind and key; none where it has nothing.
    #[new]
    #[pyo3(signature = (width, cache, judges, is_stored=None))]
    fn new(width: usize, cache: usize, judges: bool, is_stored: Option<Py<PyAny>>) -> PyResult<Self> {
        if !matches!(width, 20 | 32) {
            return Err(PyValueError::new_err(format!("no ids have {width} bytes")));
        }
        let state = State {
            width,
            judges,
            names: Keys::default(),
            copies: Vec::new(),
            metas: Keys::default(),
            records: Vec::new(),
            revisions: Keys::default(),
            segments: Vec::new(),
            end: 0,
            parent_starts: vec![0],
            parents: Vec::new(),
            outside: Keys::default(),
            external: Keys::default(),
            ancestry: Ancestry::new(),
            texts: Texts::new(cache),
            reader: Reader::new(),
            tally: Tally::default(),
            hashed: (0, 0),
            reads: (0, 0),
            sources: Vec::new(),
            is_stored,
            not_stored: HashSet::new(),
            room: 0,
            last_step: 0,
            marks: Default::default(),
        };
        Ok(Prover { state })
    }

    /// The meta of the own record of each segment that it proves.
    #[classattr]
    fn own_meta() -> [u8; 1] {
        [COMMIT]
    }

    #[getter]
    fn segments(&self) -> usize {
        self.state.segments.len()
    }

    #[getter]
    fn records(&self) -> usize {
        self.state.records.len()
    }

    /// Say where the segments that come next are read again: a file that is open, or what gives bytes by offset and
    /// size.
    fn read_from(&mut self, py: Python<'_>, source: Py<PyAny>) -> PyResult<()> {
        let source = match source.extract::<i32>(py) {
            Ok(descriptor) => Source::File(file_of(descriptor)?),
            Err(_) => Source::Python(source),
        };
        self.state.sources.push(source);
        Ok(())
    }

    /// Prove segments that lie at `at` and behind it, up to one that Python must look at. How many; the bytes that were
    /// decoded, and steps; whether it is Python's turn. `decoded`, `steps`: how many there may be.
    fn prove(
        &mut self,
        py: Python<'_>,
        blocks: Vec<PyBackedBytes>,
        mut at: u64,
        decoded: u64,
        steps: u64,
    ) -> PyResult<(usize, u64, u64, bool)> {
        let state = &mut self.state;
        let (room, before) = (decoded.min(DECODED), state.ancestry.steps);
        state.room = room;
        state.last_step = before.saturating_add(steps.min(STEPS));
        let (mut left, mut last_step) = (room, before);
        let (count, stop) = run(py, || {
            let batch = Batch { blocks: &blocks, first: state.segments.len() };
            for (number, block) in blocks.iter().enumerate() {
                match state.prove(&batch, at) {
                    Ok(()) => at += block.len() as u64,
                    Err(Stop::Spent) if number > 0 => return (number, None),
                    Err(stop) => return (number, Some(stop)),
                }
                (left, last_step) = (state.room, state.ancestry.steps);
            }
            (blocks.len(), None)
        })?;
        match stop {
            Some(Stop::Python(wrong)) if count == 0 => Err(wrong),
            stop => {
                // Python may find the segment to be a repeat, which costs it little: each KiB decoded here is a step.
                let given_up = (state.ancestry.steps - last_step) + ((left - state.room) >> 10);
                Ok((count, room - left, last_step - before + given_up, stop.is_some()))
            }
        }
    }

    /// Whether a revision came.
    fn has(&self, revision: &[u8]) -> bool {
        self.state.revisions.find(revision).is_some()
    }

    /// Take a segment that Python has looked at, and which lies at `at`. Of each record: depth, chain and lineage; and
    /// the number of its base, negative where that is not in the stream. Without them they are as the stream says.
    #[pyo3(signature = (block, at, rows=Vec::new(), bases=Vec::new()))]
    fn note(&mut self, block: &[u8], at: u64, rows: Vec<(u32, u32, u32)>, bases: Vec<i64>) -> PyResult<()> {
        let state = &mut self.state;
        let kinds = [Kind { check: 0, base: true }];
        let segment = decode(block, &kinds).ok_or_else(|| PyValueError::new_err("not a segment"))?;
        if state.revisions.find(segment.revision).is_some() {
            return Err(PyValueError::new_err("its revision came before"));
        }
        let count = segment.entries.len();
        if (!rows.is_empty() && rows.len() != count) || rows.len() != bases.len() {
            return Err(PyValueError::new_err("a row for each record, and a base"));
        }
        let parents: Vec<u32> = segment
            .parents
            .iter()
            .filter(|each| !each.absent)
            .filter_map(|each| state.revisions.find(each.id))
            .collect();
        let number = state.begin(&segment, &parents, at, block.len());
        let mut frame = segment.frames_at;
        for (place, entry) in segment.entries.iter().enumerate() {
            let base = match entry.base {
                None => NO_BASE,
                Some(key) => {
                    let name = [&[entry.kind], key].concat();
                    let found = match bases.get(place) {
                        Some(&base) => u32::try_from(base).ok(),
                        None => state.names.find(&name).map(|found| state.copies[found as usize].0),
                    };
                    found.unwrap_or_else(|| EXTERNAL | state.external.number(&name))
                }
            };
            if base & EXTERNAL == 0 && base as usize >= state.records.len() {
                return Err(PyLookupError::new_err("a base that comes later"));
            }
            let own = (0, kib(entry.length), 0);
            let (depth, chain, lineage) = rows.get(place).copied().unwrap_or_else(|| match base & EXTERNAL {
                0 => {
                    let on = state.records[base as usize];
                    (u32::from(on.depth) + 1, on.chain + own.1, on.lineage + 1)
                }
                _ => own,
            });
            let (name, meta) =
                (state.names.number(&[&[entry.kind], entry.key].concat()), state.metas.number(entry.meta));
            state.add(Record {
                name,
                before: NONE,
                segment: number,
                header: entry.header as u32,
                frame: frame as u32,
                frame_length: entry.frame_length as u32,
                length: entry.length as u32,
                base,
                chain,
                lineage,
                meta,
                depth: depth.min(255) as u16,
                encoding: entry.encoding,
                mark: 0,
            });
            frame += entry.frame_length;
        }
        Ok(())
    }

    /// The revisions from a number on, and the numbers of their parents in the stream.
    fn revisions<'py>(&self, py: Python<'py>, first: u32) -> Vec<(Bound<'py, PyBytes>, Vec<u32>)> {
        let state = &self.state;
        let row = |number| (PyBytes::new(py, state.revisions.key(number)), state.ancestry.parents(number).to_vec());
        (first..state.segments.len() as u32).map(row).collect()
    }

    /// The records from a number on, in columns: names, and where they end; all metas, and their numbers; revisions,
    /// encodings, places, sizes; lengths and bases; depths, chains, lineages. All were proved here.
    fn columns<'py>(&self, py: Python<'py>, first: usize) -> Records<'py> {
        let state = &self.state;
        let records = &state.records[first..];
        let column = |of: &dyn Fn(&Record) -> u32| numbers(py, records.iter().map(of));
        let mut names = Vec::new();
        let mut ends = Vec::with_capacity(records.len());
        for record in records {
            names.extend_from_slice(state.names.key(record.name));
            ends.push(names.len() as u32);
        }
        let metas = state.metas.iter().map(|meta| PyBytes::new(py, meta)).collect();
        let place = |record: &Record| state.segments[record.segment as usize].1 + u64::from(record.frame);
        let places: Vec<u8> = records.iter().flat_map(|record| place(record).to_ne_bytes()).collect();
        let encodings: Vec<u8> = records.iter().map(|record| record.encoding).collect();
        (
            (PyBytes::new(py, &names), ends),
            (metas, records.iter().map(|record| record.meta).collect()),
            (
                column(&|record| record.segment),
                PyBytes::new(py, &encodings),
                PyBytes::new(py, &places),
                column(&|record| record.frame_length),
            ),
            (column(&|record| record.length), column(&|record| record.base)),
            (
                column(&|record| u32::from(record.depth)),
                column(&|record| record.chain),
                column(&|record| record.lineage),
            ),
        )
    }

    /// The body of the index of a pack that has the segments from a number on, of that length and hash, as
    /// `IndexBuilder` makes it. `lineages`: of its records, where Python knows better.
    #[pyo3(signature = (pack_length, pack_hash, first=0, lineages=None))]
    fn index<'py>(
        &self,
        py: Python<'py>,
        pack_length: u64,
        pack_hash: &[u8],
        first: usize,
        lineages: Option<Vec<u32>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let state = &self.state;
        let body = run(py, || state.columns(first, lineages.as_deref()).body(pack_length, pack_hash))?;
        Ok(PyBytes::new(py, &body))
    }

    /// What was done since the last call: frames decoded, their bytes, and those of the texts; texts hashed, and their
    /// bytes; reads, and their bytes.
    fn tally(&mut self) -> [u64; 7] {
        let state = &mut self.state;
        let (tally, hashed, reads) =
            (std::mem::take(&mut state.tally), std::mem::take(&mut state.hashed), std::mem::take(&mut state.reads));
        [tally.frames, tally.came, tally.made, hashed.0, hashed.1, reads.0, reads.1]
    }
}

impl State {
    /// The columns of an index of the segments from a number on.
    fn columns(&self, first: usize, lineages: Option<&[u32]>) -> Columns<'_> {
        let record = self.records.partition_point(|record| (record.segment as usize) < first);
        let mut columns = Columns::new(&self.revisions, first);
        for (number, &(_, offset)) in self.segments.iter().enumerate().skip(first) {
            columns.offsets.push(offset);
            let named = self.parent_starts[number] as usize..self.parent_starts[number + 1] as usize;
            for &parent in &self.parents[named] {
                if parent & OUTSIDE != 0 {
                    columns.add_parent(None, self.outside.key(parent ^ OUTSIDE));
                } else {
                    columns.add_parent(Some(parent), self.revisions.key(parent));
                }
            }
            columns.parent_starts.push(columns.parents.len() as u32);
        }
        columns.offsets.push(self.end);
        for (number, each) in self.records.iter().enumerate().skip(record) {
            let start = self.segments[each.segment as usize].1;
            let base = match each.base {
                NO_BASE => NO_BASE,
                base if base & EXTERNAL != 0 => columns.external(self.external.key(base ^ EXTERNAL)),
                base if (base as usize) < record => columns.external(self.names.key(self.records[base as usize].name)),
                base => base - record as u32,
            };
            columns.rows.push(crate::index::Row {
                header: start + u64::from(each.header),
                frame: start + u64::from(each.frame),
                frame_length: each.frame_length,
                length: each.length,
                base,
                segment: each.segment - first as u32,
                chain: each.chain,
                lineage: lineages.and_then(|known| known.get(number - record).copied()).unwrap_or(each.lineage),
                depth: each.depth.min(255) as u8,
                digest: crate::index::digest(self.names.key(each.name)),
            });
        }
        columns
    }
}
