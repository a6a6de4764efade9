//! `ObjectStore`: reads objects from the packs and loose files of a git repository.
//!
//! Formats: gitformat-pack(5), index version 2, and loose objects as in gitformat-loose(5). Git reads
//! objects that are missing here, large, unusual or damaged; no error is raised here.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use flate2::read::ZlibDecoder;
use libdeflater::Decompressor;
use memmap2::Mmap;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::guard::run;
use crate::objects::{type_name, COMMIT, TAG};
use crate::sys::map;
use crate::texts::{Cache, Text};

/// The most bytes of an object that is read here.
const LARGEST: usize = 16 << 20;

/// Bytes that an object takes in the cache besides its text.
const ENTRY: usize = 150;

/// The number of texts at the end of a chain of deltas that are cached. They are usually the next versions to be read.
const SPAN: usize = 8;

/// The most deltas between an object and a whole one: more than git writes by itself.
const MAX_DEPTH: usize = 4096;

/// The most folders of objects that are read, alternates included.
const MAX_FOLDERS: usize = 16;

const OFS_DELTA: u8 = 6;
const REF_DELTA: u8 = 7;

/// The start of an index of version 2.
const MAGIC: [u8; 8] = [0xff, b't', b'O', b'c', 0, 0, 0, 2];
const FANOUT: usize = 8;
const NAMES: usize = FANOUT + 4 * 256;

/// The bit of an offset that is a number in the table of offsets of 8 bytes.
const LARGE_OFFSET: u64 = 1 << 31;

/// The type and the text of an object.
pub type Object = (u8, Text);

struct Pack {
    content: Mmap,
    index: Mmap,
}

/// A reader that several threads share.
#[pyclass(frozen, module = "smartserver._native")]
pub struct ObjectStore {
    reader: Arc<Mutex<Objects>>,
    pub width: usize,
}

#[pymethods]
impl ObjectStore {
    /// `folder`: the folder of objects. `width`: the bytes of a key. `cache`: the bytes of objects that are cached, as
    /// the bases of others.
    #[new]
    fn new(py: Python<'_>, folder: PathBuf, width: usize, cache: usize) -> PyResult<Self> {
        let reader = run(py, || Objects::open(folder, width, cache))?;
        Ok(ObjectStore { reader: Arc::new(Mutex::new(reader)), width })
    }

    /// Return the type and the text of an object; `None` if git must read it.
    #[pyo3(name = "read")]
    fn read_for<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Option<(u8, Bound<'py, PyBytes>)>> {
        let found = run(py, || self.read(key))?;
        Ok(found.map(|(kind, text)| (kind, PyBytes::new(py, &text))))
    }
}

impl ObjectStore {
    pub fn share(&self) -> ObjectStore {
        ObjectStore { reader: Arc::clone(&self.reader), width: self.width }
    }

    /// Return an object; `None` if it is not found, or must be read by git.
    pub fn read(&self, key: &[u8]) -> Option<Object> {
        self.reader.lock().ok()?.read(key)
    }
}

struct Objects {
    folders: Vec<PathBuf>,
    packs: Vec<Pack>,
    /// The pack in which the last object was found.
    last: usize,
    width: usize,
    inflater: Decompressor,
    /// The delta that was read last.
    delta: Vec<u8>,
    /// The last texts between an object and a cached one.
    passing: (Vec<u8>, Vec<u8>),
    /// By pack and offset.
    cache: Cache<Object, (usize, usize)>,
}

fn number_at(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(width)?)?;
    Some(bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

impl Pack {
    fn open(index: &Path) -> Option<Pack> {
        let pack = Pack { content: map(&index.with_extension("pack")).ok()?, index: map(index).ok()? };
        pack.index.starts_with(&MAGIC).then_some(pack)
    }

    /// Return the number of keys whose first byte is at most this one.
    fn count(&self, first: u8) -> Option<usize> {
        Some(number_at(&self.index, FANOUT + 4 * usize::from(first), 4)? as usize)
    }

    /// Return the offset of an object; `None` if the pack does not have it.
    fn find(&self, key: &[u8]) -> Option<usize> {
        let (&first, width) = (key.first()?, key.len());
        let mut low = if first == 0 { 0 } else { self.count(first - 1)? };
        let mut high = self.count(first)?;
        let total = self.count(u8::MAX)?;
        let number = loop {
            if low >= high {
                return None;
            }
            let middle = low + (high - low) / 2;
            let at = NAMES + middle * width;
            match self.index.get(at..at + width)?.cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => break middle,
                Ordering::Greater => high = middle,
            }
        };
        let offsets = NAMES + total * (width + 4);
        let mut offset = number_at(&self.index, offsets + 4 * number, 4)?;
        if offset & LARGE_OFFSET != 0 {
            offset = number_at(&self.index, offsets + 4 * total + 8 * (offset ^ LARGE_OFFSET) as usize, 8)?;
        }
        usize::try_from(offset).ok()
    }
}

/// An entry of a pack. `size`: the bytes of its text or delta. `stream`: its zlib stream, and what follows it.
struct Entry<'a> {
    kind: u8,
    size: usize,
    /// The bytes between the base of a delta of kind `OFS_DELTA` and this entry.
    back: u64,
    /// The key of the base of a delta of kind `REF_DELTA`.
    key: &'a [u8],
    stream: &'a [u8],
}

fn pack_entry(content: &[u8], offset: usize, width: usize) -> Option<Entry<'_>> {
    let bytes = content.get(offset..)?;
    let first = *bytes.first()?;
    let kind = first >> 4 & 7;
    let (mut size, mut shift, mut at) = (u64::from(first & 15), 4, 1);
    let mut is_more = first >= 0x80;
    while is_more {
        let byte = *bytes.get(at)?;
        if shift > 50 {
            return None;
        }
        size |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        at += 1;
        is_more = byte >= 0x80;
    }
    let (mut back, mut key) = (0, &bytes[..0]);
    if kind == OFS_DELTA {
        loop {
            let byte = *bytes.get(at)?;
            at += 1;
            back = back << 7 | u64::from(byte & 0x7f);
            if byte < 0x80 {
                break;
            }
            back += 1;
            if back > 1 << 50 {
                return None;
            }
        }
    } else if kind == REF_DELTA {
        key = bytes.get(at..at + width)?;
        at += width;
    }
    Some(Entry { kind, size: usize::try_from(size).ok()?, back, key, stream: &bytes[at..] })
}

/// Read an integer of a delta: LEB128, and not always in its shortest form.
fn integer(delta: &[u8], at: &mut usize) -> Option<usize> {
    let (mut number, mut shift) = (0u64, 0);
    loop {
        let byte = *delta.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return usize::try_from(number).ok();
        }
        if shift > 50 {
            return None;
        }
    }
}

/// Make the text that a delta makes of its base.
fn apply(delta: &[u8], base: &[u8], text: &mut Vec<u8>) -> Option<()> {
    let mut at = 0;
    if integer(delta, &mut at)? != base.len() {
        return None;
    }
    let length = integer(delta, &mut at).filter(|&length| length <= LARGEST)?;
    text.clear();
    text.reserve_exact(length);
    while let Some(&step) = delta.get(at) {
        at += 1;
        let piece = if step < 0x80 {
            let end = at + usize::from(step);
            let piece = delta.get(at..end).filter(|_| step > 0)?;
            at = end;
            piece
        } else {
            let mut number = |bits: std::ops::Range<usize>| {
                let mut found = 0;
                for (place, bit) in bits.enumerate() {
                    if step >> bit & 1 == 1 {
                        found |= usize::from(*delta.get(at)?) << (8 * place);
                        at += 1;
                    }
                }
                Some(found)
            };
            let from = number(0..4)?;
            let size = match number(4..7)? {
                0 => 1 << 16,
                size => size,
            };
            base.get(from..from + size)?
        };
        if text.len() + piece.len() > length {
            return None;
        }
        text.extend_from_slice(piece);
    }
    (text.len() == length).then_some(())
}

impl Objects {
    /// Open the packs in a folder of objects, and in those that its `alternates` name.
    fn open(folder: PathBuf, width: usize, cache: usize) -> Objects {
        let mut folders = vec![folder];
        let mut packs = Vec::new();
        let mut at = 0;
        while at < folders.len() && at < MAX_FOLDERS {
            let folder = folders[at].clone();
            let found = fs::read_dir(folder.join("pack")).into_iter().flatten().flatten().map(|entry| entry.path());
            let indices = found.filter(|path| path.extension().is_some_and(|end| end == "idx"));
            packs.extend(indices.filter_map(|path| Pack::open(&path)));
            let named = fs::read(folder.join("info/alternates")).unwrap_or_default();
            for line in named.split(|&byte| byte == b'\n') {
                if !line.is_empty() && !matches!(line[0], b'#' | b'"') {
                    let named = folder.join(OsStr::from_bytes(line));
                    if !folders.contains(&named) {
                        folders.push(named);
                    }
                }
            }
            at += 1;
        }
        folders.truncate(at);
        let cache = Cache::new(cache);
        Objects {
            folders,
            packs,
            last: 0,
            width,
            inflater: Decompressor::new(),
            delta: Vec::new(),
            passing: Default::default(),
            cache,
        }
    }

    fn read(&mut self, key: &[u8]) -> Option<Object> {
        if key.len() != self.width {
            return None;
        }
        for turn in 0..self.packs.len() {
            let pack = (self.last + turn) % self.packs.len();
            if let Some(offset) = self.packs[pack].find(key) {
                self.last = pack;
                return self.packed(pack, offset);
            }
        }
        self.loose(key)
    }

    fn packed(&mut self, number: usize, mut at: usize) -> Option<Object> {
        let Objects { packs, width, inflater, delta, passing, cache, .. } = self;
        let pack = &packs[number];
        let mut inflate = |entry: &Entry<'_>, text: &mut Vec<u8>| {
            text.resize(entry.size, 0);
            matches!(inflater.zlib_decompress(entry.stream, text), Ok(size) if size == entry.size).then_some(())
        };
        let cost = |text: &Text| text.len() + ENTRY;
        let mut deltas = Vec::new();
        let (kind, mut text) = loop {
            if let Some(found) = cache.get((number, at)) {
                break found;
            }
            let entry = pack_entry(&pack.content, at, *width)?;
            if entry.size > LARGEST || deltas.len() >= MAX_DEPTH {
                return None;
            }
            let base = match entry.kind {
                COMMIT..=TAG => {
                    let mut text = Vec::new();
                    inflate(&entry, &mut text)?;
                    let found = (entry.kind, Arc::new(text));
                    cache.put((number, at), found.clone(), cost(&found.1));
                    break found;
                }
                OFS_DELTA => at.checked_sub(usize::try_from(entry.back).ok()?)?,
                REF_DELTA => pack.find(entry.key)?,
                _ => return None,
            };
            deltas.push((at, entry));
            at = base;
        };
        let (base, made) = passing;
        let mut is_passing = false;
        for (left, (at, entry)) in deltas.iter().enumerate().rev() {
            inflate(entry, delta)?;
            let on: &[u8] = if is_passing { base } else { &text };
            is_passing = left >= SPAN;
            if is_passing {
                apply(delta, on, made)?;
                std::mem::swap(base, made);
            } else {
                let mut new = Vec::new();
                apply(delta, on, &mut new)?;
                text = Arc::new(new);
                cache.put((number, *at), (kind, Arc::clone(&text)), cost(&text));
            }
        }
        Some((kind, text))
    }

    fn loose(&mut self, key: &[u8]) -> Option<Object> {
        let name: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let file = self.folders.iter().find_map(|folder| File::open(folder.join(&name[..2]).join(&name[2..])).ok())?;
        let mut text = Vec::new();
        // A longer object is cut off, and then not as long as its head says.
        ZlibDecoder::new(file).take(LARGEST as u64).read_to_end(&mut text).ok()?;
        let end = memchr::memchr(0, &text)?;
        let kind = (COMMIT..=TAG).find(|&kind| {
            let head = format!("{} {}", type_name(kind).unwrap_or_default(), text.len() - end - 1);
            text[..end] == *head.as_bytes()
        })?;
        text.drain(..=end);
        Some((kind, Arc::new(text)))
    }
}
