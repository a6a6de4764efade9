//! `Cache`: values by number; the least recently used one is dropped first. `Texts`: a cache of texts.

use std::hash::{Hash, RandomState};
use std::ops::Deref;
use std::sync::Arc;

use lru::LruCache;
use pyo3::pybacked::PyBackedBytes;

/// Not `Arc<[u8]>`, for which the decoded bytes would be copied.
pub type Text = Arc<Vec<u8>>;

/// Bytes with several owners.
#[derive(Clone)]
pub enum Bytes {
    Python(Arc<PyBackedBytes>),
    Own(Arc<Vec<u8>>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Python(bytes) => bytes,
            Bytes::Own(bytes) => bytes,
        }
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Bytes::Own(Arc::default())
    }
}

pub struct Cache<V, K: Hash + Eq = u32> {
    kept: LruCache<K, (V, usize), RandomState>,
    size: usize,
    limit: usize,
}

impl<V: Clone, K: Hash + Eq> Cache<V, K> {
    /// `limit`: the most that all values may cost together.
    pub fn new(limit: usize) -> Self {
        Cache { kept: LruCache::unbounded_with_hasher(RandomState::new()), size: 0, limit }
    }

    pub fn get(&mut self, number: K) -> Option<V> {
        self.kept.get(&number).map(|(value, _)| value.clone())
    }

    /// Keep a value in place of the earlier one, unless it costs more than the limit.
    pub fn put(&mut self, number: K, value: V, cost: usize) {
        let before = if cost > self.limit {
            self.kept.pop(&number)
        } else {
            self.size += cost;
            self.kept.put(number, (value, cost))
        };
        self.size -= before.map_or(0, |(_, cost)| cost);
        while self.size > self.limit {
            let Some((_, (_, dropped))) = self.kept.pop_lru() else { break };
            self.size -= dropped;
        }
    }

    pub fn clear(&mut self) {
        self.kept.clear();
        self.size = 0;
    }
}

/// Bytes that an entry takes besides its text.
const ENTRY: usize = 100;

pub struct Texts {
    kept: Cache<Text>,
    largest: usize,
}

impl Texts {
    /// `limit`: bytes of all texts.
    pub fn new(limit: usize) -> Self {
        Texts { kept: Cache::new(limit), largest: limit / 2 }
    }

    pub fn get(&mut self, number: u32) -> Option<Text> {
        self.kept.get(number)
    }

    /// Keep a text. A text of more than half of the limit is not kept, because it would drive out all others.
    pub fn put(&mut self, number: u32, text: &Text) {
        let cost = text.len() + ENTRY;
        if cost <= self.largest {
            self.kept.put(number, Arc::clone(text), cost);
        }
    }

    pub fn clear(&mut self) {
        self.kept.clear();
    }
}
