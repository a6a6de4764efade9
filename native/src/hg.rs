//! Mercurial's records: their nodes and references, as `vcs/hg/format.py` and `vcs/hg/system.py` read them. `None`
//! means that only Python can tell.

use sha1::{Digest, Sha1};

use crate::delta::Ends;
use crate::segment::Segment;
use crate::system::{name, unhex, References, Version, ANY};

pub const CHANGESET: u8 = 0;
pub const MANIFEST: u8 = 1;
pub const FILE: u8 = 2;
pub const NODE_BYTES: usize = 20;
pub const NULL: &[u8] = &[0; NODE_BYTES];
const CENSORED: &[u8] = b"\x01\ncensored:";
const MARK: &[u8] = b"\x01\n";

/// A date of at most so many digits can surely be shown.
const DIGITS: usize = 15;

/// Return the two parents in a meta, null for a missing one; `None` if it is no meta.
pub fn both(meta: &[u8]) -> Option<(&[u8], &[u8])> {
    match meta.len() {
        0 => Some((NULL, NULL)),
        NODE_BYTES if meta != NULL => Some((meta, NULL)),
        40 if &meta[NODE_BYTES..] != NULL => Some(meta.split_at(NODE_BYTES)),
        _ => None,
    }
}

/// Return the parents that are not null.
fn parents(meta: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let (first, second) = both(meta)?;
    Some([first, second].into_iter().filter(|&parent| parent != NULL))
}

/// Tell whether the key of a record is right: its node or, for a file's version, its path and node.
pub fn has_key(kind: u8, key: &[u8], meta: &[u8], text: &[u8]) -> bool {
    let Some((first, second)) = both(meta) else { return false };
    let node =
        Sha1::new().chain_update(first.min(second)).chain_update(first.max(second)).chain_update(text).finalize();
    if kind != FILE {
        return node[..] == *key;
    }
    path_of(key).is_some_and(|path| key[path.len() + 1..] == node[..])
}

/// Return the path in the key of a file's version.
pub fn path_of(key: &[u8]) -> Option<&[u8]> {
    let (path, rest) = key.split_at(key.len().checked_sub(NODE_BYTES + 1)?);
    let is_path = !path.is_empty() && rest[0] == 0 && !path.iter().any(|byte| matches!(byte, 0 | b'\n' | b'\r'));
    is_path.then_some(path)
}

/// Add the references of a record, and those that only its base has. Return whether the record is the revision's own,
/// or `None` if Python must check it.
pub fn compare(
    segment: &Segment<'_>,
    record: &Version<'_>,
    base: Option<&Version<'_>>,
    needed: &mut References,
    removed: &mut References,
) -> Option<bool> {
    match record.kind {
        CHANGESET => {
            // Python checks another changeset, or one that closes its branch, since its tip must say so.
            if record.key != segment.revision || closes_branch(record.text) {
                return None;
            }
            if !parents(record.meta)?.eq(segment.parents.iter().map(|parent| parent.id)) {
                return None;
            }
            add_manifest(record, needed)?;
            base.map_or(Some(()), |base| add_manifest(base, removed))?;
            Some(true)
        }
        MANIFEST => {
            compare_manifests(record.text, base.map_or(b"", |base| base.text), needed, removed)?;
            needed.extend(parents(record.meta)?.map(|parent| (ANY, name(MANIFEST, parent))));
            Some(false)
        }
        FILE => {
            add_parents_of_file(record, needed)?;
            base.map_or(Some(()), |base| add_parents_of_file(base, removed))?;
            Some(false)
        }
        _ => None,
    }
}

fn add_manifest(changeset: &Version<'_>, found: &mut References) -> Option<()> {
    let manifest = manifest_of(changeset.text)?;
    if manifest != NULL {
        found.push((ANY, name(MANIFEST, &manifest)));
    }
    Some(())
}

/// Return the manifest that a changeset names.
fn manifest_of(text: &[u8]) -> Option<Vec<u8>> {
    let mut lines = text.splitn(4, |&byte| byte == b'\n');
    let (manifest, _user, dated, rest) = (lines.next()?, lines.next()?, lines.next()?, lines.next()?);
    let mut said = dated.splitn(3, |&byte| byte == b' ');
    let (date, _offset) = (said.next()?, said.next()?);
    let digits = date.strip_prefix(b"-").unwrap_or(date);
    if digits.is_empty() || digits.len() > DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    if !rest.starts_with(b"\n") {
        memchr::memmem::find(rest, b"\n\n")?;
    }
    if let Some(extras) = said.next() {
        let are_named = extras.split(|&byte| byte == 0).all(|each| each.is_empty() || each.contains(&b':'));
        if !are_named || !are_escapes_right(extras) {
            return None;
        }
    }
    node_of(manifest)
}

/// Tell whether each backslash begins a valid escape.
fn are_escapes_right(extras: &[u8]) -> bool {
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', &extras[at..]) {
        at += found + 2;
        match extras.get(at - 1) {
            None | Some(0) => return false,
            Some(b'x') if !extras.get(at..at + 2).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) => {
                return false;
            }
            _ => {}
        }
    }
    true
}

fn closes_branch(text: &[u8]) -> bool {
    let extras = text.split(|&byte| byte == b'\n').nth(2).and_then(|line| line.splitn(3, |&byte| byte == b' ').nth(2));
    extras.is_some_and(|extras| extras.split(|&byte| byte == 0).any(|each| each.starts_with(b"close:")))
}

fn node_of(digits: &[u8]) -> Option<Vec<u8>> {
    (digits.len() == 2 * NODE_BYTES).then(|| unhex(digits)).flatten()
}

fn add_parents_of_file(file: &Version<'_>, found: &mut References) -> Option<()> {
    let path = path_of(file.key)?;
    // With a first parent, Mercurial does not look at the source of a copy that the text names.
    if file.text.starts_with(CENSORED) || (both(file.meta)?.0 == NULL && !is_copy_readable(file.text)) {
        return None;
    }
    found.extend(parents(file.meta)?.map(|parent| (ANY, file_name(path, parent))));
    Some(())
}

fn file_name(path: &[u8], node: &[u8]) -> Vec<u8> {
    [&[FILE], path, &[0], node].concat()
}

/// Tell whether the metadata at the start of a file's version, if any, can be read.
fn is_copy_readable(text: &[u8]) -> bool {
    let Some(rest) = text.strip_prefix(MARK) else { return true };
    let Some(end) = memchr::memmem::find(rest, MARK) else { return false };
    rest[..end].split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).all(|line| {
        let has_value = memchr::memmem::find(line, b": ").is_some();
        has_value && line.strip_prefix(b"copyrev: ").map_or(true, |node| node_of(node).is_some())
    })
}

/// Add the files in lines that only the new manifest has, and those in lines that only the old one has. If the old one
/// is sound, so is the new one.
fn compare_manifests(new: &[u8], old: &[u8], needed: &mut References, removed: &mut References) -> Option<()> {
    if [new, old].into_iter().any(|text| text.last().is_some_and(|&last| last != b'\n')) {
        return None;
    }
    let (start, end, old_end) = differing_lines(new, old);
    let (mut fresh, mut gone) = (lines(&new[start..end]).peekable(), lines(&old[start..old_end]).peekable());
    let (mut last, mut last_gone) = (lines(&new[..start]).next_back(), None);
    loop {
        let (is_fresh, is_gone) = match (fresh.peek().copied(), gone.peek().copied()) {
            (None, None) => break,
            (Some(line), Some(other)) => (line <= other, line >= other),
            (line, _) => (line.is_some(), line.is_none()),
        };
        if is_fresh {
            let line = in_order(last, fresh.next()?)?;
            if !is_gone {
                add_file(line, needed)?;
            }
            last = Some(line);
        }
        if is_gone {
            let line = in_order(last_gone, gone.next()?)?;
            if !is_fresh {
                add_file(line, removed)?;
            }
            last_gone = Some(line);
        }
    }
    lines(&new[end..]).next().map_or(Some(()), |next| in_order(last, next).map(|_| ()))
}

/// Return the lines of a text that ends with a newline.
fn lines(text: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let text = text.strip_suffix(b"\n");
    text.into_iter().flat_map(|text| text.split(|&byte| byte == b'\n'))
}

/// Return a line if it comes after `last` and has another path.
fn in_order<'a>(last: Option<&'a [u8]>, line: &'a [u8]) -> Option<&'a [u8]> {
    let path = |line: &'a [u8]| memchr::memchr(0, line).map(|nul| &line[..nul]);
    match last {
        Some(last) if last >= line || path(last) == path(line) => None,
        _ => Some(line),
    }
}

/// Return the start of the whole lines in which two texts differ, and their end in each text.
pub fn differing_lines(new: &[u8], old: &[u8]) -> (usize, usize, usize) {
    let Ends { head: ahead, tail: behind } = Ends::of(new, old);
    let start = memchr::memrchr(b'\n', &new[..ahead]).map_or(0, |at| at + 1);
    let mut end = new.len() - behind;
    let is_begin = |text: &[u8], at: usize| at == 0 || text[at - 1] == b'\n';
    // The common end must begin with a line that is whole in both texts, and no part of a longer one.
    if !(is_begin(new, end) && is_begin(old, old.len() - behind)) {
        end = memchr::memchr(b'\n', &new[end..]).map_or(new.len(), |at| end + at + 1);
    }
    (start, end, old.len() - (new.len() - end))
}

/// Add the file of a line: path, NUL, node in hex, a flag.
fn add_file(line: &[u8], found: &mut References) -> Option<()> {
    let nul = memchr::memchr(0, line)?;
    let (path, rest) = (&line[..nul], &line[nul + 1..]);
    let (node, flag) = (rest.get(..2 * NODE_BYTES)?, &rest[2 * NODE_BYTES..]);
    if !matches!(flag, b"" | b"x" | b"l") || node.iter().any(u8::is_ascii_uppercase) || !is_inside(path) {
        return None;
    }
    let node = node_of(node)?;
    if node != NULL {
        found.push((ANY, file_name(path, &node)));
    }
    Some(())
}

/// Tell whether a path can be checked out: no part of it is empty, `.` or `..`, and the first is not Mercurial's own.
fn is_inside(path: &[u8]) -> bool {
    let is_folder = |first: &[u8]| first.eq_ignore_ascii_case(b".hg") || first.eq_ignore_ascii_case(b".hg.");
    let mut parts = path.split(|&byte| byte == b'/');
    !path.contains(&b'\r')
        && !parts.clone().next().is_some_and(is_folder)
        && parts.all(|part| !matches!(part, b"" | b"." | b".."))
}
