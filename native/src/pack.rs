//! `PackBuilder`: one of git's packs out of the segments of a pull, as `vcs/git/build.py` makes it.
//!
//! Segments are taken by a thread of its own, so that they are decoded while more of them come. Their frames lie in a
//! spool file, from which a text that was dropped is decoded again. A record may be a delta of one written before.
//!
//! A refusal is not named here. Python's own part reads it again and raises what it is refused for.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use flate2::write::ZlibEncoder;
use flate2::Compression;
use libdeflater::{CompressionLvl, Compressor};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use sha1::{Digest, Sha1};
use sha2::Sha256;

use crate::delta::Differ;
use crate::frame::{decompress, Tally};
use crate::guard::{failed, run};
use crate::keys::Keys;
use crate::objects::{has_id, type_name, COMMIT};
use crate::segment::{decode, OF_HASHES, STORED};
use crate::sys::{file_of, Reader};
use crate::texts::{Text, Texts};

const OFS_DELTA: u8 = 6;
const HEAD: usize = 12;

/// Bytes of segments that wait for the thread.
const QUEUED: usize = 8 << 20;

/// Time between two looks of a wait at whether the user has interrupted it.
const LOOK: Duration = Duration::from_millis(100);

/// Bytes of entries that are written at once, and bytes of a text from which its entry is written as it is made.
const WRITTEN: usize = 1 << 18;
const LARGE: usize = 1 << 20;

/// Bytes of a pack that are written between two looks whether the user has interrupted it.
const LOOKED: u64 = 16 << 20;

const NO_BASE: u32 = u32::MAX;

/// A record. The type of one that was named as a base and did not come is 0.
#[derive(Clone, Copy)]
struct Record {
    kind: u8,
    /// It was named as a base before it came: its text is read from the repository. Its own base may rest on it.
    is_outside: bool,
    encoding: u8,
    length: u32,
    frame_length: u32,
    base: u32,
    check: u32,
    /// The place of its frame in the spool.
    at: u64,
    /// The place of its entry.
    place: u64,
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

/// Why nothing more is made.
enum Failure {
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

/// Makes the entries; it lives in the thread.
struct Maker {
    width: usize,
    keys: Keys,
    records: Vec<Record>,
    texts: Texts,
    reader: Reader,
    tally: Tally,
    differ: Differ,
    compressor: Compressor,
    level: u32,
    spool: File,
    /// Bytes of frames in the spool.
    spooled: u64,
    out: File,
    /// Bytes of entries written, and those that are not written yet.
    written: u64,
    pending: Vec<u8>,
    outside: Py<PyAny>,
}

impl Maker {
    /// Make the entries of what is new in a segment.
    fn add(&mut self, block: &[u8], came: &AtomicUsize) -> Result<(), Failure> {
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
        let text = decompress(&mut self.reader, &mut self.tally, record.encoding, frame, record.length as usize, &base)
            .filter(|text| has_id(record.kind, text, self.keys.key(number)));
        let Some(text) = text else {
            self.records[number as usize] = record;
            return Err(Failure::Record(number, frame.to_vec(), base));
        };
        let text = Text::new(text);
        self.texts.put(number, &text);
        record.place = self.written + self.pending.len() as u64;
        let based = self.records.get(record.base as usize).filter(|on| on.kind == record.kind && on.kind != COMMIT);
        // Deltas of commits save a tenth of their bytes and double the deltas to make and to resolve: whole.
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

    /// An entry that is written as it is made; its CRC-32. What zstd left as it is, zlib does not shrink either.
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

    fn flush(&mut self) -> Result<(), Failure> {
        self.out.write_all_at(&self.pending, self.written)?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// The text of a record, decoded again where it was dropped, or of an object of the repository.
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
        // What lies between is not kept: it would drive out what is wanted again.
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

    /// Write the pack, and give its index (version 2) and its hash.
    fn finish(&mut self, out: &File) -> Result<(Vec<u8>, Vec<u8>), Failure> {
        self.flush()?;
        self.texts.clear();
        let mut order: Vec<u32> =
            (0..self.records.len() as u32).filter(|&n| self.records[n as usize].kind != 0).collect();
        let mut file = Hashed { file: out, hash: Hash::new(self.width) };
        let mut head = b"PACK\0\0\0\x02".to_vec();
        head.extend_from_slice(&(order.len() as u32).to_be_bytes());
        file.write_all(&head)?;
        let mut block = vec![0; LARGE];
        let mut at = 0;
        while at < self.written {
            let size = LARGE.min((self.written - at) as usize);
            self.out.read_exact_at(&mut block[..size], at)?;
            file.write_all(&block[..size])?;
            at += size as u64;
            if at % LOOKED == 0 {
                Python::attach(|py| py.check_signals()).map_err(Failure::Python)?;
            }
        }
        let digest = file.hash.digest();
        file.file.write_all(&digest)?;
        order.sort_unstable_by(|&one, &other| self.keys.key(one).cmp(self.keys.key(other)));
        Ok((self.index(&order, &digest), digest))
    }

    fn index(&self, order: &[u32], pack: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(order.len() * (self.width + 8) + 1100);
        out.extend_from_slice(b"\xfftOc\0\0\0\x02");
        let mut count = 0;
        for first in 0..=255u8 {
            count += order[count..].iter().take_while(|&&number| self.keys.key(number)[0] == first).count();
            out.extend_from_slice(&(count as u32).to_be_bytes());
        }
        for &number in order {
            out.extend_from_slice(self.keys.key(number));
        }
        for &number in order {
            out.extend_from_slice(&self.records[number as usize].check.to_be_bytes());
        }
        let mut far = Vec::new();
        for &number in order {
            let place = self.records[number as usize].place + HEAD as u64;
            let short = if place < 1 << 31 { place as u32 } else { 1 << 31 | (far.len() / 8) as u32 };
            if place >= 1 << 31 {
                far.extend_from_slice(&place.to_be_bytes());
            }
            out.extend_from_slice(&short.to_be_bytes());
        }
        out.extend_from_slice(&far);
        out.extend_from_slice(pack);
        let mut hash = Hash::new(self.width);
        hash.update(&out);
        out.extend_from_slice(&hash.digest());
        out
    }
}

/// Type and length of what follows, inflated.
fn entry_head(out: &mut Vec<u8>, kind: u8, length: usize) {
    let (low, mut rest) = (kind << 4 | (length & 15) as u8, length >> 4);
    out.push(if rest > 0 { low | 0x80 } else { low });
    while rest > 0 {
        out.push((rest & 0x7f) as u8 | if rest > 0x7f { 0x80 } else { 0 });
        rest >>= 7;
    }
}

/// The distance from a delta's base to its entry.
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

enum Hash {
    Sha1(Box<Sha1>),
    Sha256(Box<Sha256>),
}

impl Hash {
    fn new(width: usize) -> Self {
        if width == 32 {
            Hash::Sha256(Box::default())
        } else {
            Hash::Sha1(Box::default())
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hash::Sha1(hash) => hash.update(bytes),
            Hash::Sha256(hash) => hash.update(bytes),
        }
    }

    fn digest(&self) -> Vec<u8> {
        match self {
            Hash::Sha1(hash) => hash.clone().finalize().to_vec(),
            Hash::Sha256(hash) => hash.clone().finalize().to_vec(),
        }
    }
}

struct Hashed<'a> {
    file: &'a File,
    hash: Hash,
}

impl Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let size = self.file.write(bytes)?;
        self.hash.update(&bytes[..size]);
        Ok(size)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// With its number, by which Python knows what it is.
fn disk(py: Python<'_>, wrong: &io::Error) -> PyErr {
    let number = wrong.raw_os_error().unwrap_or(0);
    let said = py.import("os").and_then(|os| os.call_method1("strerror", (number,))).and_then(|said| said.extract());
    PyOSError::new_err((number, said.unwrap_or_else(|_| wrong.to_string())))
}

/// The state that both threads see.
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    came: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    blocks: VecDeque<PyBackedBytes>,
    size: usize,
    /// Nothing more comes: the maker ends when it has taken what is there, or at once.
    is_closed: bool,
    /// The maker has ended early.
    is_broken: bool,
}

impl Shared {
    fn next(&self) -> Option<PyBackedBytes> {
        let mut queue = self.queue.lock().expect("no thread panics with the queue");
        loop {
            if let Some(block) = queue.blocks.pop_front() {
                queue.size -= block.len();
                self.changed.notify_all();
                return Some(block);
            }
            if queue.is_closed {
                return None;
            }
            queue = self.changed.wait(queue).expect("no thread panics with the queue");
        }
    }

    fn close(&self, drop_all: bool) {
        let mut queue = self.queue.lock().expect("no thread panics with the queue");
        queue.is_closed = true;
        if drop_all {
            queue.blocks.clear();
        }
        self.changed.notify_all();
    }
}

type Made = (Maker, Option<Failure>);

/// Says that the maker has ended, also by a panic.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if let Ok(mut queue) = self.0.queue.lock() {
            queue.is_broken = true;
            queue.blocks.clear();
            self.0.changed.notify_all();
        }
    }
}

fn work(mut maker: Maker, shared: &Shared) -> Made {
    let _ending = Ending(shared);
    loop {
        let block = shared.next();
        let is_last = block.is_none();
        let done = match block {
            Some(block) => maker.add(&block, &shared.came),
            None => maker.flush(),
        };
        if let Err(failure) = done {
            return (maker, Some(failure));
        }
        if is_last {
            return (maker, None);
        }
    }
}

#[pyclass(module = "smartserver._native")]
pub struct PackBuilder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Made>>,
    maker: Option<Maker>,
    /// Keys of what came, once the maker is gone.
    came: HashSet<Box<[u8]>>,
    width: usize,
}

#[pymethods]
impl PackBuilder {
    /// `width`: bytes of a key. `spool` and `entries`: files of the caller's, open to be read and written. `outside`
    /// gives the text of an object of the repository.
    #[new]
    #[pyo3(signature = (width, spool, entries, outside, *, cache, level))]
    fn new(width: usize, spool: i32, entries: i32, outside: Py<PyAny>, cache: usize, level: u32) -> PyResult<Self> {
        let maker = Maker {
            width,
            keys: Keys::default(),
            records: Vec::new(),
            texts: Texts::new(cache),
            reader: Reader::new(),
            tally: Tally::default(),
            differ: Differ::new(),
            compressor: Compressor::new(CompressionLvl::new(level as i32).unwrap_or(CompressionLvl::fastest())),
            level,
            spool: file_of(spool)?,
            spooled: 0,
            out: file_of(entries)?,
            written: 0,
            pending: Vec::new(),
            outside,
        };
        let shared =
            Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new(), came: AtomicUsize::default() });
        let seen = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("pack".into()).spawn(move || work(maker, &seen))?;
        Ok(PackBuilder { shared, thread: Some(thread), maker: None, came: HashSet::new(), width })
    }

    /// Objects that came so far.
    #[getter]
    fn objects(&self) -> usize {
        self.shared.came.load(Ordering::Relaxed)
    }

    /// Take a segment; it waits while many are waiting.
    fn add(&mut self, py: Python<'_>, block: PyBackedBytes) -> PyResult<()> {
        let mut waiting = Some(block);
        loop {
            let shared = &self.shared;
            let is_broken = py.detach(|| {
                let mut queue = shared.queue.lock().expect("no thread panics with the queue");
                if queue.is_broken || queue.is_closed {
                    return true;
                }
                if queue.size < QUEUED {
                    if let Some(block) = waiting.take() {
                        queue.size += block.len();
                        queue.blocks.push_back(block);
                        shared.changed.notify_all();
                    }
                } else {
                    drop(shared.changed.wait_timeout(queue, LOOK).expect("no thread panics with the queue"));
                }
                false
            });
            if is_broken {
                self.join(py)?;
                return Err(PyRuntimeError::new_err("nothing is made any more"));
            }
            if waiting.is_none() {
                return Ok(());
            }
            py.check_signals()?;
        }
    }

    /// Wait until all that was added is made.
    fn settle(&mut self, py: Python<'_>) -> PyResult<()> {
        self.shared.close(false);
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            py.detach(|| std::thread::sleep(Duration::from_millis(1)));
            py.check_signals()?;
        }
        self.join(py)
    }

    /// Write the pack to a file; its index, and the hash it ends with.
    fn finish<'py>(&mut self, py: Python<'py>, out: i32) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        self.settle(py)?;
        let out = file_of(out)?;
        let Some(maker) = &mut self.maker else {
            return Err(PyRuntimeError::new_err("nothing is made any more"));
        };
        let made = run(py, || maker.finish(&out))?;
        maker.tally.count(py)?;
        match made {
            Ok((index, digest)) => Ok((PyBytes::new(py, &index), PyBytes::new(py, &digest))),
            Err(failure) => Err(self.error(py, failure)),
        }
    }

    /// Tell whether an object came; after `settle`, and after `abandon`.
    fn __contains__(&self, key: &[u8]) -> bool {
        let came = |maker: &Maker| maker.keys.find(key).is_some_and(|at| maker.records[at as usize].kind != 0);
        self.maker.as_ref().map_or_else(|| self.came.contains(key), came)
    }

    /// End the thread, and let go of all.
    fn abandon(&mut self, py: Python<'_>) {
        self.shared.close(true);
        let thread = self.thread.take();
        py.detach(|| thread.map(JoinHandle::join));
        if let Some(maker) = self.maker.take() {
            let records = maker.records.iter().enumerate().filter(|(_, record)| record.kind != 0);
            self.came = records.map(|(number, _)| maker.keys.key(number as u32).into()).collect();
        }
    }
}

impl Drop for PackBuilder {
    fn drop(&mut self) {
        self.shared.close(true);
    }
}

impl PackBuilder {
    /// Take back what the thread had, and raise what ended it early.
    fn join(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let (maker, failure) = py.detach(|| thread.join()).map_err(|panic| failed(&*panic))?;
        self.maker = Some(maker);
        failure.map_or(Ok(()), |failure| Err(self.error(py, failure)))
    }

    fn error(&self, py: Python<'_>, failure: Failure) -> PyErr {
        let twin = match py.import("smartserver.vcs.git.build") {
            Ok(twin) => twin,
            Err(wrong) => return wrong,
        };
        let said = match failure {
            Failure::Python(wrong) => return wrong,
            Failure::Disk(wrong) => return disk(py, &wrong),
            Failure::Segment(block) => twin.call_method1("check_segment", (PyBytes::new(py, &block), self.width)),
            Failure::Record(number, frame, base) => {
                let Some(maker) = &self.maker else { return PyRuntimeError::new_err("nothing is made any more") };
                let record = &maker.records[number as usize];
                let key = PyBytes::new(py, maker.keys.key(number));
                let (frame, base) = (PyBytes::new(py, &frame), PyBytes::new(py, &base));
                twin.call_method1("check_record", (record.kind, record.encoding, record.length, key, frame, base))
            }
        };
        said.map_or_else(|wrong| wrong, |_| PyRuntimeError::new_err("Python takes what the native part refuses"))
    }
}
