//! `Ancestry`: the descent of the revisions of one stream. It is `store/ancestry.py` without the stored revisions.
//!
//! Each revision keeps one long jump along first parents. If a revision is not found on such lines, ancestors are
//! marked downward, from the first merge, no further than asked. The marks are kept for the next question.

use std::hash::RandomState;

use lru::LruCache;

pub const NONE: u32 = u32::MAX;

/// The number of merges on a line whose second parents' lines are searched before anything is marked.
const MERGES: usize = 8;

/// The most bytes of marks that are kept.
const MARKS_KEPT: usize = 8 << 20;

struct Marks {
    marks: Vec<u8>,
    /// Each marked revision at this place or above has marked its parents.
    low: usize,
}

pub struct Ancestry {
    first: Vec<u32>,
    jump: Vec<u32>,
    depth: Vec<u32>,
    /// The first revision with several parents on the line of each revision, which may be itself.
    merge: Vec<u32>,
    /// The place where the parents of each revision begin.
    starts: Vec<u32>,
    parents: Vec<u32>,
    marks: LruCache<u32, Marks, RandomState>,
    kept: usize,
    /// The number of steps so far.
    pub steps: u64,
}

impl Ancestry {
    pub fn new() -> Self {
        Ancestry {
            first: Vec::new(),
            jump: Vec::new(),
            depth: Vec::new(),
            merge: Vec::new(),
            starts: vec![0],
            parents: Vec::new(),
            marks: LruCache::unbounded_with_hasher(RandomState::new()),
            kept: 0,
            steps: 0,
        }
    }

    fn parents(&self, revision: u32) -> &[u32] {
        let at = revision as usize;
        &self.parents[self.starts[at] as usize..self.starts[at + 1] as usize]
    }

    /// Add a revision. A question about it before `add` must be asked about its parents.
    pub fn add(&mut self, parents: &[u32]) {
        let number = self.first.len() as u32;
        self.parents.extend_from_slice(parents);
        self.starts.push(self.parents.len() as u32);
        let (mut jump, mut depth) = (number, 0);
        let first = parents.first().copied().unwrap_or(NONE);
        let mut merge = NONE;
        if first != NONE {
            let of = |table: &[u32], at: u32| table[at as usize];
            depth = of(&self.depth, first) + 1;
            let near = of(&self.jump, first);
            let far = of(&self.jump, near);
            // Two jumps of one length become one of twice that.
            let same = of(&self.depth, first) - of(&self.depth, near) == of(&self.depth, near) - of(&self.depth, far);
            jump = if same { far } else { first };
            merge = if parents.len() > 1 { number } else { of(&self.merge, first) };
        }
        self.first.push(first);
        self.jump.push(jump);
        self.depth.push(depth);
        self.merge.push(merge);
    }

    /// Drop all marks.
    pub fn forget(&mut self) {
        self.marks.clear();
        self.kept = 0;
    }

    /// Tell whether the revision `of` is `wanted` or descends from it.
    pub fn reaches(&mut self, of: u32, wanted: u32) -> bool {
        self.steps += 4;
        if wanted >= of {
            return wanted == of;
        }
        if self.is_on_line(wanted, of) {
            return true;
        }
        let top = self.merge[of as usize];
        if top == NONE || wanted > top {
            return false;
        }
        let mut merge = top;
        for _ in 0..MERGES {
            let parents = self.parents(merge);
            let (first, second) = (parents[0], parents[1]);
            if self.is_on_line(wanted, second) {
                return true;
            }
            merge = self.merge[first as usize];
            if merge == NONE || wanted > merge {
                break;
            }
        }
        self.is_marked(top, wanted)
    }

    fn is_on_line(&mut self, wanted: u32, mut at: u32) -> bool {
        let depth = self.depth[wanted as usize];
        while self.depth[at as usize] > depth {
            let far = self.jump[at as usize];
            at = if self.depth[far as usize] >= depth { far } else { self.first[at as usize] };
            self.steps += 1;
        }
        at == wanted
    }

    fn is_marked(&mut self, top: u32, wanted: u32) -> bool {
        if !self.marks.contains(&top) {
            let size = top as usize + 1;
            let mut marks = vec![0; size];
            marks[top as usize] = 1;
            self.steps += size as u64 >> 8;
            self.kept += size;
            self.marks.put(top, Marks { marks, low: size });
            while self.kept > MARKS_KEPT && self.marks.len() > 1 {
                self.kept -= self.marks.pop_lru().map_or(0, |(_, dropped)| dropped.marks.len());
            }
        }
        let Some(found) = self.marks.get_mut(&top) else { return false };
        let (wanted, starts, parents) = (wanted as usize, &self.starts, &self.parents);
        while found.low > wanted {
            let Some(at) = memchr::memrchr(1, &found.marks[wanted..found.low]) else {
                found.low = wanted;
                break;
            };
            let at = wanted + at;
            found.low = at;
            let named = &parents[starts[at] as usize..starts[at + 1] as usize];
            for &parent in named {
                found.marks[parent as usize] = 1;
            }
            self.steps += 1 + named.len() as u64;
        }
        found.marks[wanted] == 1
    }
}
