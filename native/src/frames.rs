//! `Zstd`: frames without magic number for one thread of Python's, as `records/delta.py` makes and reads them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::limits::MAX_RECORD;
use crate::sys::{Reader, Writer};

/// Bytes from which other threads may go on meanwhile.
const LONG: usize = 64 << 10;

#[pyclass(module = "smartserver._native")]
pub struct Zstd {
    reader: Reader,
    writer: Writer,
}

#[pymethods]
impl Zstd {
    #[new]
    fn new() -> Self {
        Zstd { reader: Reader::new(), writer: Writer::new() }
    }

    /// The frame of a text.
    fn compress<'py>(
        &mut self,
        py: Python<'py>,
        text: PyBackedBytes,
        base: PyBackedBytes,
        level: i32,
    ) -> Bound<'py, PyBytes> {
        let writer = &mut self.writer;
        let frame = if text.len() + base.len() < LONG {
            writer.write(&text, &base, level)
        } else {
            py.detach(|| writer.write(&text, &base, level))
        };
        let frame = PyBytes::new(py, frame);
        self.writer.trim();
        frame
    }

    /// The text of so many bytes in a frame that was looked over.
    fn decompress<'py>(
        &mut self,
        py: Python<'py>,
        frame: &Bound<'py, PyAny>,
        length: usize,
        base: PyBackedBytes,
    ) -> PyResult<Bound<'py, PyBytes>> {
        // A view of a part of something, mostly.
        let frame: PyBackedBytes = match frame.extract() {
            Ok(frame) => frame,
            Err(_) => frame.call_method0("tobytes")?.extract()?,
        };
        if length > MAX_RECORD {
            return Err(PyValueError::new_err(format!("{length} bytes of text")));
        }
        let reader = &mut self.reader;
        PyBytes::new_with(py, length, |text| {
            let mut read = || reader.read_into(&frame, text, &base);
            let done = if length < LONG { read() } else { py.detach(read) };
            done.map_err(PyValueError::new_err)
        })
    }
}
