//! The proof of one segment, as in `store/incoming.py` and `store/proof.py`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::frame::decompress;
use crate::index::{EXTERNAL, NO_BASE};
use crate::segment::{decode, Entry, Segment};
use crate::stored::Row;
use crate::stream::{kib, Batch, Parents, Record, Stop, Stream, NONE};
use crate::system::{name, References, Version};
use crate::texts::Text;

/// Limits of `store/incoming.py`. Python encodes a record again that would exceed them.
const MAX_STORED_DEPTH: u32 = 64;
const MAX_CHAIN_KIB: u32 = 1 << 20;

/// Limit of the bytes of a text and its base together, and of the texts of a segment. Python proves a larger one.
const LARGE: usize = 32 << 20;

/// The place of a record's base.
#[derive(Clone, Copy)]
enum Base {
    None,
    /// A record of the same segment.
    Own(usize),
    /// The number of a name in the stream.
    Stream(u32),
    /// The number of the name of a stored record.
    Stored(u32),
}

/// A record of the current segment, before that is proved.
struct New<'a> {
    entry: Entry<'a>,
    name: Vec<u8>,
    base: u32,
    depth: u32,
    chain: u32,
    lineage: u32,
    at: usize,
    mark: u128,
    /// `None` for a repeat.
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
    /// Places in `news`, by kind and key.
    own: HashMap<(u8, &'a [u8]), usize>,
    /// Types of bases that ancestors introduced, by the names of these bases.
    bases: HashMap<Vec<u8>, u8>,
    /// Names to which such bases refer, with a bit for each type.
    granted: HashMap<Vec<u8>, u8>,
    needed: References,
    has_own_record: bool,
}

impl Stream {
    /// Prove a segment, and add it to the stream.
    pub fn prove(&mut self, batch: &Batch<'_>, at: u64) -> Result<(), Stop> {
        let block = &batch.blocks[self.segments.len() - batch.first];
        let segment = decode(block, self.system.kinds()).ok_or(Stop::Turn)?;
        if self.revisions.find(segment.revision).is_some() {
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
            granted: HashMap::new(),
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
        // If a key may have several records, Python compares a second one with the first.
        let is_known =
            || self.find(entry.kind, entry.key).is_some() || self.stored_row(entry.kind, entry.key).is_some();
        if self.system.kinds()[entry.kind as usize].may_conflict() && is_known() {
            return Err(Stop::Turn);
        }
        let is_leaf = self.system.is_leaf(entry);
        let mut new = New {
            entry: *entry,
            name: name(entry.kind, entry.key),
            base: NO_BASE,
            depth: 0,
            chain: kib(entry.length),
            lineage: 0,
            at,
            mark: if is_leaf { self.mark(frame) } else { 0 },
            text: None,
        };
        let base = match entry.base {
            Some(key) => self.rest_on(proof, key, &mut new)?,
            None => Base::None,
        };
        if is_leaf && self.is_repeat(entry, new.mark) {
            // Its bytes were proved before, on the same base. The look-up marks the text of the base as used now.
            entry.base.and_then(|key| self.find(entry.kind, key)).and_then(|name| self.texts.get(name));
        } else {
            new.text = Some(self.prove_text(batch, proof, entry, base, frame)?);
        }
        proof.own.insert((entry.kind, entry.key), proof.news.len());
        proof.news.push(new);
        Ok(())
    }

    /// Let a record rest on the first copy of its base, which this revision or an ancestor must have introduced.
    fn rest_on(&mut self, proof: &Proof<'_>, key: &[u8], new: &mut New<'_>) -> Result<Base, Stop> {
        let kind = new.entry.kind;
        let known = self.find(kind, key);
        let stored = self.stored_row(kind, key);
        let own = proof.own.get(&(kind, key)).copied();
        let first = known.map(|name| self.copies[name as usize].0);
        if own.is_none() && !proof.granted.contains_key(&name(kind, key)) {
            let is_here = match known {
                Some(name) => self.is_reached(name, &proof.parents.stream)?,
                None => false,
            };
            if !is_here && (stored.is_none() || !self.is_below(&proof.parents, kind, key)?) {
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

    /// Decode a text, prove that it matches its key, and note its references.
    fn prove_text(
        &mut self,
        batch: &Batch<'_>,
        proof: &mut Proof<'_>,
        entry: &Entry<'_>,
        base: Base,
        frame: &[u8],
    ) -> Result<Text, Stop> {
        let (meta, on) = match base {
            Base::None => (Vec::new(), Text::default()),
            Base::Stream(name) => (self.meta_of(name).to_vec(), self.text(batch, name)?),
            Base::Stored(number) => self.stored_record(number)?,
            Base::Own(number) => {
                let New { entry, text, .. } = &proof.news[number];
                let text = match text {
                    Some(text) => Arc::clone(text),
                    None => self.text(batch, self.find(entry.kind, entry.key).ok_or(Stop::Turn)?)?,
                };
                (entry.meta.to_vec(), text)
            }
        };
        let granting = entry.base.filter(|&key| !proof.own.contains_key(&(entry.kind, key)));
        if let Some(key) = granting {
            proof.bases.insert(name(entry.kind, key), self.system.type_of(&meta));
        }
        self.spend(self.system.cost(entry, on.len()))?;
        let text = decompress(&mut self.reader, &mut self.tally, entry.encoding, frame, entry.length, &on);
        let text = text.filter(|text| self.system.has_key(entry, text)).ok_or(Stop::Turn)?;
        self.hashed.0 += 1;
        self.hashed.1 += entry.length as u64;
        let record = Version { kind: entry.kind, key: entry.key, meta: entry.meta, text: &text };
        let below = entry.base.map(|key| Version { kind: entry.kind, key, meta: &meta, text: &on });
        let mut removed = References::new();
        let is_own = self.system.compare(proof.segment, &record, below.as_ref(), &mut proof.needed, &mut removed);
        proof.has_own_record |= is_own.ok_or(Stop::Turn)?;
        if granting.is_some() {
            for (kind, name) in removed {
                *proof.granted.entry(name).or_default() |= 1 << kind;
            }
        }
        Ok(Text::new(text))
    }

    /// Prove that each reference of a segment's records leads to a record of the right type that the revision or an
    /// ancestor introduced.
    fn prove_references(&mut self, proof: &mut Proof<'_>) -> Result<(), Stop> {
        for (wanted, name) in std::mem::take(&mut proof.needed) {
            if proof.granted.get(&name).is_some_and(|types| types >> wanted & 1 == 1) {
                continue;
            }
            let found = match (proof.own.get(&(name[0], &name[1..])), proof.bases.get(&name)) {
                (Some(&number), _) => Some(self.system.type_of(proof.news[number].entry.meta)),
                (None, Some(&kind)) => Some(kind),
                (None, None) => self.type_below(&name, wanted, &proof.parents)?,
            };
            if found != Some(wanted) {
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
