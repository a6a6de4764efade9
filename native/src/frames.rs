//! `Zstd`: frames without magic number for one thread of Python's, as `records/delta.py` makes and reads them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::limits::MAX_RECORD;
use crate::sys::{Reader, Writer};

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
        let frame = PyBytes::new(py, self.writer.write(&text, &base, level));
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
        PyBytes::new_with(py, length, |text| self.reader.read_into(&frame, text, &base).map_err(PyValueError::new_err))
    }
}
