//! `Zstd`: makes and reads frames without magic number as `records/delta.py` does, for one thread of Python's.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::limits::MAX_RECORD;
use crate::sys::{Reader, Writer};

/// From so many bytes on, other threads of Python's may run meanwhile.
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

    /// Return the frame of a text.
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

    /// Return the text of `length` bytes in a frame that was checked.
    fn decompress<'py>(
        &mut self,
        py: Python<'py>,
        frame: &Bound<'py, PyAny>,
        length: usize,
        base: PyBackedBytes,
    ) -> PyResult<Bound<'py, PyBytes>> {
        // Mostly, this is a view of a part of a buffer.
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
