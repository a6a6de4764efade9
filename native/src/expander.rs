//! `SegmentExpander`: decompresses the frames of segments that need no base, as `store/bulk.py` does.

use std::borrow::Cow;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::frame::{decompress, hunks_in, Tally};
use crate::guard::run;
use crate::keys::Keys;
use crate::limits::{MAX_ID, MAX_META};
use crate::segment::{decode, Kind, FULL_KEY, HUNKS, STORED, ZSTD, ZSTD_HUNKS};
use crate::sys::Reader;
use crate::system::name;
use crate::varint;

const LARGEST: usize = 4 << 20;
const AT_ONCE: usize = 16 << 20;
const REMEMBERED: usize = 200_000;

#[pyclass(module = "smartserver._native")]
pub struct SegmentExpander {
    kinds: Vec<Kind>,
    largest: usize,
    at_once: usize,
    remembered: usize,
    /// The first bytes of a segment whose end was not read yet.
    begun: Vec<u8>,
    /// The bytes of a large segment that were not read yet.
    passing: u64,
    /// The records that were returned before.
    sent: Keys,
    reader: Reader,
    tally: Tally,
}

#[pymethods]
impl SegmentExpander {
    #[new]
    #[pyo3(signature = (kinds, *, largest=LARGEST, at_once=AT_ONCE, remembered=REMEMBERED))]
    fn new(kinds: Vec<Bound<'_, PyAny>>, largest: usize, at_once: usize, remembered: usize) -> PyResult<Self> {
        Ok(SegmentExpander {
            kinds: kinds.iter().map(Kind::of).collect::<PyResult<_>>()?,
            largest,
            at_once,
            remembered,
            begun: Vec::new(),
            passing: 0,
            sent: Keys::default(),
            reader: Reader::new(),
            tally: Tally::default(),
        })
    }

    /// Take the next bytes of the stream, and return all segments that are whole.
    fn feed<'py>(&mut self, py: Python<'py>, content: PyBackedBytes, is_last: bool) -> PyResult<Bound<'py, PyBytes>> {
        let made = run(py, || self.expanded(&content, is_last))?;
        self.tally.count(py)?;
        Ok(PyBytes::new(py, &made))
    }
}

impl SegmentExpander {
    fn expanded(&mut self, content: &[u8], is_last: bool) -> Vec<u8> {
        let begun = std::mem::take(&mut self.begun);
        let content = if begun.is_empty() { Cow::Borrowed(content) } else { Cow::Owned([&begun, content].concat()) };
        let mut out = Vec::new();
        let mut expanded = 0;
        let mut rest = &content[..];
        while !rest.is_empty() {
            if self.passing == 0 {
                let Some(size) = size_of(rest) else { break };
                if size > self.largest as u64 || expanded >= self.at_once {
                    self.passing = size;
                } else if size > rest.len() as u64 {
                    break;
                } else {
                    let (segment, after) = rest.split_at(size as usize);
                    let made = self.expand(segment);
                    let made = made.as_deref().unwrap_or(segment);
                    out.extend_from_slice(made);
                    expanded += made.len();
                    rest = after;
                }
            }
            let (passed, after) = rest.split_at(rest.len().min(usize::try_from(self.passing).unwrap_or(usize::MAX)));
            out.extend_from_slice(passed);
            self.passing -= passed.len() as u64;
            rest = after;
        }
        if is_last {
            out.extend_from_slice(rest);
        } else {
            self.begun = rest.to_vec();
        }
        out
    }

    /// Return an expanded segment; `None` if it is sent unchanged.
    fn expand(&mut self, content: &[u8]) -> Option<Vec<u8>> {
        let segment = decode(content, &self.kinds)?;
        let mut room = self.largest;
        let mut headers = Vec::new();
        let mut frames: Vec<Cow<'_, [u8]>> = Vec::with_capacity(segment.entries.len());
        let mut at = segment.frames_at;
        for entry in &segment.entries {
            let frame = &content[at..at + entry.frame_length];
            at += entry.frame_length;
            let place = &mut (entry.header + 2);
            varint::read_bytes(content, place, MAX_ID)?;
            varint::read_bytes(content, place, MAX_META)?;
            let named = &content[entry.header + 2..*place];
            let tag = *place;
            if varint::read(content, place)? == FULL_KEY {
                varint::read_bytes(content, place, MAX_ID)?;
            }
            let base = &content[tag..*place];
            if entry.key != segment.revision && self.sent.find(&name(entry.kind, entry.key)).is_some() {
                headers.extend_from_slice(&[entry.kind, STORED]);
                headers.extend_from_slice(named);
                headers.extend_from_slice(&[0, 0, 0]); // No base, no text, no frame.
                headers.extend_from_slice(entry.check);
                continue;
            }
            let (encoding, body) = self.body(entry.encoding, frame, entry.base.is_some(), entry.length, room)?;
            room = room.checked_sub(body.len())?;
            headers.extend_from_slice(&[entry.kind, encoding]);
            headers.extend_from_slice(named);
            headers.extend_from_slice(base);
            varint::write(&mut headers, entry.length as u64);
            varint::write(&mut headers, body.len() as u64);
            headers.extend_from_slice(entry.check);
            frames.push(body);
        }
        if self.sent.len() < self.remembered {
            for entry in &segment.entries {
                self.sent.number(&name(entry.kind, entry.key));
            }
        }
        let begin = &mut 0;
        varint::read(content, begin)?;
        let first = &content[*begin..segment.entries.first().map_or(segment.frames_at, |entry| entry.header)];
        let size = first.len() + headers.len() + frames.iter().map(|frame| frame.len()).sum::<usize>();
        let mut out = Vec::with_capacity(size + 9);
        varint::write(&mut out, size as u64);
        out.extend_from_slice(first);
        out.extend_from_slice(&headers);
        frames.iter().for_each(|frame| out.extend_from_slice(frame));
        Some(out)
    }

    /// Return the encoding and the bytes with which a frame is sent; `None` if its segment is sent unchanged.
    fn body<'a>(
        &mut self,
        encoding: u8,
        frame: &'a [u8],
        has_base: bool,
        length: usize,
        room: usize,
    ) -> Option<(u8, Cow<'a, [u8]>)> {
        let body = match encoding {
            ZSTD_HUNKS => {
                if varint::read(frame, &mut 0)? > room as u64 {
                    return None;
                }
                (HUNKS, hunks_in(&mut self.reader, &mut self.tally, encoding, frame)?)
            }
            ZSTD if !has_base && length <= room => {
                let text = decompress(&mut self.reader, &mut self.tally, encoding, frame, length, b"")?;
                (STORED, Cow::Owned(text))
            }
            _ => (encoding, Cow::Borrowed(frame)),
        };
        Some(body)
    }
}

/// Return the bytes of the segment at the start of `rest`; `None` if its length is cut off, `u64::MAX` if it is malformed.
fn size_of(rest: &[u8]) -> Option<u64> {
    let head = &rest[..rest.len().min(varint::MAX_BYTES)];
    if head.len() < varint::MAX_BYTES && head.iter().all(|byte| byte & 0x80 != 0) {
        return None;
    }
    let at = &mut 0;
    Some(varint::read(head, at).map_or(u64::MAX, |length| length + *at as u64))
}
