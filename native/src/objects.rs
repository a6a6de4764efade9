//! Git's objects: their ids, and trees as `vcs/git/format.py` reads them.

use sha1::{Digest, Sha1};
use sha2::Sha256;

pub const COMMIT: u8 = 1;
pub const TREE: u8 = 2;
pub const BLOB: u8 = 3;
pub const TAG: u8 = 4;

/// Git's name of a type.
pub fn type_name(kind: u8) -> Option<&'static str> {
    match kind {
        COMMIT => Some("commit"),
        TREE => Some("tree"),
        BLOB => Some("blob"),
        TAG => Some("tag"),
        _ => None,
    }
}

/// Whether an object has that id, of 20 bytes (SHA-1) or 32 (SHA-256).
pub fn has_id(kind: u8, text: &[u8], id: &[u8]) -> bool {
    let Some(name) = type_name(kind) else { return false };
    let head = format!("{name} {}\0", text.len());
    match id.len() {
        20 => Sha1::new().chain_update(head).chain_update(text).finalize()[..] == *id,
        32 => Sha256::new().chain_update(head).chain_update(text).finalize()[..] == *id,
        _ => false,
    }
}
