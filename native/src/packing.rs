//! `Packer`: makes the frames of a push, at the levels of `records/delta.py`; those on a base in bulk by its own matches.

use std::sync::Arc;
use std::time::Instant;

use pyo3::prelude::*;

use crate::delta::Ends;
use crate::limits::{MAX_BASED, MIN_BASE};
use crate::matcher::Matcher;
use crate::meters;
use crate::segment::{HUNKS, STORED, ZSTD, ZSTD_HUNKS};
use crate::sys::{Assembler, Writer};
use crate::texts::Bytes;
use crate::varint;

pub const LEVEL: i32 = 9;
pub const BULK_LEVEL: i32 = 5;
const LARGE_LEVEL: i32 = 3;
const LARGE: usize = 64 << 10;
const HUNKS_LEVEL: i32 = 3;
const LEAST_PACKED: usize = 256;
const PROBE_LEVEL: i32 = 1;
const PROBE: usize = 64 << 10;
const PROBED: usize = 128 << 10;

/// Up to so many bytes of base and text together, their matches are found here, which takes four times as many bytes.
const NEAR: usize = 8 << 20;

pub struct Packer {
    writer: Writer,
    matcher: Matcher,
    assembler: Assembler,
    /// The numbers of frames made, bytes of texts, bytes of frames, and nanoseconds.
    tally: [u64; 4],
}

impl Packer {
    pub fn new() -> Self {
        Packer { writer: Writer::new(), matcher: Matcher::new(), assembler: Assembler::new(), tally: [0; 4] }
    }

    /// Return the encoding and the frame of a text. A text that would not shrink is stored.
    pub fn compress(&mut self, text: &Bytes, base: &Bytes, mut level: i32) -> (u8, Bytes) {
        let base = if is_usable(text, base) { apart(text, base) } else { Bytes::default() };
        if text.len() >= PROBED && base.is_empty() && self.is_incompressible(text) {
            return (STORED, text.clone());
        }
        if text.len() >= LARGE && base.is_empty() {
            level = level.min(LARGE_LEVEL);
        }
        let start = Instant::now();
        let frame = if text.is_empty() { &[] } else { self.writer.write(text, &base, level) };
        let chosen = chosen(text, frame);
        note(&mut self.tally, text, frame, start);
        self.writer.trim();
        chosen
    }

    /// Return the encoding and the frame of a text on a usable base, quickly.
    pub fn compress_near(&mut self, text: &Bytes, base: &Bytes, ends: Ends) -> (u8, Bytes) {
        if text.len() + base.len() > NEAR || text.is_empty() {
            return self.compress(text, base, BULK_LEVEL);
        }
        let start = Instant::now();
        let frame = self.assembler.write(text, base.len(), self.matcher.find(text, base, ends));
        let chosen = chosen(text, frame);
        note(&mut self.tally, text, frame, start);
        self.assembler.trim();
        chosen
    }

    /// Return the bytes of a quickly made frame.
    pub fn probe(&mut self, text: &Bytes, base: &Bytes) -> usize {
        self.writer.write(text, &apart(text, base), PROBE_LEVEL).len()
    }

    /// Return the encoding and the frame of hunks.
    pub fn pack_hunks(&mut self, hunks: Vec<u8>) -> (u8, Bytes) {
        let hunks = Bytes::Own(Arc::new(hunks));
        if hunks.len() > LEAST_PACKED {
            let (encoding, frame) = self.compress(&hunks, &Bytes::default(), HUNKS_LEVEL);
            if encoding == ZSTD {
                let mut packed = Vec::with_capacity(frame.len() + 9);
                varint::write(&mut packed, hunks.len() as u64);
                packed.extend_from_slice(&frame);
                return (ZSTD_HUNKS, Bytes::Own(Arc::new(packed)));
            }
        }
        (HUNKS, hunks)
    }

    /// Tell whether a piece from the middle shrinks by under 2 %, as in compressed and encrypted files.
    fn is_incompressible(&mut self, text: &[u8]) -> bool {
        let middle = text.len().saturating_sub(PROBE) / 2;
        let piece = &text[middle..text.len().min(middle + PROBE)];
        self.writer.write(piece, b"", PROBE_LEVEL).len() * 100 > piece.len() * 98
    }

    /// Add these counts to the meters of this process, and reset them.
    pub fn count(&mut self, py: Python<'_>) -> PyResult<()> {
        let [frames, came, made, nanoseconds] = std::mem::take(&mut self.tally);
        let counts = [
            ("COMPRESSED", frames),
            ("COMPRESSED_IN", came),
            ("COMPRESSED_OUT", made),
            ("COMPRESSION_TIME", nanoseconds),
        ];
        meters::count(py, &counts)
    }
}

/// Return the encoding and the frame of a text: the text itself if it did not shrink.
fn chosen(text: &Bytes, frame: &[u8]) -> (u8, Bytes) {
    if frame.len() >= text.len() {
        (STORED, text.clone())
    } else {
        (ZSTD, Bytes::Own(Arc::new(frame.to_vec())))
    }
}

/// Count a frame.
fn note(tally: &mut [u64; 4], text: &[u8], frame: &[u8], start: Instant) {
    let counts = [1, text.len() as u64, frame.len() as u64, start.elapsed().as_nanos() as u64];
    tally.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
}

/// Tell whether a base is long enough to be of use, and not too long.
pub fn is_usable(text: &[u8], base: &[u8]) -> bool {
    base.len() >= MIN_BASE && base.len() + text.len() <= MAX_BASED
}

/// Return the one hunk that makes a text of its base, if it adds at most `most` bytes and is shorter than the text.
pub fn single_hunk(text: &[u8], base: &[u8], ends: Ends, most: usize) -> Option<Vec<u8>> {
    let Ends { head, tail } = ends;
    let added = &text[head..text.len() - tail];
    if added.len() > most {
        return None;
    }
    let mut hunk = Vec::with_capacity(added.len() + 12);
    varint::write(&mut hunk, head as u64);
    varint::write(&mut hunk, (base.len() - tail - head) as u64);
    varint::write_bytes(&mut hunk, added);
    (hunk.len() < text.len()).then_some(hunk)
}

/// Return a base that does not overlap the text in memory: zstd would ignore such a base.
fn apart(text: &Bytes, base: &Bytes) -> Bytes {
    if text.as_ptr() == base.as_ptr() {
        Bytes::Own(Arc::new(base.to_vec()))
    } else {
        base.clone()
    }
}
