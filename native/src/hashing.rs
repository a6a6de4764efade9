//! `Hashing`: checks in a thread of its own whether objects have their ids, while others are decoded.

use std::io;
use std::sync::mpsc::{sync_channel, SyncSender, TrySendError};
use std::thread::JoinHandle;

use crate::objects::has_id;
use crate::texts::Text;

/// Bytes of texts that are given to the thread at once, and how many times as many may wait for it.
const GATHERED: usize = 256 << 10;
const WAITING: usize = 8;

/// Bytes of a text above which it does not wait.
const LARGE: usize = 1 << 20;

/// An object to check.
struct Claim {
    number: u32,
    kind: u8,
    key: Box<[u8]>,
    text: Text,
}

impl Claim {
    fn is_true(&self) -> bool {
        has_id(self.kind, &self.text, &self.key)
    }
}

/// The thread, which ends when it has no sender. It returns the number of the first object that has another id.
type Thread = (SyncSender<Vec<Claim>>, JoinHandle<Option<u32>>);

#[derive(Default)]
pub struct Hashing {
    thread: Option<Thread>,
    gathered: Vec<Claim>,
    size: usize,
}

impl Hashing {
    /// Take an object. Return false if it, or one before it, has another id; `finish` says which one.
    pub fn add(&mut self, number: u32, kind: u8, key: &[u8], text: &Text) -> bool {
        let claim = Claim { number, kind, key: key.into(), text: Text::clone(text) };
        if text.len() > LARGE && claim.is_true() {
            return true;
        }
        self.size += text.len();
        self.gathered.push(claim);
        self.size < GATHERED || self.send()
    }

    fn send(&mut self) -> bool {
        if self.thread.is_none() {
            self.thread = start().ok();
        }
        let claims = std::mem::take(&mut self.gathered);
        self.size = 0;
        let left = match &self.thread {
            Some((sender, _)) => match sender.try_send(claims) {
                Ok(()) => return true,
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(claims)) => claims,
            },
            None => claims,
        };
        // The thread is behind: there may be no other core.
        self.gathered = left.into_iter().find(|claim| !claim.is_true()).into_iter().collect();
        self.gathered.is_empty()
    }

    /// Check all objects that were taken. Return the number of the first one that has another id.
    pub fn finish(&mut self) -> Option<u32> {
        let found = self.thread.take().and_then(|(sender, thread)| {
            drop(sender);
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let gathered = std::mem::take(&mut self.gathered);
        self.size = 0;
        found.or_else(|| first_wrong(&gathered))
    }
}

impl Drop for Hashing {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            thread.join().ok();
        }
    }
}

fn first_wrong(claims: &[Claim]) -> Option<u32> {
    claims.iter().find(|claim| !claim.is_true()).map(|claim| claim.number)
}

fn start() -> io::Result<Thread> {
    let (sender, claims) = sync_channel::<Vec<Claim>>(WAITING);
    let work = move || claims.iter().find_map(|claims| first_wrong(&claims));
    Ok((sender, std::thread::Builder::new().name("hashes".into()).spawn(work)?))
}
