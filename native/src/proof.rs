//! The proof of one segment, as `store/incoming.py` and `store/proof.py` make it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::frame::decompress;
use crate::index::{EXTERNAL, NO_BASE};
use crate::objects::{compare_trees, has_id, id, is_clean_commit, read_commit, Id, References, BLOB, COMMIT, TREE};
use crate::segment::{decode, Entry, Segment, OF_HASHES};
use crate::stored::Row;
use crate::stream::{kib, Batch, Parents, Record, Stop, Stream, NONE};
use crate::texts::Text;

/// Limits of `store/incoming.py`: Python encodes a record anew that would lie deeper.
const MAX_STORED_DEPTH: u32 = 64;
const MAX_CHAIN_KIB: u32 = 1 << 20;

/// Bytes of a text and its base together, and of the texts of a segment, over which Python takes its turn.
const LARGE: usize = 32 << 20;

/// The place of a record's base.
#[derive(Clone, Copy)]
enum Base {
    None,
    /// A record of its segment.
    Own(usize),
    /// A name of the stream.
    Stream(u32),
    /// A name of a stored record.
    Stored(u32),
}

/// A record of the segment at hand, before that is known to be right.
struct New<'a> {
    entry: Entry<'a>,
    name: Vec<u8>,
    base: u32,
    depth: u32,
    chain: u32,
    lineage: u32,
    at: usize,
    mark: u128,
    /// None of a repeat.
    text: Option<Text>,
}

impl New<'_> {
    fn row(&self) -> Row {
        Row { depth: self.depth, chain: self.chain, lineage: self.lineage, length: self.entry.length }
    }
}

struct Proof<'a> {
    segment: &'a Segment<'a>,
    parents: Parents,
    news: Vec<New<'a>>,
    own: HashMap<&'a [u8], usize>,
    /// Types of bases that ancestors brought.
    bases: HashMap<Id, u8>,
    granted: HashSet<(u8, Id)>,
    needed: References,
    has_own_record: bool,
}

impl Proof<'_> {
    /// Tell whether a base that an ancestor brought refers to a record.
    fn grants(&self, key: &[u8]) -> bool {
        [COMMIT, TREE, BLOB].iter().any(|&each| self.granted.contains(&(each, id(key))))
    }
}

impl Stream {
    /// Prove a segment, and take it.
    pub fn prove(&mut self, batch: &Batch<'_>, at: u64) -> Result<(), Stop> {
        let block = &batch.blocks[self.segments.len() - batch.first];
        let segment = decode(block, &OF_HASHES).ok_or(Stop::Turn)?;
        if segment.revision.len() != self.width || self.revisions.find(segment.revision).is_some() {
            return Err(Stop::Turn);
        }
        let parents = self.parents_of(&segment)?;
        if segment.parents.iter().any(|parent| parent.absent) || parents.stored.contains(&None) {
            return Err(Stop::Turn);
        }
        if segment.entries.iter().map(|entry| entry.length).sum::<usize>() > LARGE {
            return Err(Stop::Turn);
        }
        let count = segment.entries.len();
        let mut proof = Proof {
            segment: &segment,
            parents,
            news: Vec::with_capacity(count),
            own: HashMap::with_capacity(count),
            bases: HashMap::new(),
            granted: HashSet::new(),
            needed: Vec::new(),
            has_own_record: false,
        };
        let mut frame_at = segment.frames_at;
        for entry in &segment.entries {
            let frame = &block[frame_at..frame_at + entry.frame_length];
            self.prove_record(batch, &mut proof, entry, frame, frame_at)?;
            frame_at += entry.frame_length;
        }
        if !proof.has_own_record {
            return Err(Stop::Turn);
        }
        self.prove_references(&mut proof)?;
        self.ancestry.steps += (1 + segment.parents.len() + count) as u64;
        self.take(&segment, proof.parents, proof.news, at, block.len());
        Ok(())
    }

    fn prove_record<'a>(
        &mut self,
        batch: &Batch<'_>,
        proof: &mut Proof<'a>,
        entry: &Entry<'a>,
        frame: &'a [u8],
        at: usize,
    ) -> Result<(), Stop> {
        let [kind] = *entry.meta else { return Err(Stop::Turn) };
        if entry.kind != 0 || entry.key.len() != self.width || !matches!(kind, COMMIT | TREE | BLOB) {
            return Err(Stop::Turn);
        }
        let mut new = New {
            entry: *entry,
            name: [&[0], entry.key].concat(),
            base: NO_BASE,
            depth: 0,
            chain: kib(entry.length),
            lineage: 0,
            at,
            mark: if kind == BLOB { self.mark(frame) } else { 0 },
            text: None,
        };
        let base = match entry.base {
            Some(key) => self.rest_on(proof, key, &mut new)?,
            None => Base::None,
        };
        if kind == BLOB && self.is_repeat(entry, new.mark) {
            // Its bytes were proved before, on the same base, whose text was used now.
            entry.base.and_then(|key| self.find(key)).and_then(|name| self.texts.get(name));
        } else {
            new.text = Some(self.prove_text(batch, proof, &new, kind, base, frame)?);
        }
        proof.own.insert(entry.key, proof.news.len());
        proof.news.push(new);
        Ok(())
    }

    /// Let a record rest on the first copy of its base, which this revision or an ancestor must have brought.
    fn rest_on(&mut self, proof: &Proof<'_>, key: &[u8], new: &mut New<'_>) -> Result<Base, Stop> {
        let known = self.find(key);
        let stored = self.stored_row(key);
        let own = proof.own.get(key).copied();
        let first = known.map(|name| self.copies[name as usize].0);
        if own.is_none() && !proof.grants(key) {
            let is_here = match known {
                Some(name) => self.is_reached(name, &proof.parents.stream)?,
                None => false,
            };
            if !is_here && (stored.is_none() || !self.is_below(&proof.parents, key)?) {
                return Err(Stop::Turn);
            }
        }
        let (base, number, row) = match (stored, own, known.zip(first)) {
            (Some((number, row)), _, _) => (Base::Stored(number), EXTERNAL | number, row),
            (None, Some(own), None) => (Base::Own(own), (self.records.len() + own) as u32, proof.news[own].row()),
            (None, Some(own), Some((_, first))) => (Base::Own(own), first, self.records[first as usize].row()),
            (None, None, Some((name, first))) => (Base::Stream(name), first, self.records[first as usize].row()),
            (None, None, None) => return Err(Stop::Turn),
        };
        new.base = number;
        new.depth = row.depth + 1;
        new.chain += row.chain;
        new.lineage = row.lineage + 1;
        if new.depth > MAX_STORED_DEPTH || new.chain > MAX_CHAIN_KIB || new.entry.length + row.length > LARGE {
            return Err(Stop::Turn);
        }
        Ok(base)
    }

    /// Decode a text, and prove that it is what its key says, and note what it refers to.
    fn prove_text(
        &mut self,
        batch: &Batch<'_>,
        proof: &mut Proof<'_>,
        new: &New<'_>,
        kind: u8,
        base: Base,
        frame: &[u8],
    ) -> Result<Text, Stop> {
        let (entry, width) = (&new.entry, self.width);
        let (kind_of_base, base) = match base {
            Base::None => (0, Text::default()),
            Base::Stream(name) => (self.type_of(name), self.text(batch, name)?),
            Base::Stored(number) => self.stored_record(number)?,
            Base::Own(number) => match &proof.news[number] {
                New { text: Some(text), entry, .. } => (entry.meta[0], Arc::clone(text)),
                New { entry, .. } => (entry.meta[0], self.text(batch, self.find(entry.key).ok_or(Stop::Turn)?)?),
            },
        };
        let is_granting = entry.base.is_some_and(|key| !proof.own.contains_key(key));
        if let (true, Some(key)) = (is_granting, entry.base) {
            proof.bases.insert(id(key), kind_of_base);
        }
        let length = entry.length;
        // What a tree leaves out of a large base is looked at, too.
        self.spend(if kind == TREE { length + base.len().saturating_sub(4 * length) } else { length })?;
        let text = decompress(&mut self.reader, &mut self.tally, entry.encoding, frame, length, &base);
        let text = text.filter(|text| has_id(kind, text, entry.key)).ok_or(Stop::Turn)?;
        self.hashed.0 += 1;
        self.hashed.1 += length as u64;
        let is_on_like = kind_of_base == kind;
        let mut removed = References::new();
        match kind {
            TREE => {
                let below: &[u8] = if is_on_like { &base } else { b"" };
                if !compare_trees(&text, below, width, self.judges, &mut proof.needed, &mut removed) {
                    return Err(Stop::Turn);
                }
            }
            COMMIT => {
                // Another commit, or a bare one, is Python's.
                if entry.key != proof.segment.revision {
                    return Err(Stop::Turn);
                }
                proof.has_own_record = true;
                let named = read_commit(&text, width).ok_or(Stop::Turn)?;
                let is_same = named[1..].iter().copied().eq(proof.segment.parents.iter().map(|parent| id(parent.id)));
                if !is_same || (self.judges && !is_clean_commit(&text)) {
                    return Err(Stop::Turn);
                }
                proof.needed.push((TREE, named[0]));
                proof.needed.extend(named[1..].iter().map(|&parent| (COMMIT, parent)));
                if is_on_like {
                    let below = read_commit(&base, width).ok_or(Stop::Turn)?;
                    removed.push((TREE, below[0]));
                    removed.extend(below[1..].iter().map(|&parent| (COMMIT, parent)));
                }
            }
            _ => {}
        }
        if is_granting {
            proof.granted.extend(removed);
        }
        Ok(Text::new(text))
    }

    /// Prove that what the records of a segment refer to was brought by it or an ancestor, and is of the right type.
    fn prove_references(&mut self, proof: &mut Proof<'_>) -> Result<(), Stop> {
        for (kind, key) in std::mem::take(&mut proof.needed) {
            let place = &key[..self.width];
            if proof.granted.contains(&(kind, key)) {
                continue;
            }
            let found = match (proof.own.get(place), proof.bases.get(&key)) {
                (Some(&number), _) => Some(proof.news[number].entry.meta[0]),
                (None, Some(&kind)) => Some(kind),
                (None, None) => self.type_below(place, &proof.parents)?,
            };
            if found != Some(kind) {
                return Err(Stop::Turn);
            }
        }
        Ok(())
    }

    fn take(&mut self, segment: &Segment<'_>, parents: Parents, news: Vec<New<'_>>, at: u64, length: usize) {
        let number = self.begin(segment, parents, at, length);
        for new in news {
            let entry = new.entry;
            let name = self.names.number(&new.name);
            let is_first = name as usize == self.copies.len();
            let (base, meta) = (new.base, self.metas.number(entry.meta));
            self.add(Record {
                name,
                before: NONE,
                segment: number,
                header: entry.header as u32,
                frame: new.at as u32,
                frame_length: entry.frame_length as u32,
                length: entry.length as u32,
                base,
                chain: new.chain,
                lineage: new.lineage,
                meta,
                depth: new.depth as u16,
                encoding: entry.encoding,
                mark: new.mark,
            });
            if let (true, Some(text)) = (is_first, &new.text) {
                self.texts.put(name, text);
            }
        }
    }
}
