//! Decodes frames as `records/delta.py` does, and refuses the same ones.

use std::borrow::Cow;

use pyo3::prelude::*;

use crate::limits::{MAX_BASED, MAX_HUNKS, MAX_RECORD, MAX_WINDOW_LOG, MIN_BASE, MIN_WINDOW_LOG};
use crate::meters;
use crate::segment::{HUNKS, STORED, ZSTD, ZSTD_HUNKS};
use crate::sys::Reader;
use crate::varint;

const BLOCK: usize = 128 << 10;

/// Counts of decoded frames and bytes.
#[derive(Default, Clone, Copy)]
pub struct Tally {
    pub frames: u64,
    pub came: u64,
    pub made: u64,
}

impl Tally {
    /// Add these counts to the meters of this process, and reset them.
    pub fn count(&mut self, py: Python<'_>) -> PyResult<()> {
        let Tally { frames, came, made } = std::mem::take(self);
        meters::count(py, &[("DECOMPRESSED", frames), ("DECOMPRESSED_IN", came), ("DECOMPRESSED_OUT", made)])
    }
}

/// Return the text of `length` bytes that a frame holds; `None` if it holds no such text. `base`: the text of its base.
pub fn decompress(
    reader: &mut Reader,
    tally: &mut Tally,
    encoding: u8,
    frame: &[u8],
    length: usize,
    base: &[u8],
) -> Option<Vec<u8>> {
    match encoding {
        STORED => (frame.len() == length).then(|| frame.to_vec()),
        HUNKS | ZSTD_HUNKS => apply_hunks(&hunks_in(reader, tally, encoding, frame)?, length, base),
        ZSTD => {
            if !is_sound(frame, length) {
                return None;
            }
            let base = if base.len() < MIN_BASE {
                b""
            } else if base.len() + length > MAX_BASED {
                return None;
            } else {
                base
            };
            let text = reader.read(frame, length, base)?;
            tally.frames += 1;
            tally.came += frame.len() as u64;
            tally.made += length as u64;
            Some(text)
        }
        _ => None,
    }
}

/// Return the encoded hunks in a frame of encoding `HUNKS` or `ZSTD_HUNKS`.
pub fn hunks_in<'a>(reader: &mut Reader, tally: &mut Tally, encoding: u8, frame: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    if encoding == HUNKS {
        return Some(Cow::Borrowed(frame));
    }
    let at = &mut 0;
    let size = varint::read(frame, at)?;
    if size > MAX_HUNKS as u64 {
        return None;
    }
    decompress(reader, tally, ZSTD, &frame[*at..], size as usize, b"").map(Cow::Owned)
}

/// A piece of a base, and the bytes that replace it.
pub struct Hunk<'a> {
    pub start: usize,
    pub end: usize,
    pub added: &'a [u8],
}

/// Read the hunk at `at`, after one that ended at byte `end` of a base of `size` bytes.
pub fn read_hunk<'a>(hunks: &'a [u8], at: &mut usize, end: usize, size: usize) -> Option<Hunk<'a>> {
    let start = (end as u64).checked_add(varint::read(hunks, at)?)?;
    let end = start.checked_add(varint::read(hunks, at)?)?;
    let added = varint::read_bytes(hunks, at, MAX_HUNKS)?;
    (end <= size as u64).then_some(Hunk { start: start as usize, end: end as usize, added })
}

/// Tell whether a frame claims no more than it can hold, and ends where it says.
fn is_sound(frame: &[u8], length: usize) -> bool {
    let Some(mut at) = blocks_at(frame, length) else { return false };
    let mut blocks = 0;
    loop {
        let Some(&[a, b, c]) = frame.get(at..at + 3) else { return false };
        let head = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
        let kind = head >> 1 & 3;
        at += if kind == 1 { 4 } else { 3 + (head >> 3) }; // Kind 1 is one byte, repeated.
        if kind == 3 || at > frame.len() {
            return false;
        }
        blocks += 1;
        if head & 1 == 1 {
            break;
        }
    }
    at == frame.len() && length <= blocks * BLOCK
}

/// Return the place where the blocks of a frame begin, if its header is right.
fn blocks_at(frame: &[u8], length: usize) -> Option<usize> {
    let descriptor = *frame.first()?;
    if length > MAX_RECORD || descriptor & 0b11111 != 0 {
        return None;
    }
    let single = usize::from(descriptor >> 5 & 1);
    let at = 2 - single + [single, 2, 4, 8][usize::from(descriptor >> 6)];
    let field = if single == 1 { at - 1 } else { at - 2 };
    let wide = if single == 1 {
        length > 1 << MAX_WINDOW_LOG
    } else {
        u32::from(*frame.get(1)?) > (MAX_WINDOW_LOG - MIN_WINDOW_LOG) << 3
    };
    if field == 0 || wide {
        return None;
    }
    let said = frame.get(at - field..at)?.iter().rev().fold(0u64, |n, &byte| n << 8 | u64::from(byte));
    (said.checked_add(if field == 2 { 256 } else { 0 })? == length as u64).then_some(at)
}

/// Return the text of `length` bytes that hunks make of a base.
pub fn apply_hunks(hunks: &[u8], length: usize, base: &[u8]) -> Option<Vec<u8>> {
    if hunks.len() > MAX_HUNKS || length > MAX_RECORD {
        return None;
    }
    let mut text = Vec::with_capacity(length.min(base.len() + hunks.len()));
    let at = &mut 0;
    let mut end = 0;
    while *at < hunks.len() {
        let hunk = read_hunk(hunks, at, end, base.len())?;
        let kept = &base[end..hunk.start];
        end = hunk.end;
        if text.len() + kept.len() + hunk.added.len() > length {
            return None;
        }
        text.extend_from_slice(kept);
        text.extend_from_slice(hunk.added);
    }
    let rest = &base[end..];
    if text.len() + rest.len() != length {
        return None;
    }
    text.extend_from_slice(rest);
    Some(text)
}
