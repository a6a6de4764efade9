//! `RecordReader`: reads records of packs and decodes their chains, as `store/stored_records.py` does.
//!
//! It returns a record that can be read, or nothing. A damaged record is read again by Python, which names the damage.
//! Git's records are checked here against their keys, all others by Python.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, RwLock};

use blake2::digest::consts::U16;
use blake2::{Blake2b, Digest};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::frame::{decompress, Tally};
use crate::guard::run;
use crate::index::{digest, EXTERNAL, NO_BASE};
use crate::limits::{MAX_ID, MAX_META, MAX_RECORD};
use crate::objects::has_id;
use crate::sys::{file_of, Reader};
use crate::texts::{Cache, Text};
use crate::varint;

/// Bytes of a block of an index, and of a hash.
const BLOCK: usize = 16 << 10;
const HASH: usize = 16;
const HEADER: usize = 56;
const DIGEST: usize = 20;
const ROW: usize = 41;

/// Bytes of index blocks to cache.
const KEPT: usize = 4 << 20;

/// Bytes of texts to cache between the ends of chains.
const BETWEEN: usize = 8 << 20;
/// Bytes that each cached text takes besides.
const ENTRY: usize = 100;

/// A record of at most so many bytes, from the start of its header to the end of its frame, is read at once.
const NEAR: u64 = 4 << 10;
/// Bytes that are read for a header of unknown length.
const HEAD: u64 = 512;

/// The most texts of a chain, and the most bytes of them together. Python reads a longer one.
const MOST_STEPS: usize = 256;
const MOST_BYTES: u64 = 64 << 20;

/// Read bytes of a file.
fn read(file: &File, at: u64, size: usize) -> Option<Vec<u8>> {
    let mut found = vec![0; size];
    file.read_exact_at(&mut found, at).ok()?;
    Some(found)
}

/// The row of an index for one copy of a record.
struct Row {
    header: u64,
    frame: u64,
    frame_length: usize,
    length: usize,
    base: u32,
    segment: u32,
}

struct Index {
    number: u32,
    file: File,
    checks: Vec<u8>,
    /// Bytes before the hashes.
    length: usize,
    bits: u32,
    records: u32,
    fanout: usize,
    digests: usize,
    rows: usize,
    id_offsets: usize,
    ids: usize,
    external_offsets: usize,
    external_keys: usize,
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

impl Index {
    fn open(file: File, number: u32, blocks: &Blocks) -> Option<Index> {
        let size = file.metadata().ok()?.len() as usize;
        let count = size.checked_sub(HASH)?.div_ceil(BLOCK + HASH);
        let length = size.checked_sub(HASH * (count + 1))?;
        if count < 1 || length <= BLOCK * (count - 1) || length < HEADER {
            return None;
        }
        let checks = read(&file, length as u64, HASH * count)?;
        let mut index = Index {
            number,
            file,
            checks,
            length,
            bits: 0,
            records: 0,
            fanout: HEADER,
            digests: 0,
            rows: 0,
            id_offsets: 0,
            ids: 0,
            external_offsets: 0,
            external_keys: 0,
        };
        let head = index.read(0, HEADER, blocks)?;
        index.bits = u32::from(head[10]);
        if index.bits > u16::BITS {
            return None;
        }
        let counts: Vec<usize> = (0..5).map(|at| number_at(&head, 12 + 4 * at) as usize).collect();
        let &[records, segments, parents, external, outside] = &counts[..] else { return None };
        index.records = records as u32;
        let widths = [4, DIGEST, ROW, 8, 4, 4, 4, 4, 4, 4];
        let items = [
            (1 << index.bits) + 1,
            records,
            records,
            segments + 1,
            segments + 1,
            segments,
            segments + 1,
            parents,
            external + 1,
            outside + 1,
        ];
        let mut places = Vec::with_capacity(widths.len());
        let mut at = HEADER;
        for (width, count) in widths.into_iter().zip(items) {
            places.push(at);
            at = (at + width * count).next_multiple_of(8);
        }
        (index.fanout, index.digests, index.rows) = (places[0], places[1], places[2]);
        (index.id_offsets, index.external_offsets) = (places[4], places[8]);
        index.ids = at;
        let end = number_at(&index.read(places[4] + 4 * segments, 4, blocks)?, 0) as usize;
        index.external_keys = (at + end).next_multiple_of(8);
        Some(index)
    }

    /// Read bytes of the body. The hashes of their blocks are checked.
    fn read(&self, at: usize, size: usize, blocks: &Blocks) -> Option<Vec<u8>> {
        if at + size > self.length {
            return None;
        }
        let mut found = Vec::with_capacity(size);
        while found.len() < size {
            let place = at + found.len();
            let block = self.block(place / BLOCK, blocks)?;
            let start = place % BLOCK;
            let stop = block.len().min(start + size - found.len());
            found.extend_from_slice(block.get(start..stop)?);
        }
        Some(found)
    }

    fn block(&self, number: usize, blocks: &Blocks) -> Option<Arc<Vec<u8>>> {
        let name = blocks.name(self.number, number)?;
        if let Some(found) = blocks.kept.lock().ok()?.get(name) {
            return Some(found);
        }
        let at = number * BLOCK;
        let block = read(&self.file, at as u64, BLOCK.min(self.length - at))?;
        if Blake2b::<U16>::digest(&block)[..] != *self.checks.get(number * HASH..(number + 1) * HASH)? {
            return None;
        }
        let block = Arc::new(block);
        blocks.kept.lock().ok()?.put(name, Arc::clone(&block), block.len());
        Some(block)
    }

    fn row(&self, row: u32, blocks: &Blocks) -> Option<Row> {
        if row >= self.records {
            return None;
        }
        let said = self.read(self.rows + row as usize * ROW, ROW, blocks)?;
        let long = |at: usize| u64::from_le_bytes(said[at..at + 8].try_into().expect("eight bytes"));
        Some(Row {
            header: long(0),
            frame: long(8),
            frame_length: number_at(&said, 16) as usize,
            length: number_at(&said, 20) as usize,
            base: number_at(&said, 24),
            segment: number_at(&said, 28),
        })
    }

    /// Return the first row of a record, or `Some(None)` if it is not here. `None` means that the index cannot be read.
    fn find(&self, wanted: &[u8; DIGEST], blocks: &Blocks) -> Option<Option<u32>> {
        let (low, high) = if self.bits == 0 {
            (0, self.records)
        } else {
            let bucket = usize::from(u16::from_be_bytes([wanted[0], wanted[1]]) >> (16 - self.bits));
            let span = self.read(self.fanout + 4 * bucket, 8, blocks)?;
            (number_at(&span, 0), number_at(&span, 4))
        };
        if low >= high {
            return Some(None);
        }
        let digests = self.read(self.digests + low as usize * DIGEST, (high - low) as usize * DIGEST, blocks)?;
        Some(digests.chunks_exact(DIGEST).position(|each| each == wanted).map(|at| low + at as u32))
    }

    fn item(&self, offsets: usize, table: usize, entry: u32, blocks: &Blocks) -> Option<Vec<u8>> {
        let span = self.read(offsets + 4 * entry as usize, 8, blocks)?;
        let (start, stop) = (number_at(&span, 0) as usize, number_at(&span, 4) as usize);
        self.read(table + start, stop.checked_sub(start)?, blocks)
    }
}

/// The cached blocks of all indexes.
struct Blocks {
    kept: Mutex<Cache<Arc<Vec<u8>>>>,
}

impl Blocks {
    /// Return the number of a block in the cache.
    fn name(&self, index: u32, block: usize) -> Option<u32> {
        u32::try_from(block).ok().filter(|&block| block < 1 << 20 && index < 1 << 12).map(|block| index << 20 | block)
    }
}

/// An index, and its pack once that is read.
struct Pack {
    content: Option<File>,
    index: Index,
}

/// The header of a record.
struct Head {
    kind: u8,
    encoding: u8,
    key: Vec<u8>,
    meta: Vec<u8>,
    check: Vec<u8>,
    length: u64,
    frame_length: u64,
}

/// The reason why no record is returned.
enum Stop {
    /// Python must read it.
    Turn,
    /// A pack, or its index alone, must be added before.
    Pack(usize),
    Index(usize),
}

struct Found {
    head: Head,
    text: Text,
    decoded: u64,
    is_proved: bool,
}

#[pyclass(module = "smartserver._native")]
pub struct RecordReader {
    /// For each kind, whether git's ids prove it, and the bytes of a check.
    kinds: Vec<(bool, usize)>,
    packs: RwLock<Vec<Option<Arc<Pack>>>>,
    blocks: Blocks,
    /// Texts between the ends of chains. If records are read newest first, the next one is found here.
    between: Mutex<Cache<Text, (usize, u32)>>,
    readers: Mutex<Vec<Reader>>,
}

/// Kind, key, meta, text, check; the number of decoded bytes; whether the text was proved to match the key.
type Read<'py> = (u8, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, u64, bool);

#[derive(IntoPyObject)]
enum Answer<'py> {
    Record(Read<'py>),
    Pack(i64),
}

#[pymethods]
impl RecordReader {
    /// `kinds`: for each, the name of its check and the bytes of a check. `packs`: the number of packs.
    #[new]
    fn new(kinds: Vec<(String, usize)>, packs: usize) -> Self {
        let is_git = |check: &str| matches!(check, "git-sha1" | "git-sha256");
        let kinds = kinds.iter().map(|(check, size)| (is_git(check), *size)).collect();
        RecordReader {
            kinds,
            packs: RwLock::new((0..packs).map(|_| None).collect()),
            blocks: Blocks { kept: Mutex::new(Cache::new(KEPT)) },
            between: Mutex::new(Cache::new(BETWEEN)),
            readers: Mutex::default(),
        }
    }

    /// Add the descriptors of open files: that of an index, and that of its pack. Return whether they can be read.
    #[pyo3(signature = (number, index, content=None))]
    fn add(&self, number: usize, index: i32, content: Option<i32>) -> bool {
        let Some(index) = file_of(index).ok().and_then(|file| Index::open(file, number as u32, &self.blocks)) else {
            return false;
        };
        let content = match content.map(file_of) {
            Some(Err(_)) => return false,
            content => content.and_then(Result::ok),
        };
        if let Some(place) = self.packs.write().ok().as_mut().and_then(|packs| packs.get_mut(number)) {
            *place = Some(Arc::new(Pack { content, index }));
        }
        true
    }

    /// Return the record of a row of a pack; or the number of a pack that must be added before, as -1 minus it if its
    /// index is enough; or nothing.
    fn read<'py>(&self, py: Python<'py>, pack: usize, row: u32) -> PyResult<Option<Answer<'py>>> {
        let (found, mut tally) = run(py, || self.find(pack, row))?;
        tally.count(py)?;
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        Ok(match found {
            Ok(Found { head, text, decoded, is_proved }) => Some(Answer::Record((
                head.kind,
                bytes(&head.key),
                bytes(&head.meta),
                bytes(&text),
                bytes(&head.check),
                decoded,
                is_proved,
            ))),
            Err(Stop::Pack(number)) => Some(Answer::Pack(number as i64)),
            Err(Stop::Index(number)) => Some(Answer::Pack(-1 - number as i64)),
            Err(Stop::Turn) => None,
        })
    }
}

impl RecordReader {
    fn find(&self, pack: usize, row: u32) -> (Result<Found, Stop>, Tally) {
        let mut tally = Tally::default();
        let idle = self.readers.lock().ok().and_then(|mut readers| readers.pop());
        let mut reader = idle.unwrap_or_else(Reader::new);
        let found = self.decode(&mut reader, &mut tally, pack, row);
        if let Ok(mut readers) = self.readers.lock() {
            readers.push(reader);
        }
        (found, tally)
    }

    fn pack(&self, number: usize) -> Result<Arc<Pack>, Stop> {
        let packs = self.packs.read().map_err(|_| Stop::Turn)?;
        packs.get(number).ok_or(Stop::Turn)?.clone().ok_or(Stop::Index(number))
    }

    fn decode(&self, reader: &mut Reader, tally: &mut Tally, pack: usize, row: u32) -> Result<Found, Stop> {
        let mut chain = Vec::new();
        let mut decoded = 0;
        let mut place = Some((pack, row));
        let mut top = None;
        let mut text = Text::default();
        while let Some((number, row)) = place {
            if let Some(found) =
                self.between.lock().map_err(|_| Stop::Turn)?.get((number, row)).filter(|_| top.is_some())
            {
                text = found;
                break;
            }
            let pack = self.pack(number)?;
            let content = pack.content.as_ref().ok_or(Stop::Pack(number))?;
            let said = pack.index.row(row, &self.blocks).ok_or(Stop::Turn)?;
            let (head, frame) = self.load(content, &said).ok_or(Stop::Turn)?;
            decoded += said.length as u64;
            if decoded > MOST_BYTES || chain.len() >= MOST_STEPS {
                return Err(Stop::Turn);
            }
            place = self.base(number, &pack, &said)?;
            chain.push(((number, row), head.encoding, frame, said.length));
            if top.is_none() {
                top = Some((head, Arc::clone(&pack), row, said));
            }
        }
        while let Some((place, encoding, frame, length)) = chain.pop() {
            let made = decompress(reader, tally, encoding, &frame, length, &text);
            text = Text::new(made.ok_or(Stop::Turn)?);
            if !chain.is_empty() {
                let mut between = self.between.lock().map_err(|_| Stop::Turn)?;
                between.put(place, Arc::clone(&text), text.len() + ENTRY);
            }
        }
        let (mut head, pack, row, said) = top.ok_or(Stop::Turn)?;
        if head.key.is_empty() {
            let index = &pack.index;
            head.key = index.item(index.id_offsets, index.ids, said.segment, &self.blocks).ok_or(Stop::Turn)?;
        }
        let named = digest(&[&[head.kind], &head.key[..]].concat());
        let known = pack.index.read(pack.index.digests + row as usize * DIGEST, DIGEST, &self.blocks);
        if known.as_deref() != Some(&named[..]) {
            return Err(Stop::Turn);
        }
        let is_git = self.kinds.get(head.kind as usize).is_some_and(|(is_git, _)| *is_git);
        if is_git && !(head.meta.len() == 1 && has_id(head.meta[0], &text, &head.key)) {
            return Err(Stop::Turn);
        }
        Ok(Found { head, text, decoded, is_proved: is_git })
    }

    /// Return the header and the frame of a record, if they agree with the index.
    fn load(&self, content: &File, said: &Row) -> Option<(Head, Vec<u8>)> {
        let stop = said.frame.checked_add(said.frame_length as u64)?;
        let room = said.frame.checked_sub(said.header)?;
        if said.frame_length > MAX_RECORD || said.length > MAX_RECORD {
            return None;
        }
        let (head, frame) = if stop - said.header <= NEAR {
            let mut read = read(content, said.header, (stop - said.header) as usize)?;
            let frame = read.split_off(room as usize);
            (self.head(&read)?, frame)
        } else {
            let mut size = HEAD.min(room);
            let head = loop {
                match self.head(&read(content, said.header, size as usize)?) {
                    Some(head) => break head,
                    None if size == room => return None,
                    None => size = (16 * size).min(room),
                }
            };
            (head, read(content, said.frame, said.frame_length)?)
        };
        let is_said = head.length == said.length as u64 && head.frame_length == said.frame_length as u64;
        is_said.then_some((head, frame))
    }

    fn head(&self, buf: &[u8]) -> Option<Head> {
        let (kind, encoding) = (*buf.first()?, *buf.get(1)?);
        let (_, check) = *self.kinds.get(kind as usize)?;
        let at = &mut 2;
        let key = varint::read_bytes(buf, at, MAX_ID)?.to_vec();
        let meta = varint::read_bytes(buf, at, MAX_META)?.to_vec();
        if varint::read(buf, at)? == 1 {
            varint::read_bytes(buf, at, MAX_ID)?;
        }
        let (length, frame_length) = (varint::read(buf, at)?, varint::read(buf, at)?);
        let check = buf.get(*at..*at + check)?.to_vec();
        Some(Head { kind, encoding, key, meta, check, length, frame_length })
    }

    /// Return pack and row of the base of a row. The base comes before the row.
    fn base(&self, number: usize, pack: &Pack, said: &Row) -> Result<Option<(usize, u32)>, Stop> {
        if said.base == NO_BASE {
            return Ok(None);
        }
        let index = &pack.index;
        if said.base & EXTERNAL == 0 {
            let below = index.row(said.base, &self.blocks).ok_or(Stop::Turn)?;
            return if below.header < said.header { Ok(Some((number, said.base))) } else { Err(Stop::Turn) };
        }
        let (offsets, keys) = (index.external_offsets, index.external_keys);
        let name = index.item(offsets, keys, said.base ^ EXTERNAL, &self.blocks).ok_or(Stop::Turn)?;
        let wanted = digest(&name);
        for before in 0..number {
            let found = self.pack(before)?.index.find(&wanted, &self.blocks).ok_or(Stop::Turn)?;
            if let Some(row) = found {
                return Ok(Some((before, row)));
            }
        }
        Err(Stop::Turn)
    }
}
