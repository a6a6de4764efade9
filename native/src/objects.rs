//! Git's objects: their ids, and their references as `vcs/git/format.py` reads them.

use sha1::{Digest, Sha1};
use sha2::Sha256;

use crate::segment::Segment;
use crate::system::{name, unhex, References, Version};

pub const COMMIT: u8 = 1;
pub const TREE: u8 = 2;
pub const BLOB: u8 = 3;
pub const TAG: u8 = 4;

/// Return git's name of a type.
pub fn type_name(kind: u8) -> Option<&'static str> {
    match kind {
        COMMIT => Some("commit"),
        TREE => Some("tree"),
        BLOB => Some("blob"),
        TAG => Some("tag"),
        _ => None,
    }
}

/// Tell whether an object has this id, of 20 bytes (SHA-1) or 32 (SHA-256).
pub fn has_id(kind: u8, text: &[u8], id: &[u8]) -> bool {
    let Some(name) = type_name(kind) else { return false };
    let head = format!("{name} {}\0", text.len());
    match id.len() {
        20 => Sha1::new().chain_update(head).chain_update(text).finalize()[..] == *id,
        32 => Sha256::new().chain_update(head).chain_update(text).finalize()[..] == *id,
        _ => false,
    }
}

/// Add the references of an object, and those of its base that it lacks, if both are of one type. Return whether the
/// object is the revision's own commit, or `None` if Python must check it.
pub fn compare(
    segment: &Segment<'_>,
    record: &Version<'_>,
    base: Option<&Version<'_>>,
    width: usize,
    judges: bool,
    needed: &mut References,
    removed: &mut References,
) -> Option<bool> {
    let below = base.filter(|base| base.meta == record.meta).map(|base| base.text);
    match *record.meta {
        [BLOB] => Some(false),
        [TREE] => {
            compare_trees(record.text, below.unwrap_or_default(), width, judges, needed, removed).then_some(false)
        }
        // Python checks a commit that is not the revision's own.
        [COMMIT] if record.key == segment.revision => {
            let named = read_commit(record.text, width)?;
            let is_same = named[1..].iter().map(Vec::as_slice).eq(segment.parents.iter().map(|parent| parent.id));
            if !is_same || (judges && !is_clean_commit(record.text)) {
                return None;
            }
            needed.extend(references_of(&named));
            if let Some(below) = below {
                removed.extend(references_of(&read_commit(below, width)?));
            }
            Some(true)
        }
        _ => None,
    }
}

/// Return the references of a commit. `named`: its tree, then its parents.
fn references_of(named: &[Vec<u8>]) -> impl Iterator<Item = (u8, Vec<u8>)> + '_ {
    named.iter().enumerate().map(|(at, key)| (if at == 0 { TREE } else { COMMIT }, name(0, key)))
}

/// An entry of a tree in the form that every git writes.
pub struct TreeEntry<'a> {
    /// Mode, name and id.
    pub whole: &'a [u8],
    pub name: &'a [u8],
    pub key: &'a [u8],
    pub kind: EntryKind,
}

#[derive(Clone, Copy, PartialEq)]
pub enum EntryKind {
    File,
    Link,
    Folder,
    Submodule,
}

impl EntryKind {
    pub fn object(self) -> Option<u8> {
        match self {
            EntryKind::File | EntryKind::Link => Some(BLOB),
            EntryKind::Folder => Some(TREE),
            EntryKind::Submodule => None,
        }
    }
}

/// Parse the entry at `at`; `None` if it is damaged, or has a mode that only old tools wrote.
pub fn entry_at(text: &[u8], at: usize, width: usize) -> Option<TreeEntry<'_>> {
    let rest = &text[at..];
    let space = rest.iter().take(7).position(|&byte| byte == b' ')?;
    let kind = match &rest[..space] {
        b"100644" | b"100755" | b"100664" => EntryKind::File,
        b"120000" => EntryKind::Link,
        b"40000" => EntryKind::Folder,
        b"160000" => EntryKind::Submodule,
        _ => return None,
    };
    let named = &rest[space + 1..];
    let nul = memchr::memchr(0, named)?;
    let end = space + 1 + nul + 1 + width;
    if nul == 0 || end > rest.len() {
        return None;
    }
    Some(TreeEntry { whole: &rest[..end], name: &named[..nul], key: &rest[end - width..end], kind })
}

/// Tell whether an entry has none of the faults that `vcs/git/fsck.py` looks for, and is no file that git itself reads.
/// An entry that may have a fault is not clean.
fn is_clean(entry: &TreeEntry<'_>) -> bool {
    let name = entry.name;
    if name.iter().any(|byte| matches!(byte, b'/' | b'\\' | b'~' | 0xe2 | 0xef)) || entry.key.iter().all(|&b| b == 0) {
        return false;
    }
    if name[0] != b'.' {
        return true;
    }
    if name == b"." || name == b".." || begins(name, b".mailmap") {
        return false;
    }
    if !begins(name, b".git") {
        return true;
    }
    let rest = &name[4..];
    let Some(&first) = rest.first() else { return false };
    let is_read = begins(rest, b"modules") || begins(rest, b"attributes");
    !(matches!(first, b'.' | b' ' | b':') || first >= 0x80 || is_read || entry.kind == EntryKind::Link)
}

/// Tell whether a name in any case begins with another in lower case.
fn begins(name: &[u8], with: &[u8]) -> bool {
    name.len() >= with.len() && name[..with.len()].eq_ignore_ascii_case(with)
}

/// Checks that the entries of a tree are in order, and that no two of them have one name.
#[derive(Default)]
pub struct Order<'a> {
    last: Option<(&'a [u8], bool)>,
    /// Files with whose names all later names begin: a folder of the same name may still follow.
    files: Vec<&'a [u8]>,
}

impl<'a> Order<'a> {
    pub fn takes(&mut self, name: &'a [u8], is_folder: bool) -> bool {
        if self.last.is_some_and(|last| !is_before(last, (name, is_folder))) {
            return false;
        }
        self.last = Some((name, is_folder));
        while self.files.last().is_some_and(|file| !name.starts_with(file)) {
            self.files.pop();
        }
        if self.files.last() == Some(&name) {
            return false;
        }
        if !is_folder {
            self.files.push(name);
        }
        true
    }
}

/// Tell whether an entry comes before another in git's order: a folder sorts as if a slash ended its name.
pub fn is_before((one, one_is_folder): (&[u8], bool), (other, other_is_folder): (&[u8], bool)) -> bool {
    let most = one.len().min(other.len());
    let end = |name: &[u8], is_folder: bool| name.get(most).copied().unwrap_or(if is_folder { b'/' } else { 0 });
    match one[..most].cmp(&other[..most]) {
        std::cmp::Ordering::Equal => {
            let (a, b) = (end(one, one_is_folder), end(other, other_is_folder));
            a < b || (a == b && one.len() + usize::from(one_is_folder) < other.len() + usize::from(other_is_folder))
        }
        order => order.is_lt(),
    }
}

/// Add the references of a tree that its base lacks, and those that only the base has. Return false if the tree has an
/// unusual form or, with `judges`, may have faults; both lists are then of no use.
fn compare_trees(
    text: &[u8],
    base: &[u8],
    width: usize,
    judges: bool,
    needed: &mut References,
    removed: &mut References,
) -> bool {
    let (mut at, mut base_at) = (0, 0);
    let mut order = Order::default();
    // True while the names and modes are those of the base. Then only changed objects are checked, as in Python.
    let mut is_alike = !base.is_empty();
    while at < text.len() {
        let Some(entry) = entry_at(text, at, width) else { return false };
        if judges && !order.takes(entry.name, entry.kind == EntryKind::Folder) {
            return false;
        }
        let mut is_same = false;
        while base_at < base.len() {
            if base[base_at..].starts_with(entry.whole) {
                base_at += entry.whole.len();
                is_same = true;
                break;
            }
            let Some(old) = entry_at(base, base_at, width) else { return false };
            let head = entry.whole.len() - width;
            let has_same_head = old.whole.len() == entry.whole.len() && old.whole[..head] == entry.whole[..head];
            let place = (entry.name, entry.kind == EntryKind::Folder);
            if !has_same_head {
                is_alike = false;
                if is_before(place, (old.name, old.kind == EntryKind::Folder)) {
                    break;
                }
            }
            base_at += old.whole.len();
            if let Some(kind) = old.kind.object() {
                removed.push((kind, name(0, old.key)));
            }
            if has_same_head {
                break;
            }
        }
        at += entry.whole.len();
        if is_same {
            continue;
        }
        if judges && !is_clean(&entry) {
            return false;
        }
        if let Some(kind) = entry.kind.object() {
            needed.push((kind, name(0, entry.key)));
        }
    }
    is_alike &= text.len() == base.len();
    while base_at < base.len() {
        let Some(old) = entry_at(base, base_at, width) else { return false };
        base_at += old.whole.len();
        if let Some(kind) = old.kind.object() {
            removed.push((kind, name(0, old.key)));
        }
    }
    is_alike || !judges || is_clean_tree(text, width)
}

/// Tell whether all entries of a tree are clean.
fn is_clean_tree(text: &[u8], width: usize) -> bool {
    let mut at = 0;
    while at < text.len() {
        match entry_at(text, at, width) {
            Some(entry) if is_clean(&entry) => at += entry.whole.len(),
            _ => return false,
        }
    }
    true
}

/// Return the tree of a commit, then its parents; `None` if it cannot be parsed as in `vcs/git/format.py`.
fn read_commit(text: &[u8], width: usize) -> Option<Vec<Vec<u8>>> {
    let mut found = vec![hex_line(text, b"tree ", width)?];
    let mut at = 2 * width + 6;
    while text[at..].starts_with(b"parent ") {
        found.push(hex_line(&text[at..], b"parent ", width)?);
        at += 2 * width + 8;
    }
    Some(found)
}

/// Return the id in a line of a head.
fn hex_line(text: &[u8], label: &[u8], width: usize) -> Option<Vec<u8>> {
    let hex = text.strip_prefix(label)?.get(..2 * width)?;
    if text.get(label.len() + 2 * width) != Some(&b'\n') {
        return None;
    }
    unhex(hex)
}

/// Tell whether a commit that can be parsed has none of the faults that `vcs/git/fsck.py` looks for.
fn is_clean_commit(text: &[u8]) -> bool {
    if memchr::memchr(0, text).is_some() {
        return false;
    }
    if !text.ends_with(b"\n") && memchr::memmem::find(text, b"\n\n").is_none() {
        return false;
    }
    let mut rest = text;
    while rest.starts_with(b"tree ") || rest.starts_with(b"parent ") {
        let Some(end) = memchr::memchr(b'\n', rest) else { return false };
        rest = &rest[end + 1..];
    }
    let after = rest.strip_prefix(b"author ").and_then(after_ident);
    after.and_then(|rest| rest.strip_prefix(b"committer ")).and_then(after_ident).is_some()
}

/// Return the text after a clean line of name and date.
fn after_ident(text: &[u8]) -> Option<&[u8]> {
    let is_mark = |byte: &u8| matches!(byte, b'<' | b'>' | b'\n');
    let open = text.iter().position(is_mark)?;
    if text[open] != b'<' || open == 0 || text[open - 1] != b' ' {
        return None;
    }
    let mail = &text[open + 1..];
    let close = mail.iter().position(is_mark)?;
    let date = mail[close..].strip_prefix(b"> ")?;
    let digits = date.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits > 18 || (date[0] == b'0' && digits > 1) {
        return None;
    }
    match date.get(digits..digits + 7)? {
        [b' ', b'+' | b'-', zone @ .., b'\n'] if zone.iter().all(u8::is_ascii_digit) => Some(&date[digits + 7..]),
        _ => None,
    }
}
