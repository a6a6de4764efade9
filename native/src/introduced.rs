//! `IntroducedObjects`: finds and reads the objects that each commit of a push introduced, by the rules of
//! `vcs/git/plan.py`. Python finds those of a commit with an unusual tree, and reads large objects.

use std::collections::{HashMap, HashSet};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::bases::CANDIDATES;
use crate::encoder::Sending;
use crate::guard::run;
use crate::keys::Keys;
use crate::object_store::ObjectStore;
use crate::objects::{entry_at, is_before, EntryKind, Order, TreeEntry, BLOB, COMMIT, TREE};
use crate::texts::{Bytes, Text};

/// Bytes of the texts of one commit above which Python reads them one by one: `vcs/sending.py`.
const HELD: usize = 4 << 20;

/// The most folders inside each other.
const DEEPEST: usize = 256;

/// An object's key, filled up with zeros.
type Id = [u8; 32];

fn id_of(key: &[u8]) -> Id {
    let mut id = [0; 32];
    id[..key.len()].copy_from_slice(key);
    id
}

/// A path at which a commit differs from all its parents. `new`: `None` if the commit removed it. `before`: type and key
/// in each parent that has the path. A submodule has type 0.
struct Change {
    path: Vec<u8>,
    kind: u8,
    new: Option<Id>,
    before: Vec<(u8, Id)>,
}

/// An object to send: its key, type, path, and possible bases.
struct Introduced {
    id: Id,
    kind: u8,
    path: Vec<u8>,
    candidates: Vec<Id>,
}

/// Compares the trees of one commit with those of its parents.
struct Comparison<'a> {
    store: &'a ObjectStore,
    changes: Vec<Change>,
    /// Pairs of a folder and its olds that were compared. Equal pairs have equal differences.
    compared: HashSet<(Option<Id>, Vec<Option<Id>>)>,
}

fn type_of(entry: &TreeEntry<'_>) -> u8 {
    entry.kind.object().unwrap_or(0)
}

fn place_of<'a>(entry: &TreeEntry<'a>) -> (&'a [u8], bool) {
    (entry.name, entry.kind == EntryKind::Folder)
}

fn is_same(one: &TreeEntry<'_>, other: &TreeEntry<'_>) -> bool {
    let is_executable = |entry: &TreeEntry<'_>| entry.whole.starts_with(b"100755");
    one.whole == other.whole
        || (one.key == other.key && one.kind == other.kind && is_executable(one) == is_executable(other))
}

/// Return the entries of a tree; `None` if its form is unusual.
fn entries_of(text: &[u8], width: usize) -> Option<Vec<TreeEntry<'_>>> {
    let mut entries = Vec::with_capacity(text.len() / (width + 16));
    let mut order = Order::default();
    let mut at = 0;
    while at < text.len() {
        let entry = entry_at(text, at, width)?;
        if !order.takes(entry.name, entry.kind == EntryKind::Folder) {
            return None;
        }
        at += entry.whole.len();
        entries.push(entry);
    }
    Some(entries)
}

/// Finds the entries at the same places in another tree. Places must be asked for in git's order.
struct Cursor<'a> {
    entries: &'a [TreeEntry<'a>],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn find(&mut self, entry: &TreeEntry<'_>) -> Option<&'a TreeEntry<'a>> {
        let place = place_of(entry);
        while let Some(found) = self.entries.get(self.at) {
            if place_of(found) == place {
                return Some(found);
            }
            if !is_before(place_of(found), place) {
                break;
            }
            self.at += 1;
        }
        None
    }
}

impl Comparison<'_> {
    fn tree(&mut self, id: Option<Id>) -> Option<Text> {
        match id {
            None => Some(Text::default()),
            Some(id) => {
                self.store.read(&id[..self.store.width]).filter(|(kind, _)| *kind == TREE).map(|(_, text)| text)
            }
        }
    }

    /// Add each path below a folder that differs from all of `olds`, each folder before its content.
    fn compare(&mut self, new: Option<Id>, olds: &[Option<Id>], folder: &[u8], depth: usize) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        let width = self.store.width;
        let text = self.tree(new)?;
        let old_texts = olds.iter().map(|&old| self.tree(old)).collect::<Option<Vec<_>>>()?;
        let entries = entries_of(&text, width)?;
        let old_entries = old_texts.iter().map(|text| entries_of(text, width)).collect::<Option<Vec<_>>>()?;
        let cursors = || old_entries.iter().map(|entries| Cursor { entries, at: 0 }).collect::<Vec<_>>();
        let mut found = cursors();
        for entry in &entries {
            let was: Vec<_> = found.iter_mut().map(|cursor| cursor.find(entry)).collect();
            if !was.iter().flatten().any(|old| is_same(entry, old)) {
                self.change(folder, entry, Some(id_of(entry.key)), &was, depth)?;
            }
        }
        let (mut now, mut found) = (Cursor { entries: &entries, at: 0 }, cursors());
        for first in old_entries.first().into_iter().flatten() {
            if now.find(first).is_none() {
                let was: Vec<_> = found.iter_mut().map(|cursor| cursor.find(first)).collect();
                if was.iter().all(Option::is_some) {
                    self.change(folder, first, None, &was, depth)?;
                }
            }
        }
        Some(())
    }

    fn change(
        &mut self,
        folder: &[u8],
        entry: &TreeEntry<'_>,
        new: Option<Id>,
        was: &[Option<&TreeEntry<'_>>],
        depth: usize,
    ) -> Option<()> {
        let path = [folder, entry.name].concat();
        let kind = type_of(entry);
        let before = was.iter().flatten().filter_map(|old| old.kind.object().map(|kind| (kind, id_of(old.key))));
        self.changes.push(Change { path: path.clone(), kind, new, before: before.collect() });
        if kind != TREE {
            return Some(());
        }
        let olds: Vec<_> = was.iter().map(|old| old.map(|old| id_of(old.key))).collect();
        if self.compared.insert((new, olds.clone())) {
            self.compare(new, &olds, &[&path, &b"/"[..]].concat(), depth + 1)?;
        }
        Some(())
    }
}

/// Return the first ones of different keys.
fn first_of(ids: impl Iterator<Item = Id>) -> Vec<Id> {
    let mut first: Vec<Id> = Vec::new();
    for id in ids {
        if !first.contains(&id) {
            first.push(id);
            if first.len() == CANDIDATES {
                break;
            }
        }
    }
    first
}

/// Removed objects of a type, by name and by extension. Of each, so many are kept as `sources` may look at.
#[derive(Default)]
struct Removed<'a> {
    by_name: HashMap<(&'a [u8], u8), Vec<Id>>,
    by_extension: HashMap<(&'a [u8], u8), Vec<Id>>,
}

fn name_of(path: &[u8]) -> &[u8] {
    &path[memchr::memrchr(b'/', path).map_or(0, |at| at + 1)..]
}

fn extension_of(path: &[u8]) -> &[u8] {
    let name = name_of(path);
    &name[memchr::memrchr(b'.', name).map_or(0, |at| at + 1)..]
}

impl<'a> Removed<'a> {
    fn of(changes: &'a [Change]) -> Removed<'a> {
        let mut removed = Removed::default();
        let keep = |kept: &mut Vec<Id>, id: Id, most: usize| {
            if kept.len() < most && !kept.contains(&id) {
                kept.push(id);
            }
        };
        for change in changes.iter().filter(|change| change.new.is_none()) {
            for kind in [TREE, BLOB] {
                let Some(&(_, id)) = change.before.iter().find(|(each, _)| *each == kind) else { continue };
                keep(removed.by_name.entry((name_of(&change.path), kind)).or_default(), id, CANDIDATES);
                // If one of these has the path's name, it comes first anyway.
                let of_extension = removed.by_extension.entry((extension_of(&change.path), kind)).or_default();
                keep(of_extension, id, CANDIDATES + 1);
            }
        }
        removed
    }

    /// Return removed objects that a new path may be a copy of: those of the same name, then of the same extension.
    fn sources(&self, path: &[u8], kind: u8) -> Vec<Id> {
        let of_name = self.by_name.get(&(name_of(path), kind)).into_iter().flatten();
        let of_extension = self.by_extension.get(&(extension_of(path), kind)).into_iter().flatten();
        first_of(of_name.chain(of_extension).copied())
    }
}

/// Return the objects below a commit that it introduced: `settle` of `vcs/git/plan.py`.
fn settle(root: Id, before: &[Id], changes: &[Change]) -> Vec<Introduced> {
    let mut done: HashSet<Id> = before.iter().copied().collect();
    done.extend(changes.iter().flat_map(|change| &change.before).map(|(_, id)| *id));
    let removed = Removed::of(changes);
    let mut found = Vec::new();
    if done.insert(root) {
        found.push(Introduced { id: root, kind: TREE, path: Vec::new(), candidates: first_of(before.iter().copied()) });
    }
    for change in changes {
        let Some(id) = change.new.filter(|&id| change.kind != 0 && done.insert(id)) else { continue };
        let mut candidates = first_of(change.before.iter().filter(|(kind, _)| *kind == change.kind).map(|(_, id)| *id));
        if candidates.is_empty() {
            candidates = removed.sources(&change.path, change.kind);
        }
        found.push(Introduced { id, kind: change.kind, path: change.path.clone(), candidates });
    }
    found
}

#[pyclass(module = "smartserver._native")]
pub struct IntroducedObjects {
    store: ObjectStore,
    /// The objects that were sent, and the type of each.
    keys: Keys,
    types: Vec<u8>,
    /// Objects that must not be a base.
    excluded: HashSet<Id>,
}

/// The objects of one commit, for `SegmentWriter.put`.
#[pyclass(module = "smartserver._native")]
pub struct HeldObjects {
    pub items: Vec<Sending>,
}

/// What `of` returns of a commit.
type Found<'py> = (Option<HeldObjects>, Option<Vec<Listed<'py>>>);

/// An object in a list: its key, type, path and possible bases.
type Listed<'py> = (Bound<'py, PyBytes>, u8, Bound<'py, PyBytes>, Vec<Bound<'py, PyBytes>>);

#[derive(FromPyObject)]
struct Commit {
    #[pyo3(attribute("id"))]
    id: PyBackedBytes,
    #[pyo3(attribute("parents"))]
    parents: Vec<PyBackedBytes>,
    #[pyo3(attribute("root"))]
    root: PyBackedBytes,
}

#[pymethods]
impl IntroducedObjects {
    /// `excluded`: objects that must not be a base. Keys of another length are no objects here.
    #[new]
    fn new(store: &ObjectStore, excluded: Vec<PyBackedBytes>) -> Self {
        let excluded = excluded.iter().filter(|key| key.len() == store.width).map(|key| id_of(key)).collect();
        IntroducedObjects { store: store.share(), keys: Keys::default(), types: Vec::new(), excluded }
    }

    /// Return the type with which an object was sent; `None` if it was not sent.
    fn sent(&self, key: &[u8]) -> Option<u8> {
        self.keys.find(key).map(|number| self.types[number as usize])
    }

    /// Note that an object of a type is sent.
    fn send(&mut self, key: &[u8], kind: u8) {
        if self.keys.number(key) as usize == self.types.len() {
            self.types.push(kind);
        }
    }

    /// Return the objects that a commit introduced, with their texts, and note that they are sent. `before`: the root
    /// trees of its parents. Return only a list of them if their texts are large, or one is missing or has another type
    /// than its tree says; neither if Python must find them.
    fn of<'py>(&mut self, py: Python<'py>, commit: Commit, before: Vec<PyBackedBytes>) -> PyResult<Found<'py>> {
        let (objects, found) = run(py, || match self.find(&commit, &before) {
            None => (None, None),
            Some(found) => match self.load(&found) {
                None => (None, Some(found)),
                items => (items, None),
            },
        })?;
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        let listed = |each: &Introduced| {
            let candidates = each.candidates.iter().map(|id| bytes(&id[..self.store.width])).collect();
            (bytes(&each.id[..self.store.width]), each.kind, bytes(&each.path), candidates)
        };
        Ok((objects.map(|items| HeldObjects { items }), found.map(|found| found.iter().map(listed).collect())))
    }
}

impl IntroducedObjects {
    fn find(&mut self, commit: &Commit, before: &[PyBackedBytes]) -> Option<Vec<Introduced>> {
        let mut keys = commit.parents.iter().chain(before).chain([&commit.id, &commit.root]);
        if keys.any(|key| key.len() != self.store.width) {
            return None;
        }
        let ids = |keys: &[PyBackedBytes]| keys.iter().map(|key| id_of(key)).collect::<Vec<_>>();
        let (root, before) = (id_of(&commit.root), ids(before));
        let mut candidates = ids(&commit.parents);
        candidates.truncate(CANDIDATES);
        let mut found = vec![Introduced { id: id_of(&commit.id), kind: COMMIT, path: Vec::new(), candidates }];
        if !before.contains(&root) {
            let mut comparison = Comparison { store: &self.store, changes: Vec::new(), compared: HashSet::new() };
            let olds: Vec<_> = before.iter().map(|&id| Some(id)).collect();
            comparison.compare(Some(root), &olds, b"", 0)?;
            found.extend(settle(root, &before, &comparison.changes));
        }
        found.iter_mut().for_each(|each| each.candidates.retain(|id| !self.excluded.contains(id)));
        Some(found)
    }

    /// Return the objects with the texts of those that were not sent before; `None` if Python must read them.
    fn load(&mut self, found: &[Introduced]) -> Option<Vec<Sending>> {
        let mut items = Vec::with_capacity(found.len());
        let mut size = 0;
        for each in found {
            let key = &each.id[..self.store.width];
            let mut text = None;
            match self.sent(key) {
                Some(kind) if kind == each.kind => {}
                Some(_) => return None,
                None => {
                    let (kind, read) = self.store.read(key)?;
                    size += read.len();
                    if kind != each.kind || size > HELD {
                        return None;
                    }
                    text = Some(Bytes::Own(read));
                }
            }
            let candidates = each.candidates.iter().map(|id| (id[..self.store.width].to_vec(), None)).collect();
            items.push(Sending::object(each.kind, key, candidates, &each.path, text));
        }
        found.iter().for_each(|each| self.send(&each.id[..self.store.width], each.kind));
        Some(items)
    }
}
