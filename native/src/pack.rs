//! `PackBuilder`: makes a git pack of the segments of a pull, as `vcs/git/build.py` does.
//!
//! A thread takes the segments, so that they are decoded while more of them are received. Their frames are in a spool
//! file, from which a dropped text is decoded again. A record may be a delta of one written before.
//!
//! No error is named here. Python's twin reads a refused segment or record again, and raises the error.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::entries::{Failure, Maker};
use crate::guard::{failed, run};
use crate::sys::file_of;

/// Bytes of segments that may wait for the thread.
const QUEUED: usize = 8 << 20;

/// The time between two checks whether the user has interrupted a wait.
const LOOK: Duration = Duration::from_millis(100);

/// Return the error of a disk, with its number, by which Python knows its class.
fn disk(py: Python<'_>, wrong: &io::Error) -> PyErr {
    let number = wrong.raw_os_error().unwrap_or(0);
    let said = py.import("os").and_then(|os| os.call_method1("strerror", (number,))).and_then(|said| said.extract());
    PyOSError::new_err((number, said.unwrap_or_else(|_| wrong.to_string())))
}

/// The state that both threads share.
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    came: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    blocks: VecDeque<PyBackedBytes>,
    size: usize,
    /// True if no more segments follow. The maker ends when the queue is empty.
    is_closed: bool,
    /// True if the maker has ended.
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

/// Notes in the queue that the maker has ended, also by a panic.
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
            None => maker.check().and_then(|()| maker.flush()),
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
    /// The keys of the received objects, once the maker is dropped.
    came: HashSet<Box<[u8]>>,
    width: usize,
}

#[pymethods]
impl PackBuilder {
    /// `width`: bytes of a key. `spool` and `entries`: files of the caller, open for reading and writing. `outside`
    /// returns the text of an object of the repository.
    #[new]
    #[pyo3(signature = (width, spool, entries, outside, *, cache, level))]
    fn new(width: usize, spool: i32, entries: i32, outside: Py<PyAny>, cache: usize, level: u32) -> PyResult<Self> {
        let maker = Maker::new(width, file_of(spool)?, file_of(entries)?, outside, cache, level);
        let shared =
            Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new(), came: AtomicUsize::default() });
        let seen = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("pack".into()).spawn(move || work(maker, &seen))?;
        Ok(PackBuilder { shared, thread: Some(thread), maker: None, came: HashSet::new(), width })
    }

    /// The number of objects that were received so far.
    #[getter]
    fn objects(&self) -> usize {
        self.shared.came.load(Ordering::Relaxed)
    }

    /// Add a segment. Wait while too many are in the queue.
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

    /// Wait until the entries of all added segments are made.
    fn settle(&mut self, py: Python<'_>) -> PyResult<()> {
        self.shared.close(false);
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            py.detach(|| std::thread::sleep(Duration::from_millis(1)));
            py.check_signals()?;
        }
        self.join(py)
    }

    /// Write the pack to a file. Return its index and its hash.
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

    /// Tell whether an object was received. It is asked after `settle`, and after `abandon`.
    fn __contains__(&self, key: &[u8]) -> bool {
        let came = |maker: &Maker| maker.keys.find(key).is_some_and(|at| maker.records[at as usize].kind != 0);
        self.maker.as_ref().map_or_else(|| self.came.contains(key), came)
    }

    /// End the thread, and drop its data.
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
    /// Take the maker back from the thread, and raise the error that ended it early.
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
