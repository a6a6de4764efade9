//! `Stream`: the records of a stream so far, as in `store/known_records.py`. Their texts are decoded again on demand.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::FileExt;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::ancestry::Ancestry;
use crate::frame::{decompress, Tally};
use crate::index::{Columns, EXTERNAL, NO_BASE, OUTSIDE};
use crate::keys::Keys;
use crate::segment::{Entry, Segment};
use crate::stored::{join, Front, Row, Stored};
use crate::sys::Reader;
use crate::system::{name, System, ANY};
use crate::texts::{Text, Texts};

pub const NONE: u32 = u32::MAX;

/// The most copies of a record that are looked at before a segment is left to Python.
const COPIES: usize = 256;

/// The bit in a number that marks a stored record in the cache of texts.
const STORED: u32 = 1 << 31;

/// One copy of a record.
#[derive(Clone, Copy)]
pub struct Record {
    /// Its number in `names`.
    pub name: u32,
    /// The copy before it of the same name.
    pub before: u32,
    pub segment: u32,
    pub header: u32,
    pub frame: u32,
    pub frame_length: u32,
    pub length: u32,
    /// A record, `NO_BASE`, or `EXTERNAL` and a number in `external`.
    pub base: u32,
    pub chain: u32,
    pub lineage: u32,
    pub meta: u32,
    pub depth: u16,
    pub encoding: u8,
    /// The mark of a file's frame, by two keys of this process; 0 for other records.
    pub mark: u128,
}

impl Record {
    /// Return the row from which the rows of records that rest on this one follow.
    pub fn row(&self) -> Row {
        let length = self.length as usize;
        Row { depth: u32::from(self.depth), chain: self.chain, lineage: self.lineage, length }
    }
}

/// The source from which the bytes of a stream are read again.
pub enum Source {
    File(File),
    /// Returns bytes by offset and size.
    Python(Py<PyAny>),
}

/// The reason for a stop: Python must check the segment, the limits are reached, or a read has failed.
pub enum Stop {
    Turn,
    Spent,
    Python(PyErr),
}

impl From<PyErr> for Stop {
    fn from(wrong: PyErr) -> Self {
        Stop::Python(wrong)
    }
}

/// The parents of a revision.
pub struct Parents {
    /// Parents in the stream.
    pub stream: Vec<u32>,
    /// Ordinals of the other parents; `None` for one that is not stored.
    pub stored: Vec<Option<u32>>,
    /// The stored revisions on which the revision rests.
    pub front: Front,
}

pub struct Stream {
    pub system: System,
    pub names: Keys,
    /// The first and the newest copy of each name.
    pub copies: Vec<(u32, u32)>,
    pub metas: Keys,
    pub records: Vec<Record>,
    pub revisions: Keys,
    /// For each segment its source and its place there.
    pub segments: Vec<(u32, u64)>,
    pub end: u64,
    /// Parents as an index has them: numbers of revisions, or `OUTSIDE` and a number in `outside`.
    pub parent_starts: Vec<u32>,
    pub parents: Vec<u32>,
    pub outside: Keys,
    /// Ordinals of the revisions in `outside`; `None` for one that is not stored.
    pub ordinals: Vec<Option<u32>>,
    /// Names of records outside the stream that may be bases.
    pub external: Keys,
    pub ancestry: Ancestry,
    /// The front of each revision.
    pub fronts: Vec<Front>,
    pub texts: Texts,
    pub reader: Reader,
    pub tally: Tally,
    pub hashed: (u64, u64),
    pub reads: (u64, u64),
    pub sources: Vec<Source>,
    /// `None` if the repository has no records.
    pub stored: Option<Stored>,
    /// Bytes that may still be decoded.
    pub room: u64,
    /// The count of `ancestry.steps` at which the call ends.
    pub last_step: u64,
    marks: (RandomState, RandomState),
}

/// Segments that are not written yet.
pub struct Batch<'a> {
    pub blocks: &'a [PyBackedBytes],
    /// The number of the first segment.
    pub first: usize,
}

impl Stream {
    /// `cache`: bytes of texts to cache.
    pub fn new(system: System, cache: usize, stored: Option<Stored>) -> Self {
        Stream {
            system,
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
            ordinals: Vec::new(),
            external: Keys::default(),
            ancestry: Ancestry::new(),
            fronts: Vec::new(),
            texts: Texts::new(cache),
            reader: Reader::new(),
            tally: Tally::default(),
            hashed: (0, 0),
            reads: (0, 0),
            sources: Vec::new(),
            stored,
            room: 0,
            last_step: 0,
            marks: Default::default(),
        }
    }

    /// Return the number of a record's name.
    pub fn find(&self, kind: u8, key: &[u8]) -> Option<u32> {
        self.names.find(&name(kind, key))
    }

    /// Return the number and the row of a stored record that a segment names as a base.
    pub fn stored_row(&self, kind: u8, key: &[u8]) -> Option<(u32, Row)> {
        let stored = self.stored.as_ref()?;
        let number = self.external.find(&name(kind, key))?;
        Some((number, stored.row(number)?))
    }

    /// Return meta and text of a stored record.
    pub fn stored_record(&mut self, number: u32) -> Result<(Vec<u8>, Text), Stop> {
        let stored = self.stored.as_ref().ok_or(Stop::Turn)?;
        if let (Some(meta), Some(text)) = (stored.known_meta(number), self.texts.get(STORED | number)) {
            return Ok((meta.to_vec(), text));
        }
        let row = stored.row(number).ok_or(Stop::Turn)?;
        self.spend((row.chain as usize) << 10)?;
        let stored = self.stored.as_mut().ok_or(Stop::Turn)?;
        let (meta, text) = stored.record(number, self.external.key(number))?;
        self.texts.put(STORED | number, &text);
        Ok((meta, text))
    }

    /// Return the type of a record, in the stream or stored, that a parent or an ancestor introduced; `None` if none
    /// did. `wanted`: the type that matters.
    pub fn type_below(&mut self, name: &[u8], wanted: u8, parents: &Parents) -> Result<Option<u8>, Stop> {
        if let Some(number) = self.names.find(name) {
            if self.is_reached(number, &parents.stream)? {
                return Ok(Some(self.system.type_of(self.meta_of(number))));
            }
        }
        match &self.stored {
            Some(_) if wanted == ANY => Ok(self.is_below(parents, name[0], &name[1..])?.then_some(ANY)),
            Some(stored) => {
                let front = parents.front.as_ref().ok_or(Stop::Turn)?;
                Ok(stored.meta_below(front, name)?.map(|meta| self.system.type_of(&meta)))
            }
            None => Ok(None),
        }
    }

    /// Tell whether a stored ancestor introduced a record.
    pub fn is_below(&self, parents: &Parents, kind: u8, key: &[u8]) -> Result<bool, Stop> {
        match &self.stored {
            Some(stored) => Ok(stored.is_below(parents.front.as_ref().ok_or(Stop::Turn)?, kind, key)?),
            None => Ok(false),
        }
    }

    /// Return the meta of the first copy of a record of the stream.
    pub fn meta_of(&self, name: u32) -> &[u8] {
        self.metas.key(self.records[self.copies[name as usize].0 as usize].meta)
    }

    /// Return the meta of the record of kind 0 that a revision introduced, and whose key is the revision's id.
    pub fn own_meta(&self, revision: &[u8]) -> Option<&[u8]> {
        let number = self.revisions.find(revision)?;
        let mut copy = self.copies[self.find(0, revision)? as usize].1;
        while copy != NONE {
            let record = self.records[copy as usize];
            if record.segment == number {
                return Some(self.metas.key(record.meta));
            }
            copy = record.before;
        }
        None
    }

    /// Tell whether one of `parents` is or descends from a revision that introduced a record.
    pub fn is_reached(&mut self, name: u32, parents: &[u32]) -> Result<bool, Stop> {
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

    /// Return the text of the first copy of a record, decoded again if it was dropped.
    pub fn text(&mut self, batch: &Batch<'_>, wanted: u32) -> Result<Text, Stop> {
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
                break self.stored_record(base ^ EXTERNAL)?.1;
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
        // Texts in between are not cached: they would drive out texts that are needed again.
        self.texts.put(wanted, &text);
        Ok(text)
    }

    /// Tell whether this record was received before with the same bytes, on the same base.
    pub fn is_repeat(&self, entry: &Entry<'_>, mark: u128) -> bool {
        let Some(name) = self.find(entry.kind, entry.key) else { return false };
        let first = self.records[self.copies[name as usize].0 as usize];
        let sizes = (first.frame_length as usize, first.length as usize, first.encoding);
        if sizes != (entry.frame_length, entry.length, entry.encoding) || self.metas.key(first.meta) != entry.meta {
            return false;
        }
        let base = match first.base {
            NO_BASE => None,
            base if base & EXTERNAL != 0 => Some(&self.external.key(base ^ EXTERNAL)[1..]),
            base => Some(&self.names.key(self.records[base as usize].name)[1..]),
        };
        base == entry.base && first.mark == mark
    }

    /// Return a mark of bytes that nobody can foresee, so that two frames with one mark are the same.
    pub fn mark(&self, frame: &[u8]) -> u128 {
        u128::from(self.marks.0.hash_one(frame)) << 64 | u128::from(self.marks.1.hash_one(frame))
    }

    /// Charge bytes before they are decoded.
    pub fn spend(&mut self, size: usize) -> Result<(), Stop> {
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
                // If it cannot be read here, Python cannot read it either, and reports the error.
                file.read_exact_at(&mut frame, offset).map_err(|_| Stop::Turn)?;
                Ok(frame)
            }
            Source::Python(read) => Ok(Python::attach(|py| -> PyResult<Vec<u8>> {
                let frame: PyBackedBytes = read.bind(py).call1((offset, size))?.extract()?;
                Ok(frame.to_vec())
            })?),
        }
    }

    /// Return the parents of a segment that are not absent.
    pub fn parents_of(&self, segment: &Segment<'_>) -> Result<Parents, Stop> {
        let (mut stream, mut stored) = (Vec::with_capacity(segment.parents.len()), Vec::new());
        for parent in segment.parents.iter().filter(|parent| !parent.absent) {
            match self.revisions.find(parent.id) {
                Some(number) => stream.push(number),
                None => stored.push(self.ordinal(parent.id)?),
            }
        }
        let known: Vec<u32> = stored.iter().copied().flatten().collect();
        let front = join(&known, stream.iter().map(|&parent| &self.fronts[parent as usize]));
        Ok(Parents { stream, stored, front })
    }

    fn ordinal(&self, revision: &[u8]) -> Result<Option<u32>, Stop> {
        let known = self.outside.find(revision).and_then(|number| self.ordinals[number as usize]);
        match &self.stored {
            Some(stored) if known.is_none() => Ok(stored.ordinal(revision)?),
            _ => Ok(known),
        }
    }

    /// Note a segment, and return its number.
    pub fn begin(&mut self, segment: &Segment<'_>, parents: Parents, at: u64, length: usize) -> u32 {
        let mut stored = parents.stored.into_iter();
        for parent in segment.parents.iter().filter(|parent| !parent.absent) {
            let number = self.revisions.find(parent.id).unwrap_or_else(|| {
                let number = self.outside.number(parent.id);
                self.ordinals.resize(self.outside.len(), None);
                self.ordinals[number as usize] = stored.next().flatten();
                OUTSIDE | number
            });
            self.parents.push(number);
        }
        self.parent_starts.push(self.parents.len() as u32);
        self.segments.push((self.sources.len() as u32 - 1, at));
        self.end = at + length as u64;
        self.ancestry.add(&parents.stream);
        self.fronts.push(parents.front);
        self.revisions.number(segment.revision)
    }

    pub fn add(&mut self, mut record: Record) {
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

    /// Return the columns of an index of the segments from a number on. `lineages`: those of its records, if known.
    pub fn columns(&self, first: usize, lineages: Option<&[u32]>) -> Columns<'_> {
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

/// Return the size in KiB that a text adds to a chain.
pub fn kib(length: usize) -> u32 {
    ((length + 1023) >> 10) as u32
}
