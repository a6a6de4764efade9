//! Writes the file of a pack and its index, once all entries are made.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use pyo3::prelude::*;
use sha1::{Digest, Sha1};
use sha2::Sha256;

use crate::entries::{Failure, Maker, LARGE};

const HEAD: usize = 12;

/// Bytes of a pack that are written between two checks whether the user has interrupted it.
const LOOKED: u64 = 16 << 20;

impl Maker {
    /// Write the pack. Return its index (version 2) and its hash.
    pub fn finish(&mut self, out: &File) -> Result<(Vec<u8>, Vec<u8>), Failure> {
        self.flush()?;
        self.texts.clear();
        let mut order: Vec<u32> =
            (0..self.records.len() as u32).filter(|&n| self.records[n as usize].kind != 0).collect();
        let mut file = Hashed { file: out, hash: Hash::new(self.width) };
        let mut head = b"PACK\0\0\0\x02".to_vec();
        head.extend_from_slice(&(order.len() as u32).to_be_bytes());
        file.write_all(&head)?;
        let mut block = vec![0; LARGE];
        let mut at = 0;
        while at < self.written {
            let size = LARGE.min((self.written - at) as usize);
            self.out.read_exact_at(&mut block[..size], at)?;
            file.write_all(&block[..size])?;
            at += size as u64;
            if at % LOOKED == 0 {
                Python::attach(|py| py.check_signals()).map_err(Failure::Python)?;
            }
        }
        let digest = file.hash.digest();
        file.file.write_all(&digest)?;
        order.sort_unstable_by(|&one, &other| self.keys.key(one).cmp(self.keys.key(other)));
        Ok((self.index(&order, &digest), digest))
    }

    fn index(&self, order: &[u32], pack: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(order.len() * (self.width + 8) + 1100);
        out.extend_from_slice(b"\xfftOc\0\0\0\x02");
        let mut count = 0;
        for first in 0..=255u8 {
            count += order[count..].iter().take_while(|&&number| self.keys.key(number)[0] == first).count();
            out.extend_from_slice(&(count as u32).to_be_bytes());
        }
        for &number in order {
            out.extend_from_slice(self.keys.key(number));
        }
        for &number in order {
            out.extend_from_slice(&self.records[number as usize].check.to_be_bytes());
        }
        let mut far = Vec::new();
        for &number in order {
            let place = self.records[number as usize].place + HEAD as u64;
            let short = if place < 1 << 31 { place as u32 } else { 1 << 31 | (far.len() / 8) as u32 };
            if place >= 1 << 31 {
                far.extend_from_slice(&place.to_be_bytes());
            }
            out.extend_from_slice(&short.to_be_bytes());
        }
        out.extend_from_slice(&far);
        out.extend_from_slice(pack);
        let mut hash = Hash::new(self.width);
        hash.update(&out);
        out.extend_from_slice(&hash.digest());
        out
    }
}

enum Hash {
    Sha1(Box<Sha1>),
    Sha256(Box<Sha256>),
}

impl Hash {
    fn new(width: usize) -> Self {
        if width == 32 {
            Hash::Sha256(Box::default())
        } else {
            Hash::Sha1(Box::default())
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hash::Sha1(hash) => hash.update(bytes),
            Hash::Sha256(hash) => hash.update(bytes),
        }
    }

    fn digest(&self) -> Vec<u8> {
        match self {
            Hash::Sha1(hash) => hash.clone().finalize().to_vec(),
            Hash::Sha256(hash) => hash.clone().finalize().to_vec(),
        }
    }
}

struct Hashed<'a> {
    file: &'a File,
    hash: Hash,
}

impl Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let size = self.file.write(bytes)?;
        self.hash.update(&bytes[..size]);
        Ok(size)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
