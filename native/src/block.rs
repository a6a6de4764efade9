//! `Block`: makes the content of a Breezy block, as `vcs/bzr/block.py` does. It may find other common parts of two
//! texts.

use std::collections::HashMap;

use libdeflater::{CompressionLvl, Compressor};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::delta::{Differ, Ends};
use crate::guard::run;
use crate::varint;

/// If a difference has more bytes than its text divided by this, the whole text is stored.
const WHOLE_FROM: usize = 3;

/// The level of libdeflate. It gives as many bytes as zlib's level 6, which is Breezy's.
const LEVEL: i32 = 6;

/// The most bytes of a block's head: its name and two numbers of 20 digits.
const HEAD: usize = 48;

/// The bytes of a copy instruction, and its command: three bytes of place and two of length follow.
const COPY: usize = 6;
const GIVEN: u8 = 0x80 | 0x07 | 0x30;

/// The most bytes that one instruction copies; this length is written as 0.
const PIECE: usize = 64 << 10;

/// The most bytes that one instruction inserts.
const INSERTED: usize = 127;

/// The fewest bytes that are copied from the middle of a text.
const WORTH: usize = 96;

/// The end of the places that three bytes can address.
const FAR: usize = 1 << 24;

/// Bytes of a text that are in the block unchanged: where they end in the text, and where they begin in the block.
#[derive(Clone, Copy)]
struct Piece {
    end: usize,
    at: usize,
}

/// An instruction of a difference.
enum Step<'a> {
    Copy { at: usize, length: usize },
    Insert(&'a [u8]),
}

#[pyclass(module = "smartserver._native")]
pub struct Block {
    content: Vec<u8>,
    pieces: HashMap<Vec<u8>, Vec<Piece>>,
    differ: Differ,
}

#[pymethods]
impl Block {
    #[new]
    fn new() -> Self {
        Block { content: Vec::new(), pieces: HashMap::new(), differ: Differ::new() }
    }

    #[getter]
    fn size(&self) -> usize {
        self.content.len()
    }

    #[pyo3(signature = (key, text, base_key=None, base=None))]
    fn add(
        &mut self,
        py: Python<'_>,
        key: PyBackedBytes,
        text: PyBackedBytes,
        base_key: Option<PyBackedBytes>,
        base: Option<PyBackedBytes>,
    ) -> PyResult<(usize, usize)> {
        if text.is_empty() {
            return Ok((0, 0));
        }
        let start = self.content.len();
        run(py, || {
            let pieces = base_key.zip(base).and_then(|(base_key, base)| self.add_changed(&text, &base_key, &base));
            let pieces = pieces.unwrap_or_else(|| self.add_whole(&text));
            if self.content.len() < FAR {
                self.pieces.insert(key.to_vec(), pieces);
            }
        })?;
        Ok((start, self.content.len()))
    }

    fn compressed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let made = run(py, || {
            let mut compressor = Compressor::new(CompressionLvl::new(LEVEL).expect("a level of libdeflate"));
            let mut packed = vec![0; HEAD + compressor.zlib_compress_bound(self.content.len())];
            let size = compressor.zlib_compress(&self.content, &mut packed[HEAD..]).expect("room for all bytes");
            let head = format!("gcb1z\n{}\n{}\n", size, self.content.len());
            let start = HEAD - head.len();
            packed[start..HEAD].copy_from_slice(head.as_bytes());
            (packed, start, HEAD + size)
        })?;
        let (packed, start, end) = made;
        Ok(PyBytes::new(py, &packed[start..end]))
    }
}

impl Block {
    fn add_whole(&mut self, text: &[u8]) -> Vec<Piece> {
        self.content.push(b'f');
        varint::write(&mut self.content, text.len() as u64);
        let at = self.content.len();
        self.content.extend_from_slice(text);
        (0..text.len())
            .step_by(PIECE)
            .map(|begin| Piece { end: text.len().min(begin + PIECE), at: at + begin })
            .collect()
    }

    /// Add a text as a difference from its base. Add nothing if the base is not in the block, or the difference is too
    /// long.
    fn add_changed(&mut self, text: &[u8], base_key: &[u8], base: &[u8]) -> Option<Vec<Piece>> {
        let known = self.pieces.get(base_key)?;
        if known.last()?.end != base.len() {
            return None; // It is not the text that is in the block.
        }
        let Ends { head: ahead, tail: behind } = Ends::of(text, base);
        let (rest, text_rest) = (base.len() - behind, text.len() - behind);
        let mut found = Vec::new();
        if text_rest - ahead >= WORTH && rest - ahead >= WORTH {
            self.differ.matches(&base[ahead..rest], &text[ahead..text_rest], |from, at, length| {
                if length >= WORTH {
                    found.push((ahead + from, ahead + at, length));
                }
            });
        }
        let inserted = text_rest - ahead - found.iter().map(|(_, _, length)| length).sum::<usize>();
        if inserted * WHOLE_FROM > text.len() {
            return None;
        }
        let mut steps = Vec::new();
        take(known, 0, ahead, &mut steps);
        let mut done = ahead;
        for (from, at, length) in found {
            insert(&text[done..at], &mut steps);
            take(known, from, from + length, &mut steps);
            done = at + length;
        }
        insert(&text[done..text_rest], &mut steps);
        take(known, rest, base.len(), &mut steps);

        let mut said = Vec::new();
        varint::write(&mut said, text.len() as u64);
        let length: usize = steps.iter().map(Step::bytes).sum::<usize>() + said.len();
        if length * WHOLE_FROM > text.len() {
            return None;
        }
        self.content.push(b'd');
        varint::write(&mut self.content, length as u64);
        self.content.extend_from_slice(&said);
        let mut end = 0;
        Some(steps.iter().map(|step| self.write(step, &mut end)).collect())
    }

    /// Write an instruction, and return the piece of the text that it gives. `end`: where the text of all before ends.
    fn write(&mut self, step: &Step<'_>, end: &mut usize) -> Piece {
        let (at, length) = match *step {
            Step::Copy { at, length } => {
                self.content.push(GIVEN);
                self.content.extend_from_slice(&(at as u32).to_le_bytes()[..3]);
                self.content.extend_from_slice(&(length as u32).to_le_bytes()[..2]);
                (at, length)
            }
            Step::Insert(bytes) => {
                self.content.push(bytes.len() as u8);
                self.content.extend_from_slice(bytes);
                (self.content.len() - bytes.len(), bytes.len())
            }
        };
        *end += length;
        Piece { end: *end, at }
    }
}

impl Step<'_> {
    /// The bytes of the instruction.
    fn bytes(&self) -> usize {
        match self {
            Step::Copy { .. } => COPY,
            Step::Insert(bytes) => 1 + bytes.len(),
        }
    }
}

/// Copy the bytes from `begin` to `end` of a text whose pieces are known.
fn take(known: &[Piece], begin: usize, end: usize, steps: &mut Vec<Step<'_>>) {
    if begin >= end {
        return;
    }
    let first = known.partition_point(|piece| piece.end <= begin);
    let mut start = if first == 0 { 0 } else { known[first - 1].end };
    for piece in &known[first..] {
        if start >= end {
            break;
        }
        let from = begin.max(start);
        steps.push(Step::Copy { at: piece.at + from - start, length: end.min(piece.end) - from });
        start = piece.end;
    }
}

fn insert<'a>(bytes: &'a [u8], steps: &mut Vec<Step<'a>>) {
    steps.extend(bytes.chunks(INSERTED).map(Step::Insert));
}
