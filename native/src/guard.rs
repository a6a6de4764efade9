//! `run`: runs work without Python's lock. A panic becomes a Python error.

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Run work without Python's lock. The data that it used must not be used after an error.
pub fn run<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(|panic| failed(&*panic))
}

/// Return the error with the message of a panic.
pub fn failed(panic: &(dyn Any + Send)) -> PyErr {
    let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    PyRuntimeError::new_err(format!("a bug in the native parts: {}", said.unwrap_or("a panic")))
}
