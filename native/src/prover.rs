//! `Prover`: proves the segments of one stream, each in one go.
//!
//! It accepts the usual case, which is by far the most frequent: a revision with trees and files that have no fault.
//! Their bases and references were received with them or before. Such a segment is proved as in `store/incoming.py` and
//! `store/proof.py`. At any other segment it stops, and has changed nothing. Python then checks that segment, decides,
//! and reports the result (`note`). So no error is named here, and nothing is accepted here that Python would refuse.

use pyo3::exceptions::{PyLookupError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::guard::run;
use crate::index::{EXTERNAL, NO_BASE, OUTSIDE};
use crate::segment::decode;
use crate::stored::Stored;
use crate::stream::{kib, Batch, Record, Source, Stop, Stream, NONE};
use crate::sys::file_of;
use crate::system::{System, NAMES};

/// The most bytes that one call decodes, and the most steps that it takes: about a second.
const DECODED: u64 = 256 << 20;
const STEPS: u64 = 4 << 20;

/// The value of a stored base in a column of bases: see `store/known_records.py`.
const STORED_BASE: u32 = -2i32 as u32;

/// Encode numbers as in an array of Python's.
fn numbers(py: Python<'_>, numbers: impl Iterator<Item = u32>) -> Bound<'_, PyBytes> {
    PyBytes::new(py, &numbers.flat_map(u32::to_ne_bytes).collect::<Vec<u8>>())
}

#[pyclass(module = "smartserver._native")]
pub struct Prover {
    state: Stream,
}

/// Columns of records as `UploadIndex` has them.
type Records<'py> = (
    (Bound<'py, PyBytes>, Vec<u32>),
    (Vec<Bound<'py, PyBytes>>, Vec<u32>),
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>),
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Vec<(usize, Bound<'py, PyBytes>)>),
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
        visit.call(self.state.stored.as_ref().map(Stored::python))
    }

    fn __clear__(&mut self) {
        self.state.sources.clear();
        self.state.stored = None;
    }

    /// Drop texts and marks, because nothing more is proved.
    fn forget(&mut self) {
        self.state.texts.clear();
        self.state.ancestry.forget();
    }

    /// `vcs`: one of `systems`. `cache`: bytes of texts to cache. `judges`: whether faults matter. `stored`: answers
    /// questions about the repository; `None` if that has no records.
    #[new]
    #[pyo3(signature = (vcs, cache, judges, stored=None))]
    fn new(vcs: &str, cache: usize, judges: bool, stored: Option<Py<PyAny>>) -> PyResult<Self> {
        let system = System::named(vcs, judges).ok_or_else(|| PyValueError::new_err(format!("not proved: {vcs}")))?;
        Ok(Prover { state: Stream::new(system, cache, stored.map(Stored::new)) })
    }

    /// The systems whose segments can be proved.
    #[classattr]
    fn systems() -> [&'static str; 4] {
        NAMES
    }

    #[getter]
    fn segments(&self) -> usize {
        self.state.segments.len()
    }

    #[getter]
    fn records(&self) -> usize {
        self.state.records.len()
    }

    /// Set where the following segments are read again: the descriptor of an open file, or a function that returns
    /// bytes by offset and size.
    fn read_from(&mut self, py: Python<'_>, source: Py<PyAny>) -> PyResult<()> {
        let source = match source.extract::<i32>(py) {
            Ok(descriptor) => Source::File(file_of(descriptor)?),
            Err(_) => Source::Python(source),
        };
        self.state.sources.push(source);
        Ok(())
    }

    /// Prove segments that are at `at` and behind it, up to one that Python must check. Return their number, the
    /// decoded bytes, the steps, and whether Python must check the next one. `decoded`, `steps`: the limits of both.
    fn prove(
        &mut self,
        py: Python<'_>,
        blocks: Vec<PyBackedBytes>,
        mut at: u64,
        decoded: u64,
        steps: u64,
    ) -> PyResult<(usize, u64, u64, bool)> {
        let state = &mut self.state;
        if let Some(stored) = &mut state.stored {
            stored.ask(py, &blocks, state.system.kinds(), &mut state.external)?;
        }
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
                // Python may find the segment to be a repeat, which it charges little for: each KiB decoded here counts
                // as a step.
                let given_up = (state.ancestry.steps - last_step) + ((left - state.room) >> 10);
                Ok((count, room - left, last_step - before + given_up, stop.is_some()))
            }
        }
    }

    /// Return the meta of the own record of a revision; `None` if it was not received.
    fn own_meta<'py>(&self, py: Python<'py>, revision: &[u8]) -> Option<Bound<'py, PyBytes>> {
        self.state.own_meta(revision).map(|meta| PyBytes::new(py, meta))
    }

    /// Add a segment that Python has checked, and which is at `at`. `rows`: depth, chain and lineage of each record.
    /// `bases`: the number of each base, negative if it is not in the stream. Without both, they follow from the
    /// stream.
    #[pyo3(signature = (block, at, rows=Vec::new(), bases=Vec::new()))]
    fn note(&mut self, block: &[u8], at: u64, rows: Vec<(u32, u32, u32)>, bases: Vec<i64>) -> PyResult<()> {
        let state = &mut self.state;
        let segment = decode(block, state.system.kinds()).ok_or_else(|| PyValueError::new_err("not a segment"))?;
        if state.revisions.find(segment.revision).is_some() {
            return Err(PyValueError::new_err("its revision came before"));
        }
        let count = segment.entries.len();
        if (!rows.is_empty() && rows.len() != count) || rows.len() != bases.len() {
            return Err(PyValueError::new_err("a row for each record, and a base"));
        }
        let parents = state.parents_of(&segment).map_err(|stop| match stop {
            Stop::Python(wrong) => wrong,
            _ => PyLookupError::new_err("a parent that cannot be looked for"),
        })?;
        let number = state.begin(&segment, parents, at, block.len());
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

    /// Return the revisions from a number on, with their parents. A parent is a number of the stream, or -1 minus the
    /// ordinal of a stored revision.
    fn revisions<'py>(&self, py: Python<'py>, first: u32) -> Vec<(Bound<'py, PyBytes>, Vec<i64>)> {
        let state = &self.state;
        let place = |&parent: &u32| match parent & OUTSIDE {
            0 => Some(i64::from(parent)),
            _ => state.ordinals[(parent ^ OUTSIDE) as usize].map(|ordinal| -1 - i64::from(ordinal)),
        };
        let row = |number: u32| {
            let at = number as usize;
            let named = &state.parents[state.parent_starts[at] as usize..state.parent_starts[at + 1] as usize];
            (PyBytes::new(py, state.revisions.key(number)), named.iter().filter_map(place).collect())
        };
        (first..state.segments.len() as u32).map(row).collect()
    }

    /// Return the records from a number on, in columns: names, and where they end; all metas, and their numbers;
    /// revisions, encodings, places, sizes; lengths and bases, and the keys of stored bases; depths, chains, lineages.
    /// All were proved here.
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
        let is_stored = |record: &Record| record.base != NO_BASE && record.base & EXTERNAL != 0;
        let base = |record: &Record| if is_stored(record) { STORED_BASE } else { record.base };
        let stored =
            records.iter().enumerate().filter(|(_, record)| is_stored(record)).map(|(place, record)| {
                (first + place, PyBytes::new(py, &state.external.key(record.base ^ EXTERNAL)[1..]))
            });
        let stored = stored.collect();
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
            (column(&|record| record.length), column(&base), stored),
            (
                column(&|record| u32::from(record.depth)),
                column(&|record| record.chain),
                column(&|record| record.lineage),
            ),
        )
    }

    /// Return the body of a pack's index, as `IndexBuilder` makes it. The pack has the segments from a number on, and
    /// this length and hash. `lineages`: those of its records, if Python knows better.
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

    /// Return the counts since the last call: frames decoded, their bytes, and those of the texts; texts hashed, and
    /// their bytes; reads, and their bytes.
    fn tally(&mut self) -> [u64; 7] {
        let state = &mut self.state;
        let (tally, hashed, reads) =
            (std::mem::take(&mut state.tally), std::mem::take(&mut state.hashed), std::mem::take(&mut state.reads));
        [tally.frames, tally.came, tally.made, hashed.0, hashed.1, reads.0, reads.1]
    }
}
