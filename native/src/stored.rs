//! `Stored`: what the repository has of the records a stream rests on. Python is asked for it (`store/known_records.py`).

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};

use crate::keys::Keys;
use crate::segment::{decode, OF_HASHES};
use crate::texts::Text;

/// Stored revisions that a front names at most; with more, Python looks at the segment.
const FRONT_LIMIT: usize = 16;

/// The stored revisions that a revision of the stream rests on, sorted; none where they are too many.
pub type Front = Option<Arc<Vec<u32>>>;

/// The front of a revision, by the stored ones among its parents and the fronts of the others.
pub fn join<'a>(stored: &[u32], mut others: impl Iterator<Item = &'a Front> + Clone) -> Front {
    let first = others.clone().next();
    if let (true, Some(first)) = (stored.is_empty(), first) {
        if others.clone().all(|front| front == first) {
            return first.clone();
        }
    }
    let mut all = stored.to_vec();
    others.try_for_each(|front| front.as_ref().map(|named| all.extend_from_slice(named)))?;
    all.sort_unstable();
    all.dedup();
    (all.len() <= FRONT_LIMIT).then(|| Arc::new(all))
}

/// The lowest copy of a stored record.
#[derive(Clone, Copy)]
pub struct Row {
    pub depth: u32,
    pub chain: u32,
    pub lineage: u32,
    /// Bytes of its text.
    pub length: usize,
}

pub struct Stored {
    python: Py<PyAny>,
    /// By the number of a name: its row; none of a record that is not stored.
    rows: HashMap<u32, Option<Row>>,
    /// Types of records whose texts were asked for.
    types: HashMap<u32, u8>,
}

impl Stored {
    pub fn new(python: Py<PyAny>) -> Self {
        Stored { python, rows: HashMap::new(), types: HashMap::new() }
    }

    pub fn python(&self) -> &Py<PyAny> {
        &self.python
    }

    /// Ask for the rows of all bases that some segments name, in one go: each question waits for Python's lock.
    pub fn ask(&mut self, py: Python<'_>, blocks: &[PyBackedBytes], names: &mut Keys) -> PyResult<()> {
        let mut asked = Vec::new();
        for block in blocks {
            let Some(segment) = decode(block, &OF_HASHES) else { break };
            for key in segment.entries.iter().filter_map(|entry| entry.base) {
                let number = names.number(&[&[0], key].concat());
                self.rows.entry(number).or_insert_with(|| {
                    asked.push((number, key));
                    None
                });
            }
        }
        let keys = PyList::new(py, asked.iter().map(|(_, key)| PyBytes::new(py, key)))?;
        let found: Vec<Option<(u32, u32, u32, usize)>> =
            self.python.bind(py).call_method1("rows", (keys,))?.extract()?;
        for ((number, _), row) in asked.into_iter().zip(found) {
            let row = row.map(|(depth, chain, lineage, length)| Row { depth, chain, lineage, length });
            self.rows.insert(number, row);
        }
        Ok(())
    }

    /// The row of a record that was asked for, by the number of its name.
    pub fn row(&self, number: u32) -> Option<Row> {
        self.rows.get(&number).copied().flatten()
    }

    /// The type of a record whose text was asked for.
    pub fn known_type(&self, number: u32) -> Option<u8> {
        self.types.get(&number).copied()
    }

    /// Type and text of a record, by the number and the bytes of its key.
    pub fn record(&mut self, number: u32, key: &[u8]) -> PyResult<(u8, Text)> {
        let (kind, text) = Python::attach(|py| -> PyResult<_> {
            let found = self.python.bind(py).call_method1("record", (PyBytes::new(py, key),))?;
            let (meta, text): (PyBackedBytes, PyBackedBytes) = found.extract()?;
            Ok((type_of(&meta), Text::new(text.to_vec())))
        })?;
        self.types.insert(number, kind);
        Ok((kind, text))
    }

    /// The type of a record that one of some revisions, or an ancestor of theirs, brought; none where none did.
    pub fn type_below(&self, front: &[u32], key: &[u8]) -> PyResult<Option<u8>> {
        Python::attach(|py| {
            let found = self.python.bind(py).call_method1("meta_below", (front, PyBytes::new(py, key)))?;
            let meta: Option<PyBackedBytes> = found.extract()?;
            Ok(meta.map(|meta| type_of(&meta)))
        })
    }

    /// Tell whether one of some revisions, or an ancestor of theirs, brought a record.
    pub fn is_below(&self, front: &[u32], key: &[u8]) -> PyResult<bool> {
        Python::attach(|py| self.python.bind(py).call_method1("is_below", (front, PyBytes::new(py, key)))?.extract())
    }

    /// The ordinal of a revision.
    pub fn ordinal(&self, revision: &[u8]) -> PyResult<Option<u32>> {
        Python::attach(|py| self.python.bind(py).call_method1("ordinal", (PyBytes::new(py, revision),))?.extract())
    }
}

/// 0: a meta that is no type.
fn type_of(meta: &[u8]) -> u8 {
    match *meta {
        [kind] => kind,
        _ => 0,
    }
}
