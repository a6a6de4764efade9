//! Breezy's records of format 2a: their checks and references, as `vcs/bzr/pages.py`, `vcs/bzr/revision.py` and
//! `vcs/bzr/system.py` read them. `None` means that only Python can tell, as for all that Breezy does not write so.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};
use sha1::{Digest, Sha1};

use crate::delta::{common_end, common_start};
use crate::encoder::check_of;
use crate::guard::run;
use crate::segment::{Entry, Kind, Segment};
use crate::system::{name, References, Version, ANY};

const REVISION: u8 = 0;
const SIGNATURE: u8 = 1;
const INVENTORY: u8 = 2;
pub const CHK: u8 = 3;
const TEXT: u8 = 4;

/// Bytes of a line of a page of pages, and of the key in it.
const CHILD_BYTES: usize = 48;
const MAX_CHILDREN: usize = 255;
const KEY: usize = 45;

const MAX_PAGE: usize = 4 << 20;
const SHARED_BYTES: usize = 1 << 26;
const MAX_PROPERTIES: usize = 65_536;

pub const KINDS: [Kind; 5] = [
    Kind { check: 16, base: true },
    Kind { check: 16, base: false },
    Kind { check: 16, base: true },
    Kind { check: 0, base: true },
    Kind { check: 16, base: true },
];

/// The start of the check of each kind: its name.
const BEGINS: [&[u8]; 5] = [b"\x08revision", b"\x09signature", b"\x09inventory", b"", b"\x04text"];

/// Tell whether a text matches the key or the check of its record.
pub fn has_key(entry: &Entry<'_>, text: &[u8]) -> bool {
    if entry.kind != CHK {
        return check_of(BEGINS[entry.kind as usize], entry.key, entry.meta, text) == *entry.check;
    }
    let node = Sha1::digest(text);
    let hex = node.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| b"0123456789abcdef"[digit as usize]);
    entry.key.len() == KEY && entry.key.iter().copied().eq(b"sha1:".iter().copied().chain(hex))
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
    let Version { kind, key, meta, text } = *record;
    if matches!(kind, REVISION | SIGNATURE | INVENTORY) && key != segment.revision {
        return None;
    }
    let is_meta_right = match kind {
        INVENTORY | TEXT => meta.is_empty() || meta.split(|&byte| byte == 0).all(|id| !id.is_empty()),
        _ => meta.is_empty(),
    };
    if !is_meta_right {
        return None;
    }
    match kind {
        REVISION => {
            let mut parents = segment.parents.iter().map(|parent| parent.id);
            let mut reader = Reader { text, at: 0 };
            if reader.revision(&mut parents)? != key || parents.next().is_some() {
                return None;
            }
            needed.push((ANY, name(INVENTORY, key)));
        }
        INVENTORY => needed.extend(roots(text, key)?.map(|page| (ANY, name(CHK, page)))),
        CHK => compare_pages(text, base.map_or(b"", |base| base.text), needed, removed)?,
        _ => {}
    }
    Some(kind == REVISION)
}

/// Reads expected parts of a text, one after the other.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn skip(&mut self, said: &[u8]) -> Option<()> {
        let is_next = self.text[self.at..].starts_with(said);
        self.at += if is_next { said.len() } else { 0 };
        is_next.then_some(())
    }

    /// Return the bytes before the next `end`, and skip both.
    fn until(&mut self, end: u8) -> Option<&'a [u8]> {
        let found = &self.text[self.at..];
        let found = &found[..memchr::memchr(end, found)?];
        self.at += found.len() + 1;
        Some(found)
    }

    fn line(&mut self) -> Option<&'a [u8]> {
        self.until(b'\n')
    }

    /// Read a number of 1 to `most` digits in its own line.
    fn number(&mut self, most: usize) -> Option<u64> {
        let digits = self.line()?;
        let is_number = (1..=most).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
        is_number.then(|| digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
    }

    /// Read a string in bencode.
    fn string(&mut self) -> Option<&'a [u8]> {
        let digits = self.until(b':')?;
        let is_length = (1..=10).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
        if !is_length || (digits[0] == b'0' && digits.len() > 1) {
            return None;
        }
        let length = digits.iter().fold(0, |length, digit| length * 10 + usize::from(digit - b'0'));
        let found = self.text.get(self.at..self.at + length)?;
        self.at += length;
        Some(found)
    }

    /// Read a revision with its fields in the usual order, and return its id. Its parents must be the next of
    /// `parents`.
    fn revision(&mut self, parents: &mut dyn Iterator<Item = &[u8]>) -> Option<&'a [u8]> {
        self.skip(b"ll6:formati10eel9:committer")?;
        self.string()?;
        self.skip(b"e")?;
        if self.skip(b"l8:timezonei").is_some() {
            let digits = self.until(b'e')?;
            let digits = digits.strip_prefix(b"-").filter(|digits| *digits != b"0").unwrap_or(digits);
            let is_number = (1..=19).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
            if !is_number || (digits[0] == b'0' && digits.len() > 1) {
                return None;
            }
            self.skip(b"e")?;
        }
        self.skip(b"l10:propertiesd")?;
        let mut last: Option<&[u8]> = None;
        let mut count = 0;
        while self.skip(b"e").is_none() {
            let property = self.string()?;
            count += 1;
            if count > MAX_PROPERTIES || last.is_some_and(|last| last >= property) {
                return None;
            }
            last = Some(property);
            self.string()?;
        }
        self.skip(b"el9:timestamp")?;
        self.string()?;
        self.skip(b"el11:revision-id")?;
        let id = self.string()?;
        self.skip(b"el10:parent-idsl")?;
        while self.skip(b"e").is_none() {
            if Some(self.string()?) != parents.next() {
                return None;
            }
        }
        self.skip(b"el14:inventory-sha1")?;
        self.string()?;
        self.skip(b"el7:message")?;
        self.string()?;
        (&self.text[self.at..] == b"ee").then_some(id)
    }
}

/// Return the keys of the root pages of the maps in the inventory of a revision.
fn roots<'a>(text: &'a [u8], revision: &[u8]) -> Option<impl Iterator<Item = &'a [u8]>> {
    let mut reader = Reader { text, at: 0 };
    reader.skip(b"chkinventory:\nsearch_key_name: hash-255-way\nroot_id: ")?;
    reader.line()?;
    reader.skip(b"parent_id_basename_to_file_id: ")?;
    let names = reader.line()?;
    reader.skip(b"revision_id: ")?;
    let named = reader.line()?;
    reader.skip(b"id_to_entry: ")?;
    let entries = reader.line()?;
    let is_right = reader.at == text.len() && named == revision && is_page_key(names) && is_page_key(entries);
    is_right.then(|| [entries, names].into_iter())
}

fn is_node(page: &[u8]) -> bool {
    page.starts_with(b"chknode:\n")
}

fn is_page_key(key: &[u8]) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    key.len() == KEY && key.starts_with(b"sha1:") && key[5..].iter().all(is_digit)
}

/// Add the references of a page that its base does not have, and those that only the base has. An empty `old` is no
/// base.
fn compare_pages(new: &[u8], old: &[u8], needed: &mut References, removed: &mut References) -> Option<()> {
    if new.len() > MAX_PAGE || old.len() > MAX_PAGE {
        return None;
    }
    if is_node(new) {
        return compare_nodes(new, if is_node(old) { old } else { b"" }, needed, removed);
    }
    let head = Leaf::open(new)?;
    if head.parts == 2 {
        return head.check_names();
    }
    let old = if old.is_empty() || is_node(old) { None } else { Leaf::open(old) };
    compare_leaves(head, old.filter(|old| old.parts == 1), needed, removed)
}

/// Return the pages of a page of pages, by the bytes under which they are found.
fn children(text: &[u8]) -> Option<[Option<&[u8]>; 256]> {
    let mut found = [None; 256];
    if text.is_empty() {
        return Some(found);
    }
    let mut head = Reader { text, at: 0 };
    head.skip(b"chknode:\n")?;
    head.number(10)?;
    if !matches!(head.line()?, b"1" | b"2") {
        return None;
    }
    head.number(10)?;
    let is_prefix = head.line()?.len() <= 8;
    let lines = &text[head.at..];
    if !is_prefix || lines.is_empty() || lines.len() % CHILD_BYTES != 0 || lines.len() > MAX_CHILDREN * CHILD_BYTES {
        return None;
    }
    for line in lines.chunks_exact(CHILD_BYTES) {
        let key = &line[2..CHILD_BYTES - 1];
        let is_line = line[0] != b'\n' && line[1] == 0 && line[CHILD_BYTES - 1] == b'\n' && is_page_key(key);
        if !is_line || found[line[0] as usize].replace(key).is_some() {
            return None;
        }
    }
    Some(found)
}

fn compare_nodes(new: &[u8], old: &[u8], needed: &mut References, removed: &mut References) -> Option<()> {
    for (page, before) in children(new)?.into_iter().zip(children(old)?) {
        if page != before {
            needed.extend(page.map(|key| (ANY, name(CHK, key))));
            removed.extend(before.map(|key| (ANY, name(CHK, key))));
        }
    }
    Some(())
}

/// A page of items.
struct Leaf<'a> {
    reader: Reader<'a>,
    /// The number of parts of a key.
    parts: usize,
    /// The number of items that the head says.
    count: u64,
    /// The common prefix of all keys.
    prefix: &'a [u8],
}

impl<'a> Leaf<'a> {
    fn open(text: &'a [u8]) -> Option<Leaf<'a>> {
        let mut reader = Reader { text, at: 0 };
        reader.skip(b"chkleaf:\n")?;
        reader.number(10)?;
        let parts = match reader.line()? {
            b"1" => 1,
            b"2" => 2,
            _ => return None,
        };
        let count = reader.number(10)?;
        let prefix = reader.line()?;
        let cuts = prefix.iter().filter(|&&byte| byte == 0).count();
        let is_right = cuts < parts && count.checked_mul(prefix.len() as u64)? <= SHARED_BYTES as u64;
        is_right.then_some(Leaf { reader, parts, count, prefix })
    }

    fn is_at_end(&self) -> bool {
        self.reader.at == self.reader.text.len()
    }

    /// Check that all items have the form of those in the map of names.
    fn check_names(mut self) -> Option<()> {
        let cuts = self.parts - self.prefix.iter().filter(|&&byte| byte == 0).count();
        let mut count = 0;
        while !self.is_at_end() {
            let (key, value) = (self.reader.line()?, self.reader.line()?);
            let is_key = key.ends_with(b"\x001") && key.iter().filter(|&&byte| byte == 0).count() == cuts;
            if !is_key || value.is_empty() || value.contains(&0) {
                return None;
            }
            count += 1;
        }
        (count == self.count).then_some(())
    }

    /// Read the next item of the map of entries. Return its file id and revision; `None` at the end, or if it is wrong.
    fn next_entry(&mut self) -> Option<Item<'a>> {
        let reader = &mut self.reader;
        let rest = reader.until(0)?;
        let start = reader.at;
        let (lines, kind) = (reader.line()?, reader.until(b':')?);
        reader.skip(b" ")?;
        let (file_id, _parent, _name, revision) = (reader.line()?, reader.line()?, reader.line()?, reader.line()?);
        let mut found: &[u8] = b"";
        match (lines, kind) {
            (b"7", b"file") => {
                let sha1 = reader.line()?;
                if sha1.len() != 40 || !sha1.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
                    return None;
                }
                found = sha1;
                let size = reader.line()?;
                let is_size = (1..=19).contains(&size.len()) && size.iter().all(u8::is_ascii_digit);
                if !is_size || !matches!(reader.line()?, b"Y" | b"N") {
                    return None;
                }
            }
            (b"4", b"dir") => {}
            (b"5", b"symlink" | b"tree") => {
                reader.line()?;
            }
            _ => return None,
        }
        let said = &reader.text[start..reader.at];
        let is_key = file_id.strip_prefix(self.prefix) == Some(rest);
        let is_right = is_key && !file_id.is_empty() && !revision.is_empty() && memchr::memchr(0, said).is_none();
        is_right.then_some(Item { file_id, revision, sha1: found })
    }

    /// Read the next item, whose file id must come after that of the last one.
    fn next_after(&mut self, last: &[u8]) -> Option<Item<'a>> {
        self.next_entry().filter(|item| item.file_id > last)
    }
}

#[derive(Clone, Copy, PartialEq)]
struct Item<'a> {
    file_id: &'a [u8],
    revision: &'a [u8],
    /// The SHA-1 of a file's text, in hex; empty for all else.
    sha1: &'a [u8],
}

impl Item<'_> {
    fn text(&self) -> (u8, Vec<u8>) {
        (ANY, [&[TEXT], self.file_id, &[0], self.revision].concat())
    }
}

/// Compare the items of two leaves. Both are sorted by file id, as Breezy writes them.
fn compare_leaves(
    mut new: Leaf<'_>,
    mut old: Option<Leaf<'_>>,
    needed: &mut References,
    removed: &mut References,
) -> Option<()> {
    let mut count = 0;
    let mut last: &[u8] = b"";
    let mut before = old.as_mut().and_then(Leaf::next_entry);
    while !new.is_at_end() {
        let item = new.next_after(last)?;
        last = item.file_id;
        count += 1;
        while let Some(gone) = before.filter(|before| before.file_id < item.file_id) {
            removed.push(gone.text());
            before = old.as_mut().and_then(Leaf::next_entry);
        }
        match before.filter(|before| before.file_id == item.file_id) {
            Some(same) => {
                if same.revision != item.revision {
                    removed.push(same.text());
                    needed.push(item.text());
                }
                before = old.as_mut().and_then(Leaf::next_entry);
            }
            None => needed.push(item.text()),
        }
    }
    while let Some(gone) = before {
        removed.push(gone.text());
        before = old.as_mut().and_then(Leaf::next_entry);
    }
    (count == new.count).then_some(())
}

/// The pages and the items that a page names.
type Named<'a> = (Vec<&'a [u8]>, Vec<Item<'a>>);

/// The same for Python: keys of pages, and the SHA-1 of each text by its key.
type NamedKeys<'py> = (Vec<Bound<'py, PyBytes>>, Bound<'py, PyDict>);

/// Return the pages that a page names, or its texts and the SHA-1 of each. `base` was read before: what it names may be
/// left out. `None` means that Python must read the page.
#[pyfunction]
pub fn page_references<'py>(
    py: Python<'py>,
    text: PyBackedBytes,
    base: Option<PyBackedBytes>,
) -> PyResult<Option<NamedKeys<'py>>> {
    let Some((pages, items)) = run(py, || named_by(&text, base.as_deref()))? else { return Ok(None) };
    let texts = PyDict::new(py);
    for item in items {
        texts
            .set_item(PyBytes::new(py, &[item.file_id, b"\0", item.revision].concat()), PyBytes::new(py, item.sha1))?;
    }
    Ok(Some((pages.into_iter().map(|page| PyBytes::new(py, page)).collect(), texts)))
}

/// Return what a page names, but not all that its base names, too.
fn named_by<'a>(new: &'a [u8], base: Option<&'a [u8]>) -> Option<Named<'a>> {
    let old = base.unwrap_or(b"");
    if new.len() > MAX_PAGE || old.len() > MAX_PAGE {
        return None;
    }
    if is_node(new) {
        let before = children(if is_node(old) { old } else { b"" })?;
        let pages = children(new)?.into_iter().zip(before).filter_map(|(page, old)| page.filter(|_| page != old));
        return Some((pages.collect(), Vec::new()));
    }
    let head = Leaf::open(new)?;
    let old = match base.filter(|old| !is_node(old)) {
        None => None,
        Some(old) => Some(Leaf::open(old)?).filter(|old| (old.parts, old.prefix) == (head.parts, head.prefix)),
    };
    match (head.parts, old) {
        (2, None) => head.check_names().map(|()| (Vec::new(), Vec::new())),
        (2, Some(_)) => Some((Vec::new(), Vec::new())),
        (_, old) => new_items(head, old).map(|items| (Vec::new(), items)),
    }
}

/// Return the items that only `new` has. Those at both ends that `old` has, too, are not read.
fn new_items<'a>(mut new: Leaf<'a>, old: Option<Leaf<'a>>) -> Option<Vec<Item<'a>>> {
    let mut before = Vec::new();
    let mut count_before = 0;
    if let Some(mut old) = old {
        skip_common(&mut new.reader, &mut old.reader);
        while !old.is_at_end() {
            before.push(old.next_entry()?);
        }
        count_before = old.count;
    }
    let (mut found, mut count) = (Vec::new(), 0);
    let mut last: &[u8] = b"";
    let mut others = before.iter().peekable();
    while !new.is_at_end() {
        let item = new.next_after(last)?;
        last = item.file_id;
        count += 1;
        while others.next_if(|other| other.file_id < item.file_id).is_some() {}
        if others.peek() != Some(&&item) {
            found.push(item);
        }
    }
    (new.count + before.len() as u64 == count_before + count).then_some(found)
}

/// Leave out the items at the start and the end that are the same in two leaves of entries. Only the first line of an
/// item has a NUL.
fn skip_common(new: &mut Reader<'_>, old: &mut Reader<'_>) {
    let (items, others) = (&new.text[new.at..], &old.text[old.at..]);
    // The last item that begins in the common start may end differently.
    let same = &others[..common_start(items, others)];
    let ahead = memchr::memrchr(0, same).and_then(|nul| memchr::memrchr(b'\n', &same[..nul])).map_or(0, |end| end + 1);
    let (items, others) = (&items[ahead..], &others[ahead..]);
    // The first item in the common end may begin differently.
    let same = &others[others.len() - common_end(items, others, items.len().min(others.len()))..];
    let second = memchr::memchr(0, same).and_then(|nul| Some(nul + 1 + memchr::memchr(0, &same[nul + 1..])?));
    let begin = second.and_then(|nul| memchr::memrchr(b'\n', &same[..nul])).map(|end| end + 1);
    let behind = begin.map_or(0, |begin| same.len() - begin);
    (new.text, new.at) = (&items[..items.len() - behind], 0);
    (old.text, old.at) = (&others[..others.len() - behind], 0);
}
