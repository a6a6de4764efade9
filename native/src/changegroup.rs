//! `ChangegroupWriter`: makes Mercurial's changegroup of the segments of a clone, as `vcs/hg/insert.py` does.
//!
//! It takes no record with a base that was not received before. Whatever it does not take, Python does.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyTuple};

use crate::frame::{apply_hunks, decompress, hunks_in, read_hunk, Tally};
use crate::guard::run;
use crate::hg::{both, differing_lines, has_key, path_of, CHANGESET, FILE, MANIFEST, NODE_BYTES, NULL};
use crate::keys::Keys;
use crate::segment::{decode, HUNKS, ZSTD_HUNKS};
use crate::sys::{file_of, Reader};
use crate::system::{name, HG_KINDS};
use crate::texts::{Text, Texts};

/// Bytes of texts that are cached as bases.
const CACHE: usize = 64 << 20;

/// Differing lines of at most so many bytes are not compared further.
const FEW: usize = 512;

/// The least bytes of a piece, unless it is the last.
const PIECE: usize = 64 << 10;

const NO_BASE: u32 = u32::MAX;

/// A received record.
struct Row {
    /// The place of its frame in the file.
    at: u64,
    frame_length: usize,
    length: usize,
    encoding: u8,
    base: u32,
    meta: Box<[u8]>,
    /// The first revision that introduced it.
    revision: u32,
}

/// A part of the changegroup.
enum Step {
    /// A record, and the changeset that introduced it.
    Record(u32, u32),
    /// The path of the following records, which is in the key of a record.
    Path(u32),
    End,
}

#[pyclass(module = "smartserver._native")]
pub struct ChangegroupWriter {
    /// The received segments.
    file: File,
    size: u64,
    /// The kinds and keys of the records, and the records in the same order.
    names: Keys,
    rows: Vec<Row>,
    revisions: Keys,
    /// The further revisions that introduced a record.
    copies: HashMap<u32, Vec<u32>>,
    steps: std::vec::IntoIter<Step>,
    texts: Texts,
    reader: Reader,
    tally: Tally,
}

#[pymethods]
impl ChangegroupWriter {
    /// `descriptor`: of the file to which the segments are written.
    #[new]
    fn new(descriptor: i32) -> PyResult<Self> {
        Ok(ChangegroupWriter {
            file: file_of(descriptor)?,
            size: 0,
            names: Keys::default(),
            rows: Vec::new(),
            revisions: Keys::default(),
            copies: HashMap::new(),
            steps: Vec::new().into_iter(),
            texts: Texts::new(CACHE),
            reader: Reader::new(),
            tally: Tally::default(),
        })
    }

    #[getter]
    fn records(&self) -> usize {
        self.rows.len()
    }

    /// Take the next segment of the file, and return its revision and parents. If Python must take it, return `None`;
    /// nothing else may be asked then.
    fn add<'py>(
        &mut self,
        py: Python<'py>,
        block: PyBackedBytes,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyTuple>)>> {
        let Some((revision, parents)) = run(py, || self.take(&block))? else { return Ok(None) };
        let parents: Vec<_> = parents.into_iter().map(|parent| PyBytes::new(py, parent)).collect();
        Ok(Some((PyBytes::new(py, revision), PyTuple::new(py, parents)?)))
    }

    /// Return the row of a received changeset. Raise ValueError if Python must make it.
    fn changeset<'py>(&mut self, py: Python<'py>, revision: PyBackedBytes) -> PyResult<Bound<'py, PyBytes>> {
        let made = run(py, || self.changeset_row(&revision))?;
        self.made(py, made)
    }

    /// Begin the changegroup of some changesets, after the changesets themselves.
    fn begin(&mut self, py: Python<'_>, wanted: Vec<PyBackedBytes>) -> PyResult<()> {
        self.steps = run(py, || self.steps_of(&wanted))?.into_iter();
        Ok(())
    }

    /// Return the next bytes of the changegroup, empty after its end. Raise ValueError if Python must make the rest.
    fn piece<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let made = run(py, || self.next_bytes())?;
        self.made(py, made)
    }
}

/// The reason why nothing more is made.
enum Stop {
    /// Python must look at a record.
    Python,
    Error(PyErr),
}

impl From<PyErr> for Stop {
    fn from(error: PyErr) -> Self {
        Stop::Error(error)
    }
}

impl ChangegroupWriter {
    /// Return made bytes to Python.
    fn made<'py>(&mut self, py: Python<'py>, made: Result<Vec<u8>, Stop>) -> PyResult<Bound<'py, PyBytes>> {
        self.tally.count(py)?;
        match made {
            Ok(made) => Ok(PyBytes::new(py, &made)),
            Err(Stop::Python) => Err(PyValueError::new_err("left to Python")),
            Err(Stop::Error(error)) => Err(error),
        }
    }

    fn changeset_row(&mut self, revision: &[u8]) -> Result<Vec<u8>, Stop> {
        let number = self.names.find(&name(CHANGESET, revision)).ok_or(Stop::Python)?;
        let link = self.revisions.find(revision).ok_or(Stop::Python)?;
        let mut out = Vec::new();
        self.add_row(number, link, &mut out)?;
        Ok(out)
    }

    /// Take a segment, and return its revision and parents; `None` if Python must take it.
    fn take<'a>(&mut self, block: &'a [u8]) -> Option<(&'a [u8], Vec<&'a [u8]>)> {
        let segment = decode(block, &HG_KINDS)?;
        let revision = self.revisions.number(segment.revision);
        let mut at = self.size + segment.frames_at as u64;
        for entry in &segment.entries {
            if entry.kind == FILE {
                path_of(entry.key)?;
            }
            let base = match entry.base {
                Some(base) => self.names.find(&name(entry.kind, base))?,
                None => NO_BASE,
            };
            let number = self.names.number(&name(entry.kind, entry.key));
            if (number as usize) < self.rows.len() {
                self.copies.entry(number).or_default().push(revision);
            } else {
                self.rows.push(Row {
                    at,
                    frame_length: entry.frame_length,
                    length: entry.length,
                    encoding: entry.encoding,
                    base,
                    meta: entry.meta.into(),
                    revision,
                });
            }
            at += entry.frame_length as u64;
        }
        self.size += block.len() as u64;
        self.names.find(&name(CHANGESET, segment.revision))?;
        Some((segment.revision, segment.parents.iter().map(|parent| parent.id).collect()))
    }

    fn steps_of(&self, wanted: &[PyBackedBytes]) -> Vec<Step> {
        let wanted: HashSet<u32> = wanted.iter().filter_map(|node| self.revisions.find(node)).collect();
        let mut steps = Vec::with_capacity(self.rows.len());
        let mut files: BTreeMap<&[u8], Vec<Step>> = BTreeMap::new();
        let mut manifests = Vec::new();
        for (number, row) in (0u32..).zip(&self.rows) {
            let others = self.copies.get(&number).into_iter().flatten();
            let mut introduced = std::iter::once(&row.revision).chain(others);
            let Some(&link) = introduced.find(|&revision| wanted.contains(revision)) else { continue };
            let step = Step::Record(number, link);
            match self.names.key(number)[0] {
                CHANGESET => (),
                MANIFEST => manifests.push(step),
                _ => files.entry(self.path(number)).or_insert_with(|| vec![Step::Path(number)]).push(step),
            }
        }
        steps.push(Step::End);
        steps.append(&mut manifests);
        steps.extend([Step::End, Step::End]); // There are no manifests of folders.
        for (_, mut of_file) in files {
            steps.append(&mut of_file);
            steps.push(Step::End);
        }
        steps.push(Step::End);
        steps
    }

    /// Return the path of a file's version.
    fn path(&self, number: u32) -> &[u8] {
        let name = self.names.key(number);
        &name[1..name.len() - NODE_BYTES - 1]
    }

    fn next_bytes(&mut self) -> Result<Vec<u8>, Stop> {
        let mut out = Vec::with_capacity(2 * PIECE);
        while out.len() < PIECE {
            match self.steps.next() {
                None => break,
                Some(Step::End) => out.extend_from_slice(&[0; 4]),
                Some(Step::Path(number)) => {
                    let path = self.path(number);
                    out.extend_from_slice(&(4 + path.len() as u32).to_be_bytes());
                    out.extend_from_slice(path);
                }
                Some(Step::Record(number, link)) => self.add_row(number, link, &mut out)?,
            }
        }
        Ok(out)
    }

    fn add_row(&mut self, number: u32, link: u32, out: &mut Vec<u8>) -> Result<(), Stop> {
        let (text, hunks) = self.text(number).ok_or(Stop::Python)?;
        let row = &self.rows[number as usize];
        let name = self.names.key(number);
        let (first, second) = both(&row.meta).ok_or(Stop::Python)?;
        // A changeset is no version of its parent: Mercurial itself sends it whole, too.
        let base = if name[0] == CHANGESET { NULL } else { first };
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        for node in [&name[name.len() - NODE_BYTES..], first, second, base, self.revisions.key(link)] {
            out.extend_from_slice(node);
        }
        out.extend_from_slice(&[0; 2]); // There are no flags.
        if base == NULL {
            add_hunk(out, 0, 0, &text);
        } else {
            let on = [&name[..name.len() - NODE_BYTES], base].concat();
            let on = self.names.find(&on).ok_or(Stop::Python)?;
            if on == row.base && is_in_hunks(row) {
                let size = self.rows[on as usize].length;
                let hunks = hunks.or_else(|| self.hunks(number)).ok_or(Stop::Python)?;
                add_hunks(out, &hunks, size).ok_or(Stop::Python)?;
            } else {
                let (on, _) = self.text(on).ok_or(Stop::Python)?;
                add_lines(out, &text, &on)?;
            }
        }
        let size = (out.len() - start) as u32;
        out[start..start + 4].copy_from_slice(&size.to_be_bytes());
        Ok(())
    }

    /// Return the text of a record, which matches its key, and its encoded hunks if they were just read.
    fn text(&mut self, number: u32) -> Option<(Text, Option<Vec<u8>>)> {
        let mut chain = Vec::new();
        let mut at = number;
        let mut text = loop {
            if let Some(text) = self.texts.get(at) {
                break text;
            }
            chain.push(at);
            at = self.rows[at as usize].base;
            if at == NO_BASE {
                break Text::default();
            }
        };
        let mut hunks = None;
        for at in chain.into_iter().rev() {
            let row = &self.rows[at as usize];
            let (made, read) = if is_in_hunks(row) {
                let length = row.length;
                let hunks = self.hunks(at)?;
                (apply_hunks(&hunks, length, &text)?, Some(hunks))
            } else {
                let frame = self.frame(row)?;
                (decompress(&mut self.reader, &mut self.tally, row.encoding, &frame, row.length, &text)?, None)
            };
            let row = &self.rows[at as usize];
            let name = self.names.key(at);
            if !has_key(name[0], &name[1..], &row.meta, &made) {
                return None;
            }
            (text, hunks) = (Arc::new(made), read);
            self.texts.put(at, &text);
        }
        Some((text, hunks))
    }

    /// Return the encoded hunks of a record.
    fn hunks(&mut self, number: u32) -> Option<Vec<u8>> {
        let row = &self.rows[number as usize];
        let frame = self.frame(row)?;
        Some(hunks_in(&mut self.reader, &mut self.tally, row.encoding, &frame)?.into_owned())
    }

    fn frame(&self, row: &Row) -> Option<Vec<u8>> {
        let mut frame = vec![0; row.frame_length];
        self.file.read_exact_at(&mut frame, row.at).ok()?;
        Some(frame)
    }
}

fn is_in_hunks(row: &Row) -> bool {
    matches!(row.encoding, HUNKS | ZSTD_HUNKS)
}

/// Add a hunk in Mercurial's own form.
fn add_hunk(out: &mut Vec<u8>, start: usize, end: usize, added: &[u8]) {
    for number in [start, end, added.len()] {
        out.extend_from_slice(&(number as u32).to_be_bytes());
    }
    out.extend_from_slice(added);
}

/// Add encoded hunks on a base of `size` bytes in Mercurial's own form.
fn add_hunks(out: &mut Vec<u8>, hunks: &[u8], size: usize) -> Option<()> {
    let (at, mut end) = (&mut 0, 0);
    while *at < hunks.len() {
        let hunk = read_hunk(hunks, at, end, size)?;
        add_hunk(out, hunk.start, hunk.end, hunk.added);
        end = hunk.end;
    }
    Some(())
}

/// Add the delta from `base` to `text` by whole lines. If the lines in which they differ are many, Mercurial compares
/// these.
fn add_lines(out: &mut Vec<u8>, text: &[u8], base: &[u8]) -> PyResult<()> {
    let (start, end, base_end) = differing_lines(text, base);
    let (piece, base_piece) = (&text[start..end], &base[start..base_end]);
    if piece.len() <= FEW || base_piece.len() <= FEW {
        if !piece.is_empty() || !base_piece.is_empty() {
            add_hunk(out, start, base_end, piece);
        }
        return Ok(());
    }
    let found: PyBackedBytes = Python::attach(|py| {
        let pieces = (PyBytes::new(py, piece), PyBytes::new(py, base_piece));
        py.import("smartserver.vcs.hg.compat")?.call_method1("line_delta", pieces)?.extract()
    })?;
    let mut rest = &found[..];
    while !rest.is_empty() {
        let (numbers, after) = rest.split_at(12);
        let number = |at: usize| u32::from_be_bytes(numbers[at..at + 4].try_into().expect("four bytes")) as usize;
        let (added, after) = after.split_at(number(8));
        add_hunk(out, number(0) + start, number(4) + start, added);
        rest = after;
    }
    Ok(())
}
