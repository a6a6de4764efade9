//! `Keys`: byte strings, numbered in the order in which they were added.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

/// Keys are found by a hash with a random key in each process, so that nobody can foresee which of them collide.
#[derive(Default)]
pub struct Keys {
    numbers: HashTable<u32>,
    hasher: RandomState,
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

impl Keys {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn key(&self, number: u32) -> &[u8] {
        key_of(&self.bytes, &self.ends, number)
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len() as u32).map(|number| self.key(number))
    }

    pub fn find(&self, key: &[u8]) -> Option<u32> {
        let same = |&number: &u32| key_of(&self.bytes, &self.ends, number) == key;
        self.numbers.find(self.hasher.hash_one(key), same).copied()
    }

    /// Return the number of a key, which is added if it is new.
    pub fn number(&mut self, key: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(key);
        let (bytes, ends) = (&self.bytes, &self.ends);
        if let Some(&found) = self.numbers.find(hash, |&number| key_of(bytes, ends, number) == key) {
            return found;
        }
        let number = u32::try_from(self.ends.len()).expect("more keys than a number has bits");
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len() as u64);
        let (bytes, ends, hasher) = (&self.bytes, &self.ends, &self.hasher);
        self.numbers.insert_unique(hash, number, |&each| hasher.hash_one(key_of(bytes, ends, each)));
        number
    }
}

fn key_of<'a>(bytes: &'a [u8], ends: &[u64], number: u32) -> &'a [u8] {
    let number = number as usize;
    let start = if number == 0 { 0 } else { ends[number - 1] };
    &bytes[start as usize..ends[number] as usize]
}
