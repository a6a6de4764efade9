//! Writes the body of a pack's index as `store/index_build.py` does.

use blake2::digest::consts::U20;
use blake2::{Blake2b, Digest};

use crate::keys::Keys;

pub const NO_BASE: u32 = 0xffff_ffff;
pub const EXTERNAL: u32 = 0x8000_0000;
pub const OUTSIDE: u32 = 0x8000_0000;

const MAGIC: &[u8; 8] = b"hpss-idx";
const VERSION: u8 = 1;
const DIGEST: usize = 20;
const ROW: usize = 41;

/// Return the digest that rows are sorted by. `name`: the byte of a record's kind, and its key.
pub fn digest(name: &[u8]) -> [u8; DIGEST] {
    Blake2b::<U20>::digest(name).into()
}

pub struct Row {
    pub header: u64,
    pub frame: u64,
    pub frame_length: u32,
    pub length: u32,
    /// The row of the base in the order of the pack, `NO_BASE`, or `EXTERNAL` and a number.
    pub base: u32,
    pub segment: u32,
    pub chain: u32,
    pub lineage: u32,
    pub depth: u8,
    pub digest: [u8; DIGEST],
}

/// The content of an index, in the order of its pack.
pub struct Columns<'a> {
    revisions: &'a Keys,
    /// The number of the pack's first revision.
    first: usize,
    pub offsets: Vec<u64>,
    pub parent_starts: Vec<u32>,
    pub parents: Vec<u32>,
    outside: Keys,
    externals: Keys,
    pub rows: Vec<Row>,
}

impl<'a> Columns<'a> {
    pub fn new(revisions: &'a Keys, first: usize) -> Self {
        Columns {
            revisions,
            first,
            offsets: Vec::new(),
            parent_starts: vec![0],
            parents: Vec::new(),
            outside: Keys::default(),
            externals: Keys::default(),
            rows: Vec::new(),
        }
    }

    pub fn add_parent(&mut self, number: Option<u32>, id: &[u8]) {
        let inside = number.and_then(|number| number.checked_sub(self.first as u32));
        let parent = inside.unwrap_or_else(|| OUTSIDE | self.outside.number(id));
        self.parents.push(parent);
    }

    /// Return the number of a base that lies in an earlier pack.
    pub fn external(&mut self, name: &[u8]) -> u32 {
        EXTERNAL | self.externals.number(name)
    }

    pub fn body(&self, pack_length: u64, pack_hash: &[u8]) -> Vec<u8> {
        let rows = self.rows.len();
        let segments = self.offsets.len() - 1;
        let bits = fanout_bits(rows);
        let mut order: Vec<u32> = (0..rows as u32).collect();
        order.sort_by_key(|&at| self.rows[at as usize].digest);
        let mut row_of = vec![0u32; rows];
        for (row, &position) in order.iter().enumerate() {
            row_of[position as usize] = row as u32;
        }
        let mut out = Body(Vec::with_capacity(rows * (ROW + DIGEST) + segments * 48 + 4096));
        out.0.extend_from_slice(MAGIC);
        out.0.extend_from_slice(&[VERSION, 0, bits as u8, 0]);
        for count in [rows, segments, self.parents.len(), self.externals.len(), self.outside.len()] {
            out.0.extend_from_slice(&(count as u32).to_le_bytes());
        }
        out.0.extend_from_slice(&pack_length.to_le_bytes());
        out.0.extend_from_slice(pack_hash);
        out.numbers(self.fanout(&order, bits).into_iter());
        for &at in &order {
            out.0.extend_from_slice(&self.rows[at as usize].digest);
        }
        out.align();
        for &at in &order {
            self.rows[at as usize].write(&mut out.0, &row_of);
        }
        out.align();
        for offset in &self.offsets {
            out.0.extend_from_slice(&offset.to_le_bytes());
        }
        let ids: Vec<&[u8]> = (0..segments).map(|at| self.revisions.key((self.first + at) as u32)).collect();
        let mut by_id: Vec<u32> = (0..segments as u32).collect();
        by_id.sort_by_key(|&at| ids[at as usize]);
        out.ends(ids.iter().copied());
        out.numbers(by_id.into_iter());
        out.numbers(self.parent_starts.iter().copied());
        out.numbers(self.parents.iter().copied());
        out.ends(self.externals.iter());
        out.ends(self.outside.iter());
        out.blob(ids.iter().copied());
        out.blob(self.externals.iter());
        out.blob(self.outside.iter());
        out.0
    }

    /// Return the number of rows before each bucket of the digests' first bits, and of all rows.
    fn fanout(&self, order: &[u32], bits: u32) -> Vec<u32> {
        let mut counts = vec![0u32; (1 << bits) + 1];
        for &at in order {
            let digest = &self.rows[at as usize].digest;
            let bucket = u16::from_be_bytes([digest[0], digest[1]]) as usize >> (16 - bits);
            counts[bucket + 1] += 1;
        }
        for bucket in 1..counts.len() {
            counts[bucket] += counts[bucket - 1];
        }
        counts
    }
}

impl Row {
    fn write(&self, out: &mut Vec<u8>, row_of: &[u32]) {
        let base = if self.base & EXTERNAL != 0 { self.base } else { row_of[self.base as usize] };
        out.extend_from_slice(&self.header.to_le_bytes());
        out.extend_from_slice(&self.frame.to_le_bytes());
        for number in [self.frame_length, self.length, base, self.segment, self.chain, self.lineage] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.push(self.depth);
    }
}

/// Return the bits of the fanout with which a bucket has about 16 rows.
fn fanout_bits(rows: usize) -> u32 {
    if rows == 0 {
        return 0;
    }
    (usize::BITS - (rows - 1).leading_zeros()).saturating_sub(4).min(16)
}

/// The columns of a body, each at a multiple of 8 bytes from the start.
struct Body(Vec<u8>);

impl Body {
    fn align(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
    }

    fn numbers(&mut self, numbers: impl Iterator<Item = u32>) {
        for number in numbers {
            self.0.extend_from_slice(&number.to_le_bytes());
        }
        self.align();
    }

    /// Write a zero, and the end of each byte string in all of them together.
    fn ends<'b>(&mut self, items: impl Iterator<Item = &'b [u8]>) {
        let mut end = 0;
        self.0.extend_from_slice(&[0; 4]);
        self.numbers(items.map(|item| {
            end += item.len() as u32;
            end
        }));
    }

    fn blob<'b>(&mut self, items: impl Iterator<Item = &'b [u8]>) {
        items.for_each(|item| self.0.extend_from_slice(item));
        self.align();
    }
}
