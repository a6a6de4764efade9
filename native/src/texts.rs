//! `Texts`: texts by number, the least recently used dropped first.

use std::hash::RandomState;
use std::sync::Arc;

use lru::LruCache;

/// Not `Arc<[u8]>`, which would be a copy of what was decoded.
pub type Text = Arc<Vec<u8>>;

/// Bytes that an entry takes besides its text.
const ENTRY: usize = 100;

pub struct Texts {
    kept: LruCache<u32, Text, RandomState>,
    size: usize,
    limit: usize,
}

impl Texts {
    /// `limit`: bytes.
    pub fn new(limit: usize) -> Self {
        Texts { kept: LruCache::unbounded_with_hasher(RandomState::new()), size: 0, limit }
    }

    pub fn get(&mut self, number: u32) -> Option<Text> {
        self.kept.get(&number).cloned()
    }

    /// Keep a text; one over half of the limit is not kept, as it would push out all others.
    pub fn put(&mut self, number: u32, text: &Text) {
        let cost = text.len() + ENTRY;
        if cost > self.limit / 2 {
            return;
        }
        self.size += cost;
        if let Some(before) = self.kept.put(number, Arc::clone(text)) {
            self.size -= before.len() + ENTRY;
        }
        while self.size > self.limit {
            let Some((_, dropped)) = self.kept.pop_lru() else { break };
            self.size -= dropped.len() + ENTRY;
        }
    }

    pub fn clear(&mut self) {
        self.kept.clear();
        self.size = 0;
    }
}
