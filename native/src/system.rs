//! `System`: the version-control systems whose records are proved natively, and their rules.

use crate::bzr;
use crate::hg;
use crate::objects;
use crate::segment::{Entry, Kind, Segment, OF_HASHES};

/// The type of a reference to a record of any type.
pub const ANY: u8 = 0;

/// References: for each, the type that the record must have, and its name.
pub type References = Vec<(u8, Vec<u8>)>;

/// Return the name of a record: its kind and its key.
pub fn name(kind: u8, key: &[u8]) -> Vec<u8> {
    [&[kind], key].concat()
}

/// Decode digits in hex, of either case.
pub fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}

/// A record with its text.
pub struct Version<'a> {
    pub kind: u8,
    pub key: &'a [u8],
    pub meta: &'a [u8],
    pub text: &'a [u8],
}

pub const HG_KINDS: [Kind; 3] = [OF_HASHES[0]; 3];

/// The names of the systems, as in Python's `System.name`.
pub const NAMES: [&str; 4] = ["bzr 2a", "git sha1", "git sha256", "hg sha1"];

#[derive(Clone, Copy)]
pub enum System {
    /// `width`: bytes of a key. `judges`: whether faults matter.
    Git {
        width: usize,
        judges: bool,
    },
    Hg,
    Bzr,
}

impl System {
    pub fn named(name: &str, judges: bool) -> Option<System> {
        match name {
            "git sha1" => Some(System::Git { width: 20, judges }),
            "git sha256" => Some(System::Git { width: 32, judges }),
            "hg sha1" => Some(System::Hg),
            "bzr 2a" => Some(System::Bzr),
            _ => None,
        }
    }

    pub fn kinds(self) -> &'static [Kind] {
        match self {
            System::Git { .. } => &OF_HASHES,
            System::Hg => &HG_KINDS,
            System::Bzr => &bzr::KINDS,
        }
    }

    /// Return the type that references to a record with this meta may name.
    pub fn type_of(self, meta: &[u8]) -> u8 {
        match (self, meta) {
            (System::Git { .. }, &[kind]) => kind,
            _ => ANY,
        }
    }

    /// Tell whether a record never has references, so that the same bytes need no second check.
    pub fn is_leaf(self, entry: &Entry<'_>) -> bool {
        matches!(self, System::Git { .. }) && *entry.meta == [objects::BLOB]
    }

    /// Return the bytes that are charged for a record: those that are read of it and of its base.
    pub fn cost(self, entry: &Entry<'_>, base: usize) -> usize {
        let is_list = match self {
            System::Git { .. } => *entry.meta == [objects::TREE],
            System::Hg => entry.kind == hg::MANIFEST,
            System::Bzr => entry.kind == bzr::CHK,
        };
        // The part of a large base that a list leaves out is read, too.
        entry.length + if is_list { base.saturating_sub(4 * entry.length) } else { 0 }
    }

    /// Tell whether a text matches its key, or the check besides the key.
    pub fn has_key(self, entry: &Entry<'_>, text: &[u8]) -> bool {
        match self {
            System::Git { width, .. } => {
                let is_id = entry.key.len() == width && entry.meta.len() == 1;
                is_id && objects::has_id(entry.meta[0], text, entry.key)
            }
            System::Hg => hg::has_key(entry.kind, entry.key, entry.meta, text),
            System::Bzr => bzr::has_key(entry, text),
        }
    }

    /// Add the references of a record to `needed`, and those that only its base has to `removed`. A reference that both
    /// have is in neither list, or in both. Return whether the record is the revision's own, or `None` if Python must
    /// check it.
    pub fn compare(
        self,
        segment: &Segment<'_>,
        record: &Version<'_>,
        base: Option<&Version<'_>>,
        needed: &mut References,
        removed: &mut References,
    ) -> Option<bool> {
        match self {
            System::Git { width, judges } => objects::compare(segment, record, base, width, judges, needed, removed),
            System::Hg => hg::compare(segment, record, base, needed, removed),
            System::Bzr => bzr::compare(segment, record, base, needed, removed),
        }
    }
}
