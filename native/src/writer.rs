//! `SegmentWriter`: makes the segments that a client sends, by the rules of `records/bases.py`, with other frames in bulk.
//!
//! A segment is made at once (`parts`), or by a thread of its own (`put`) while Python reads the records of the next
//! one.

use std::collections::VecDeque;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};

use crate::encoder::{Encoder, Kind, Made, Revision, Sending, Sent};
use crate::guard::{failed, run};
use crate::introduced::HeldObjects;

/// Bytes of texts that may wait for the thread.
const WAITING: usize = 8 << 20;

/// Bytes that a record takes besides its text.
const RECORD: usize = 1 << 10;

/// Records, and the time of a wait, between two checks whether the user has interrupted it.
const LOOK: usize = 64;
const LOOK_TIME: Duration = Duration::from_millis(100);

/// Bytes of texts that are given to the thread at once: each message costs a change between threads.
const GATHERED: usize = 256 << 10;

type Job = (Revision, Vec<Sending>);

/// The thread that makes segments, and its queues.
struct Making {
    thread: JoinHandle<Encoder>,
    jobs: Sender<Vec<Job>>,
    made: Mutex<Receiver<Vec<PyResult<Made>>>>,
    /// The sizes of the segments that are not made yet.
    waiting: VecDeque<usize>,
    /// The last of these, which the thread does not have yet, and their size.
    gathered: Vec<Job>,
    gathered_size: usize,
}

impl Making {
    fn put(&mut self, job: Job, size: usize) {
        self.waiting.push_back(size);
        self.gathered.push(job);
        self.gathered_size += size;
        if self.gathered_size >= GATHERED {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if !self.gathered.is_empty() {
            // If the thread has ended, the next receive notices it.
            self.jobs.send(std::mem::take(&mut self.gathered)).ok();
            self.gathered_size = 0;
        }
    }
}

#[pyclass(module = "smartserver._native")]
pub struct SegmentWriter {
    /// `None` while the thread has it.
    encoder: Option<Encoder>,
    making: Option<Making>,
    /// Segments that the thread has made.
    made: Vec<Made>,
    /// The error that ended the thread.
    failure: Option<PyErr>,
}

#[pymethods]
impl SegmentWriter {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(encoder) = &self.encoder {
            visit.call(&encoder.fetch)?;
            visit.call(&encoder.hunks)?;
        }
        Ok(())
    }

    fn __clear__(&mut self) {
        if let Some(encoder) = &mut self.encoder {
            encoder.fetch = None;
            encoder.hunks = None;
        }
    }

    #[new]
    #[pyo3(signature = (kinds, *, bulk, texts, cache=128 << 20, hunks=None))]
    fn new(
        kinds: Vec<Bound<'_, PyAny>>,
        bulk: bool,
        texts: Py<PyAny>,
        cache: usize,
        hunks: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let kinds = kinds.iter().map(Kind::of).collect::<PyResult<_>>()?;
        let encoder = Encoder::new(kinds, bulk, texts, cache, hunks);
        Ok(SegmentWriter { encoder: Some(encoder), making: None, made: Vec::new(), failure: None })
    }

    /// Return the whole segment of a revision that introduced `items`.
    fn segment<'py>(
        &mut self,
        py: Python<'py>,
        revision: PyBackedBytes,
        parents: Vec<(PyBackedBytes, bool)>,
        items: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        PyBytes::new(py, b"").call_method1("join", (self.parts(py, revision, parents, items)?,))
    }

    /// Return the same as `segment` in parts: the frames of texts in parts are not joined.
    fn parts<'py>(
        &mut self,
        py: Python<'py>,
        revision: PyBackedBytes,
        parents: Vec<(PyBackedBytes, bool)>,
        items: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let revision = Revision { id: revision, parents };
        let encoder = self.encoder()?;
        let mut made = encoder.begin(&revision);
        for (number, item) in items.try_iter()?.enumerate() {
            if number % LOOK == 0 {
                py.check_signals()?;
            }
            let item = Sending::of(&item?)?;
            run(py, || encoder.write(&revision, item, &mut made))??;
        }
        encoder.packer.count(py)?;
        joined(py, made.finish(&revision)?)
    }

    /// Let a thread make a segment. Wait while too many texts wait for the thread.
    fn put(
        &mut self,
        py: Python<'_>,
        revision: PyBackedBytes,
        parents: Vec<(PyBackedBytes, bool)>,
        items: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let items = match items.cast::<HeldObjects>() {
            Ok(objects) => std::mem::take(&mut objects.borrow_mut().items),
            Err(_) => items.try_iter()?.map(|item| Sending::of(&item?)).collect::<PyResult<_>>()?,
        };
        let size = RECORD + items.iter().map(|item| item.size() + RECORD).sum::<usize>();
        if self.failure.is_some() {
            return Ok(());
        }
        if let (None, Some(encoder)) = (&self.making, self.encoder.take()) {
            self.making = Some(start(encoder)?);
        }
        if let Some(making) = &mut self.making {
            making.put((Revision { id: revision, parents }, items), size);
        }
        self.receive(py, WAITING)
    }

    /// Return the parts of segments that were put and are made, in order. If one failed, raise its error after those
    /// before it. `wait`: wait for all of them.
    fn take<'py>(&mut self, py: Python<'py>, wait: bool) -> PyResult<Vec<Bound<'py, PyList>>> {
        self.receive(py, if wait { 0 } else { WAITING })?;
        if wait {
            self.join(py)?;
        }
        match self.failure.take() {
            Some(failure) if self.made.is_empty() => Err(failure),
            failure => {
                self.failure = failure;
                self.made.drain(..).map(|made| joined(py, made)).collect()
            }
        }
    }

    /// End the thread after its current batch, and drop all segments. The writer must not be used afterwards.
    fn abandon(&mut self, py: Python<'_>) {
        if let Some(Making { thread, jobs, made, .. }) = self.making.take() {
            // The thread makes the jobs that are queued as long as there is a receiver.
            drop((jobs, made));
            py.detach(|| thread.join()).ok();
        }
        self.encoder = None;
        self.made.clear();
    }
}

impl SegmentWriter {
    fn encoder(&mut self) -> PyResult<&mut Encoder> {
        self.encoder.as_mut().ok_or_else(ended)
    }

    /// Receive the segments that are made. If more than `most` bytes of texts are waiting, wait for half of them.
    fn receive(&mut self, py: Python<'_>, mut most: usize) -> PyResult<()> {
        let Some(making) = &mut self.making else { return Ok(()) };
        let mut size: usize = making.waiting.iter().sum();
        if size > most {
            making.flush();
            most /= 2;
        }
        let receiver = making.made.get_mut().map_err(|_| ended())?;
        loop {
            let found = if size > most {
                let receiver = &mut *receiver;
                py.detach(move || receiver.recv_timeout(LOOK_TIME))
            } else {
                receiver.recv_timeout(Duration::ZERO)
            };
            match found {
                Ok(batch) => {
                    for made in batch {
                        match made {
                            Ok(made) => {
                                size -= making.waiting.pop_front().unwrap_or(0);
                                self.made.push(made);
                            }
                            Err(failure) => {
                                self.failure = Some(failure);
                                return self.join(py);
                            }
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) if size > most => py.check_signals()?,
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => {
                    self.join(py)?;
                    return Err(ended());
                }
            }
        }
    }

    /// End the thread, and take its encoder back.
    fn join(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(Making { thread, jobs, .. }) = self.making.take() else { return Ok(()) };
        drop(jobs);
        let mut encoder = py.detach(|| thread.join()).map_err(|panic| failed(&*panic))?;
        encoder.packer.count(py)?;
        self.encoder = Some(encoder);
        Ok(())
    }
}

fn ended() -> PyErr {
    PyRuntimeError::new_err("nothing is made any more")
}

fn start(mut encoder: Encoder) -> PyResult<Making> {
    let (jobs, todo) = channel::<Vec<Job>>();
    let (done, made) = channel();
    let work = move || {
        // The thread ends after the last job, after an error, or if nobody receives its results.
        for batch in todo {
            let mut made = Vec::with_capacity(batch.len());
            let mut is_last = false;
            for (revision, items) in batch {
                let segment = encoder.segment(&revision, items);
                is_last = segment.is_err();
                made.push(segment);
                if is_last {
                    break;
                }
            }
            if done.send(made).is_err() || is_last {
                break;
            }
        }
        encoder
    };
    let thread = std::thread::Builder::new().name("segments".into()).spawn(work)?;
    let (waiting, gathered) = (VecDeque::new(), Vec::new());
    Ok(Making { thread, jobs, made: Mutex::new(made), waiting, gathered, gathered_size: 0 })
}

/// Return the parts of a segment. The bytes between texts in parts are joined into one part.
fn joined<'py>(py: Python<'py>, made: Made) -> PyResult<Bound<'py, PyList>> {
    let parts = PyList::empty(py);
    let mut before: Option<Vec<u8>> = Some(made.head);
    for each in made.sent {
        match each {
            Sent::Part(part) => parts.append(part)?,
            Sent::Joined(frames) => {
                let before = before.take().unwrap_or_default();
                let size = before.len() + frames.iter().map(|frame| frame.len()).sum::<usize>();
                if size == 0 {
                    continue;
                }
                parts.append(PyBytes::new_with(py, size, |mut out| {
                    for piece in std::iter::once(&before[..]).chain(frames.iter().map(|frame| &frame[..])) {
                        let (now, rest) = out.split_at_mut(piece.len());
                        now.copy_from_slice(piece);
                        out = rest;
                    }
                    Ok(())
                })?)?;
            }
        }
    }
    Ok(parts)
}
