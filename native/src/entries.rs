//! `Maker`: makes the entries of a pack. Each is a record's whole text, or a delta of a record written before.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::write::ZlibEncoder;
use flate2::Compression;
use libdeflater::{CompressionLvl, Compressor};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::delta::Differ;
use crate::frame::{decompress, Tally};
use crate::hashing::Hashing;
use crate::keys::Keys;
use crate::objects::{type_name, COMMIT};
use crate::segment::{decode, OF_HASHES, STORED};
use crate::sys::Reader;
use crate::texts::{Text, Texts};

const OFS_DELTA: u8 = 6;

/// Bytes of entries that are written at once, and bytes of a text above which its entry is written while it is made.
const WRITTEN: usize = 1 << 18;
pub const LARGE: usize = 1 << 20;

const NO_BASE: u32 = u32::MAX;

/// A record. Its type is 0 if it was named as a base and is not received.
#[derive(Clone, Copy)]
pub struct Record {
    pub kind: u8,
    /// True if it was named as a base before it was received. Its text is then read from the repository, because its
    /// own base may rest on it.
    is_outside: bool,
    pub encoding: u8,
    pub length: u32,
    frame_length: u32,
    base: u32,
    pub check: u32,
    /// The place of its frame in the spool.
    at: u64,
    /// The place of its entry.
    pub place: u64,
}

const OUTSIDE: Record = Record {
    kind: 0,
    is_outside: false,
    encoding: 0,
    length: 0,
    frame_length: 0,
    base: NO_BASE,
    check: 0,
    at: 0,
    place: 0,
};

/// The reason why no more entries are made.
pub enum Failure {
    /// A segment, or the type of a record in it, is refused.
    Segment(Vec<u8>),
    /// A record is refused: its number, frame and base.
    Record(u32, Vec<u8>, Text),
    Python(PyErr),
    Disk(io::Error),
}

impl From<io::Error> for Failure {
    fn from(wrong: io::Error) -> Self {
        Failure::Disk(wrong)
    }
}

/// Makes the entries, in the thread of `PackBuilder`.
pub struct Maker {
    pub width: usize,
    pub keys: Keys,
    pub records: Vec<Record>,
    pub texts: Texts,
    reader: Reader,
    pub tally: Tally,
    hashing: Hashing,
    differ: Differ,
    compressor: Compressor,
    level: u32,
    spool: File,
    /// Bytes of frames in the spool.
    spooled: u64,
    pub out: File,
    /// Bytes of entries that are written, and the entries that are not written yet.
    pub written: u64,
    pending: Vec<u8>,
    outside: Py<PyAny>,
}

impl Maker {
    /// `spool` takes frames, and `out` entries. `outside` returns the text of an object of the repository.
    pub fn new(width: usize, spool: File, out: File, outside: Py<PyAny>, cache: usize, level: u32) -> Self {
        Maker {
            width,
            keys: Keys::default(),
            records: Vec::new(),
            texts: Texts::new(cache),
            reader: Reader::new(),
            tally: Tally::default(),
            hashing: Hashing::default(),
            differ: Differ::new(),
            compressor: Compressor::new(CompressionLvl::new(level as i32).unwrap_or(CompressionLvl::fastest())),
            level,
            spool,
            spooled: 0,
            out,
            written: 0,
            pending: Vec::new(),
            outside,
        }
    }

    /// Make the entries of the new records in a segment. Whether they have their ids may be known only after `check`.
    pub fn add(&mut self, block: &[u8], came: &AtomicUsize) -> Result<(), Failure> {
        self.make_all(block, came).or_else(|failure| self.check().and(Err(failure)))
    }

    /// Return the failure of the first record that has another id.
    pub fn check(&mut self) -> Result<(), Failure> {
        let Some(number) = self.hashing.finish() else { return Ok(()) };
        let Record { at, frame_length, base, .. } = self.records[number as usize];
        let mut frame = vec![0; frame_length as usize];
        self.spool.read_exact_at(&mut frame, at)?;
        let base = if base == NO_BASE { Text::default() } else { self.text(base)? };
        Err(Failure::Record(number, frame, base))
    }

    fn make_all(&mut self, block: &[u8], came: &AtomicUsize) -> Result<(), Failure> {
        let Some(segment) = decode(block, &OF_HASHES) else { return Err(Failure::Segment(block.to_vec())) };
        let mut is_spooled = false;
        let mut at = segment.frames_at;
        for entry in &segment.entries {
            let frame = &block[at..at + entry.frame_length];
            let place = self.spooled + (at - segment.frames_at) as u64;
            at += entry.frame_length;
            let known = self.records.len();
            let number = self.number(entry.key);
            if self.records[number as usize].kind != 0 {
                continue;
            }
            let kind = match entry.meta {
                [kind] if type_name(*kind).is_some() && entry.key.len() == self.width => *kind,
                _ => return Err(Failure::Segment(block.to_vec())),
            };
            if !is_spooled {
                self.spool.write_all_at(&block[segment.frames_at..], self.spooled)?;
                is_spooled = true;
            }
            let base = entry.base.map_or(NO_BASE, |key| self.number(key));
            let (length, frame_length) = (entry.length as u32, entry.frame_length as u32);
            let is_outside = (number as usize) < known;
            let record = Record { kind, is_outside, length, frame_length, base, at: place, ..OUTSIDE };
            self.make(number, Record { encoding: entry.encoding, ..record }, frame)?;
            came.fetch_add(1, Ordering::Relaxed);
        }
        if is_spooled {
            self.spooled += (block.len() - segment.frames_at) as u64;
        }
        Ok(())
    }

    fn number(&mut self, key: &[u8]) -> u32 {
        let number = self.keys.number(key);
        if number as usize == self.records.len() {
            self.records.push(OUTSIDE);
        }
        number
    }

    /// Check a record, and make its entry.
    fn make(&mut self, number: u32, mut record: Record, frame: &[u8]) -> Result<(), Failure> {
        let base = if record.base == NO_BASE { Text::default() } else { self.text(record.base)? };
        let length = record.length as usize;
        let Some(text) = decompress(&mut self.reader, &mut self.tally, record.encoding, frame, length, &base) else {
            self.records[number as usize] = record;
            return Err(Failure::Record(number, frame.to_vec(), base));
        };
        let text = Text::new(text);
        if !self.hashing.add(number, record.kind, self.keys.key(number), &text) {
            self.records[number as usize] = record;
            return self.check();
        }
        self.texts.put(number, &text);
        record.place = self.written + self.pending.len() as u64;
        let based = self.records.get(record.base as usize).filter(|on| on.kind == record.kind && on.kind != COMMIT);
        // Commits are written whole: deltas would save a tenth of their bytes, but double the deltas to make and to
        // resolve.
        let changes = based.map(|on| (self.differ.delta(&base, &text), record.place - on.place));
        match changes.filter(|(changes, _)| changes.len() * 10 < text.len() * 7) {
            Some((changes, back)) => {
                let start = self.pending.len();
                entry_head(&mut self.pending, OFS_DELTA, changes.len());
                offset_back(&mut self.pending, back);
                self.deflate(&changes);
                record.check = crc32fast::hash(&self.pending[start..]);
            }
            None if text.len() > LARGE => record.check = self.make_large(&record, &text)?,
            None => {
                let start = self.pending.len();
                entry_head(&mut self.pending, record.kind, text.len());
                self.deflate(&text);
                record.check = crc32fast::hash(&self.pending[start..]);
            }
        }
        self.records[number as usize] = record;
        if self.pending.len() > WRITTEN {
            self.flush()?;
        }
        Ok(())
    }

    fn deflate(&mut self, bytes: &[u8]) {
        let start = self.pending.len();
        self.pending.resize(start + self.compressor.zlib_compress_bound(bytes.len()), 0);
        let size = self.compressor.zlib_compress(bytes, &mut self.pending[start..]);
        self.pending.truncate(start + size.expect("room for all of it"));
    }

    /// Write a large entry while it is made, and return its CRC-32. zlib does not shrink a text that zstd stored as it
    /// is.
    fn make_large(&mut self, record: &Record, text: &[u8]) -> Result<u32, Failure> {
        let level = if record.encoding == STORED { Compression::none() } else { Compression::new(self.level) };
        let mut head = Vec::new();
        entry_head(&mut head, record.kind, text.len());
        self.flush()?;
        let mut sink = Sink { out: &self.out, at: self.written, check: crc32fast::Hasher::new() };
        sink.write_all(&head)?;
        let mut encoder = ZlibEncoder::new(sink, level);
        encoder.write_all(text)?;
        let sink = encoder.finish()?;
        self.written = sink.at;
        Ok(sink.check.finalize())
    }

    pub fn flush(&mut self) -> Result<(), Failure> {
        self.out.write_all_at(&self.pending, self.written)?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Return the text of a record, decoded again if it was dropped, or of an object of the repository.
    fn text(&mut self, wanted: u32) -> Result<Text, Failure> {
        let mut chain = Vec::new();
        let mut at = wanted;
        let mut text = loop {
            if at == NO_BASE {
                break Text::default();
            }
            if let Some(found) = self.texts.get(at) {
                break found;
            }
            let record = &self.records[at as usize];
            if record.kind == 0 || record.is_outside {
                break self.read_outside(at)?;
            }
            chain.push(at);
            at = record.base;
        };
        if chain.is_empty() {
            return Ok(text);
        }
        for number in chain.into_iter().rev() {
            let record = self.records[number as usize];
            let mut frame = vec![0; record.frame_length as usize];
            self.spool.read_exact_at(&mut frame, record.at)?;
            let length = record.length as usize;
            text = match decompress(&mut self.reader, &mut self.tally, record.encoding, &frame, length, &text) {
                Some(text) => Text::new(text),
                None => return Err(Failure::Record(number, frame, text)),
            };
        }
        // Texts in between are not cached: they would drive out texts that are needed again.
        self.texts.put(wanted, &text);
        Ok(text)
    }

    fn read_outside(&mut self, number: u32) -> Result<Text, Failure> {
        let read = |py: Python<'_>| -> PyResult<Text> {
            let key = PyBytes::new(py, self.keys.key(number));
            let text: PyBackedBytes = self.outside.bind(py).call1((key,))?.extract()?;
            Ok(Text::new(text.to_vec()))
        };
        let text = Python::attach(read).map_err(Failure::Python)?;
        self.texts.put(number, &text);
        Ok(text)
    }
}

/// Write the head of an entry: its type and the inflated length of its data.
fn entry_head(out: &mut Vec<u8>, kind: u8, length: usize) {
    let (low, mut rest) = (kind << 4 | (length & 15) as u8, length >> 4);
    out.push(if rest > 0 { low | 0x80 } else { low });
    while rest > 0 {
        out.push((rest & 0x7f) as u8 | if rest > 0x7f { 0x80 } else { 0 });
        rest >>= 7;
    }
}

/// Write the distance from an entry back to the base of its delta.
fn offset_back(out: &mut Vec<u8>, mut back: u64) {
    let mut bytes = [0; 10];
    let mut at = bytes.len() - 1;
    bytes[at] = (back & 0x7f) as u8;
    back >>= 7;
    while back > 0 {
        back -= 1;
        at -= 1;
        bytes[at] = 0x80 | (back & 0x7f) as u8;
        back >>= 7;
    }
    out.extend_from_slice(&bytes[at..]);
}

struct Sink<'a> {
    out: &'a File,
    at: u64,
    check: crc32fast::Hasher,
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write_all_at(bytes, self.at)?;
        self.check.update(bytes);
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
