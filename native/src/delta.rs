//! Makes deltas as git's packs hold them: copies from a base, and insertions.

use crate::varint;

/// The number of bytes that are looked up together.
const PIECE: usize = 16;
const SLOTS: usize = 1 << 16;
const MAX_COPY: usize = 0xffff;
const MAX_INSERT: usize = 127;

/// Makes deltas, one after the other.
pub struct Differ {
    /// By the hash of a piece: the delta in which it was noted, and its place in the base.
    places: Vec<(u32, u32)>,
    turn: u32,
}

impl Differ {
    pub fn new() -> Self {
        Differ { places: vec![(0, 0); SLOTS], turn: 0 }
    }

    /// Return a delta from `base` to `text`. Their common start and end are copied. In between, each piece of the base
    /// that is found again is extended both ways as far as it matches.
    pub fn delta(&mut self, base: &[u8], text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        varint::write(&mut out, base.len() as u64);
        varint::write(&mut out, text.len() as u64);
        let Ends { head, tail } = Ends::of(base, text);
        let (end, base_end) = (text.len() - tail, base.len() - tail);
        copy(&mut out, 0, head);
        let mut done = head;
        self.matches(&base[head..base_end], &text[head..end], |from, at, length| {
            insert(&mut out, &text[done..head + at]);
            copy(&mut out, head + from, length);
            done = head + at + length;
        });
        insert(&mut out, &text[done..end]);
        copy(&mut out, base_end, tail);
        out
    }

    /// Find common parts of two texts, in the order of `text`. `each` gets the place in `base`, the place in `text` and
    /// the length of each.
    pub fn matches(&mut self, base: &[u8], text: &[u8], mut each: impl FnMut(usize, usize, usize)) {
        if text.len() <= PIECE || base.len() <= PIECE {
            return;
        }
        self.next_turn();
        for at in (0..=base.len() - PIECE).step_by(PIECE) {
            self.places[slot(&base[at..at + PIECE])] = (self.turn, at as u32);
        }
        let (mut at, mut done) = (0, 0);
        while at + PIECE <= text.len() {
            let (turn, from) = self.places[slot(&text[at..at + PIECE])];
            let from = from as usize;
            if turn != self.turn || base[from..from + PIECE] != text[at..at + PIECE] {
                at += 1;
                continue;
            }
            let back = common_end(&base[..from], &text[done..at], from.min(at - done));
            let length = PIECE + common_start(&base[from + PIECE..], &text[at + PIECE..]);
            each(from - back, at - back, length + back);
            at += length;
            done = at;
        }
    }

    fn next_turn(&mut self) {
        if self.turn == u32::MAX {
            self.places.fill((0, 0));
            self.turn = 0;
        }
        self.turn += 1;
    }
}

fn slot(piece: &[u8]) -> usize {
    let half = |at: usize| u64::from_le_bytes(piece[at..at + 8].try_into().expect("eight bytes"));
    let mixed = half(0).wrapping_mul(0x9E37_79B1_85EB_CA87) ^ half(8).wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
    (mixed >> 40) as usize % SLOTS
}

fn copy(out: &mut Vec<u8>, mut from: usize, mut length: usize) {
    while length > 0 {
        let now = length.min(MAX_COPY);
        let head = out.len();
        out.push(0x80);
        for (bit, byte) in (from as u32).to_le_bytes().into_iter().enumerate() {
            if byte != 0 {
                out.push(byte);
                out[head] |= 1 << bit;
            }
        }
        for (bit, byte) in (now as u16).to_le_bytes().into_iter().enumerate() {
            if byte != 0 {
                out.push(byte);
                out[head] |= 0x10 << bit;
            }
        }
        from += now;
        length -= now;
    }
}

fn insert(out: &mut Vec<u8>, bytes: &[u8]) {
    for piece in bytes.chunks(MAX_INSERT) {
        out.push(piece.len() as u8);
        out.extend_from_slice(piece);
    }
}

/// The lengths of the common start and the common end of two texts; they do not overlap.
#[derive(Clone, Copy)]
pub struct Ends {
    pub head: usize,
    pub tail: usize,
}

impl Ends {
    pub fn of(one: &[u8], other: &[u8]) -> Ends {
        let head = common_start(one, other);
        Ends { head, tail: common_end(one, other, one.len().min(other.len()) - head) }
    }
}

/// Count the bytes that both begin with.
pub fn common_start(one: &[u8], other: &[u8]) -> usize {
    let mut at = 0;
    for (a, b) in one.chunks_exact(8).zip(other.chunks_exact(8)) {
        let (a, b) =
            (u64::from_le_bytes(a.try_into().expect("eight")), u64::from_le_bytes(b.try_into().expect("eight")));
        if a != b {
            return at + ((a ^ b).trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    at + one[at..].iter().zip(&other[at..]).take_while(|(a, b)| a == b).count()
}

/// Count the bytes that both end with, up to `most`.
pub fn common_end(one: &[u8], other: &[u8], most: usize) -> usize {
    let (one, other) = (&one[one.len() - most..], &other[other.len() - most..]);
    let mut size = 0;
    for (a, b) in one.rchunks_exact(8).zip(other.rchunks_exact(8)) {
        let (a, b) =
            (u64::from_le_bytes(a.try_into().expect("eight")), u64::from_le_bytes(b.try_into().expect("eight")));
        if a != b {
            return size + ((a ^ b).leading_zeros() / 8) as usize;
        }
        size += 8;
    }
    let left = most - size;
    size + one[..left].iter().rev().zip(other[..left].iter().rev()).take_while(|(a, b)| a == b).count()
}
