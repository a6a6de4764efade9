//! `Matcher`: finds what a text has in common with its base and with its own earlier bytes, for a frame of zstd.
//!
//! zstd's own finder enters all of a base into its tables, which takes most of the time of a frame. A text and its base
//! have long parts in common. Here these are compared, and only the bytes around their differences are entered.

use crate::delta::{common_end, common_start, Ends};

/// A match, and the number of literals before it. `offset`: how far back the match lies, where the base lies directly
/// before the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sequence {
    pub literals: usize,
    pub length: usize,
    pub offset: usize,
}

/// The bytes by which a match is looked for.
const HASHED: usize = 5;

/// The bytes that are read at once to hash some of them.
const WORD: usize = 8;

/// The fewest bytes of a match at the offset of the one before it, which costs little.
pub const LEAST: usize = 4;

/// The most earlier places that are compared for one match.
const COMPARED: usize = 6;

/// A match of at least so many bytes is taken although one that begins later might be longer.
const ENOUGH: usize = 64;

/// Bytes of a long match, at its end, that are entered: the others are found in the base.
const ENTERED: usize = 16;

/// Bytes of the base that are looked at before and behind the part in which it differs from the text.
const AROUND: usize = 4 << 10;

/// Every third place of that part is entered first.
const SPARSE: usize = 3;

/// All places are entered from so many bytes before the expected place in the base to so many behind it.
const BEHIND: usize = 256;
const AHEAD: usize = 1 << 10;

/// The literals after which more of the base is entered, and the bytes of the base for each literal.
const STEP: usize = 64;
const GROWTH: usize = 8;

const SLOT_BITS: u32 = 15;
const SLOTS: usize = 1 << SLOT_BITS;

/// The most entries of `before` that are kept for the next text.
const KEPT: usize = 1 << 18;

pub struct Matcher {
    /// The last place with a hash, counted from `floor`. What is below `floor` belongs to earlier texts.
    last: Box<[u32; SLOTS]>,
    /// For each place, the place before it with the same hash.
    before: Vec<u32>,
    floor: u32,
    end: u32,
    sequences: Vec<Sequence>,
}

/// A base and a text. A place counts from the start of the base; the text lies behind it.
#[derive(Clone, Copy)]
struct Sides<'a> {
    base: &'a [u8],
    text: &'a [u8],
}

impl Sides<'_> {
    /// Count the equal bytes of the text from `at` on and those from a place on, in the base or before `at`.
    fn common(&self, at: usize, place: usize) -> usize {
        match place.checked_sub(self.base.len()) {
            None => common_start(&self.text[at..], &self.base[place..]),
            Some(earlier) => common_start(&self.text[at..], &self.text[earlier..]),
        }
    }

    /// Count the equal bytes before `at` and before a place, up to `most`.
    fn common_before(&self, at: usize, place: usize, most: usize) -> usize {
        let (side, end) = match place.checked_sub(self.base.len()) {
            None => (self.base, place),
            Some(earlier) => (self.text, earlier),
        };
        common_end(&self.text[..at], &side[..end], most.min(end))
    }
}

impl Matcher {
    pub fn new() -> Self {
        let last = vec![0; SLOTS].into_boxed_slice().try_into().expect("as many slots");
        Matcher { last, before: Vec::new(), floor: 1, end: 1, sequences: Vec::new() }
    }

    /// Return the matches of a text. What follows the last one are literals.
    pub fn find(&mut self, text: &[u8], base: &[u8], ends: Ends) -> &[Sequence] {
        self.sequences.clear();
        let sides = Sides { base, text };
        let Ends { head, tail } = ends;
        let mut done = 0;
        if head >= LEAST {
            self.sequences.push(Sequence { literals: 0, length: head, offset: base.len() });
            done = head;
        }
        let end = text.len() - tail;
        if end - done > HASHED {
            self.begin(base.len() + text.len());
            done = self.find_between(sides, done, end);
        }
        let from = done.max(end);
        if text.len() - from >= LEAST {
            self.sequences.push(Sequence { literals: from - done, length: text.len() - from, offset: text.len() });
        }
        if self.before.len() > KEPT {
            self.before = Vec::new();
        }
        &self.sequences
    }

    /// Prepare for places below `size`, and forget those of earlier texts.
    fn begin(&mut self, size: usize) {
        self.floor = self.end;
        if u32::MAX - self.floor <= size as u32 {
            self.last.fill(0);
            self.floor = 1;
        }
        self.end = self.floor + size as u32;
        if self.before.len() < size {
            self.before.resize(size, 0);
        }
    }

    /// Find matches from `done` to `end`. Return the end of the last one, which may lie behind `end`.
    fn find_between(&mut self, sides: Sides<'_>, mut done: usize, end: usize) -> usize {
        let Sides { base, text } = sides;
        let high = (base.len() - (text.len() - end) + AROUND).min(base.len());
        let first = done.min(base.len()).saturating_sub(AROUND);
        let mut entered = first;
        for place in (first..high.saturating_sub(WORD)).step_by(SPARSE) {
            self.enter(base, place, 0);
        }
        let last = end.min((text.len() + 1).saturating_sub(WORD));
        let (mut at, mut due, mut noted) = (done, done, done);
        let mut offset = base.len();
        while at < last {
            if at >= due {
                let expected = (base.len() + at).saturating_sub(offset).min(base.len());
                entered = entered.max(expected.saturating_sub(BEHIND));
                let until = high.min(expected + AHEAD + GROWTH * (at - done)).saturating_sub(WORD);
                while entered < until {
                    if (entered - first) % SPARSE > 0 {
                        self.enter(base, entered, 0);
                    }
                    entered += 1;
                }
                due = at + STEP;
            }
            let Some(mut found) = self.best(sides, at, offset) else {
                self.note(sides, &mut noted, at + 1);
                at += 1 + (at - done) / 256;
                continue;
            };
            while found.0 < ENOUGH && at + 1 < last {
                self.note(sides, &mut noted, at + 1);
                let Some(next) = self.best(sides, at + 1, offset).filter(|next| next.0 > found.0 + 1) else { break };
                found = next;
                at += 1;
            }
            let back = sides.common_before(at, base.len() + at - found.1, at - done);
            let start = at - back;
            offset = found.1;
            self.sequences.push(Sequence { literals: start - done, length: found.0 + back, offset });
            at += found.0;
            (done, due) = (at, at);
            noted = noted.max(at.saturating_sub(ENTERED));
            self.note(sides, &mut noted, at);
        }
        done
    }

    /// Return length and offset of the best match at `at`. `expected`: the offset of the match before.
    fn best(&self, sides: Sides<'_>, at: usize, expected: usize) -> Option<(usize, usize)> {
        let here = sides.base.len() + at;
        let mut best = (0, 0);
        let mut gain = 0;
        let mut compare = |place: usize, least: usize| {
            let length = sides.common(at, place);
            if length >= least {
                let offset = here - place;
                let bits = if offset == expected { 0 } else { usize::BITS - offset.leading_zeros() };
                let saved = 4 * length as i64 - i64::from(bits);
                if best.0 == 0 || saved > gain {
                    (best, gain) = ((length, offset), saved);
                }
            }
        };
        if expected <= here {
            compare(here - expected, LEAST);
        }
        let mut candidate = self.last[slot(sides.text, at)];
        for _ in 0..COMPARED {
            let Some(place) = candidate.checked_sub(self.floor) else { break };
            compare(place as usize, HASHED);
            candidate = self.before[place as usize];
        }
        (best.0 > 0).then_some(best)
    }

    /// Enter places of the text up to `to`.
    fn note(&mut self, sides: Sides<'_>, noted: &mut usize, to: usize) {
        while *noted < to && *noted + WORD <= sides.text.len() {
            self.enter(sides.text, *noted, sides.base.len());
            *noted += 1;
        }
    }

    #[inline]
    fn enter(&mut self, bytes: &[u8], at: usize, shift: usize) {
        let slot = slot(bytes, at);
        self.before[shift + at] = self.last[slot];
        self.last[slot] = self.floor + (shift + at) as u32;
    }
}

/// Return the slot of the bytes at `at`.
#[inline]
fn slot(bytes: &[u8], at: usize) -> usize {
    let word = u64::from_le_bytes(bytes[at..at + WORD].try_into().expect("a word"));
    ((word << (64 - 8 * HASHED)).wrapping_mul(0x9E37_79B1_85EB_CA87) >> (64 - SLOT_BITS)) as usize
}
