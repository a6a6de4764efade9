//! `Stored`: the repository's records on which a stream rests. Python is asked for them (`store/known_records.py`).

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};

use crate::keys::Keys;
use crate::segment::{decode, Kind};
use crate::system::name;
use crate::texts::Text;

/// The most stored revisions of a front; with more, Python checks the segment.
const FRONT_LIMIT: usize = 16;

/// The stored revisions on which a revision of the stream rests, sorted; `None` if they are too many.
pub type Front = Option<Arc<Vec<u32>>>;

/// Return the front of a revision, from its stored parents and the fronts of the others.
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
    /// The row of a record by the number of its name; `None` if the record is not stored.
    rows: HashMap<u32, Option<Row>>,
    /// Metas of records whose texts were asked for.
    metas: HashMap<u32, Vec<u8>>,
}

impl Stored {
    pub fn new(python: Py<PyAny>) -> Self {
        Stored { python, rows: HashMap::new(), metas: HashMap::new() }
    }

    pub fn python(&self) -> &Py<PyAny> {
        &self.python
    }

    /// Ask for the rows of all bases that some segments name, and of their records that may conflict with stored ones.
    /// It is one question, because each question waits for Python's lock.
    pub fn ask(&mut self, py: Python<'_>, blocks: &[PyBackedBytes], kinds: &[Kind], names: &mut Keys) -> PyResult<()> {
        let mut asked = Vec::new();
        for block in blocks {
            let Some(segment) = decode(block, kinds) else { break };
            let bases = segment.entries.iter().filter_map(|entry| entry.base.map(|key| (entry.kind, key)));
            let news = segment.entries.iter().filter(|entry| kinds[entry.kind as usize].may_conflict());
            for (kind, key) in bases.chain(news.map(|entry| (entry.kind, entry.key))) {
                let number = names.number(&name(kind, key));
                self.rows.entry(number).or_insert_with(|| {
                    asked.push((number, kind, key));
                    None
                });
            }
        }
        let keys = PyList::new(py, asked.iter().map(|&(_, kind, key)| (kind, PyBytes::new(py, key))))?;
        let found: Vec<Option<(u32, u32, u32, usize)>> =
            self.python.bind(py).call_method1("rows", (keys,))?.extract()?;
        for ((number, ..), row) in asked.into_iter().zip(found) {
            let row = row.map(|(depth, chain, lineage, length)| Row { depth, chain, lineage, length });
            self.rows.insert(number, row);
        }
        Ok(())
    }

    /// Return the row of a record that was asked for, by the number of its name.
    pub fn row(&self, number: u32) -> Option<Row> {
        self.rows.get(&number).copied().flatten()
    }

    /// Return the meta of a record whose text was asked for.
    pub fn known_meta(&self, number: u32) -> Option<&[u8]> {
        self.metas.get(&number).map(Vec::as_slice)
    }

    /// Return meta and text of a record, by its number and its name.
    pub fn record(&mut self, number: u32, name: &[u8]) -> PyResult<(Vec<u8>, Text)> {
        let (meta, text) = Python::attach(|py| -> PyResult<_> {
            let found = self.python.bind(py).call_method1("record", (name[0], PyBytes::new(py, &name[1..])))?;
            let (meta, text): (PyBackedBytes, PyBackedBytes) = found.extract()?;
            Ok((meta.to_vec(), Text::new(text.to_vec())))
        })?;
        self.metas.insert(number, meta.clone());
        Ok((meta, text))
    }

    /// Return the meta of a record that a revision of a front, or an ancestor, introduced; `None` if none did.
    pub fn meta_below(&self, front: &[u32], name: &[u8]) -> PyResult<Option<Vec<u8>>> {
        Python::attach(|py| {
            let asked = (front, name[0], PyBytes::new(py, &name[1..]));
            let found: Option<PyBackedBytes> = self.python.bind(py).call_method1("meta_below", asked)?.extract()?;
            Ok(found.map(|meta| meta.to_vec()))
        })
    }

    /// Tell whether a revision of a front, or an ancestor, introduced a record.
    pub fn is_below(&self, front: &[u32], kind: u8, key: &[u8]) -> PyResult<bool> {
        Python::attach(|py| {
            self.python.bind(py).call_method1("is_below", (front, kind, PyBytes::new(py, key)))?.extract()
        })
    }

    /// Return the ordinal of a revision.
    pub fn ordinal(&self, revision: &[u8]) -> PyResult<Option<u32>> {
        Python::attach(|py| self.python.bind(py).call_method1("ordinal", (PyBytes::new(py, revision),))?.extract())
    }
}
