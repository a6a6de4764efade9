//! The limits of `records/limits.py`.

pub const MAX_ID: usize = 1024;
pub const MAX_META: usize = 65_536;
pub const MAX_PARENTS: u64 = 65_536;
pub const MAX_ENTRIES: u64 = 1 << 20;
pub const MAX_RECORD: usize = 256 << 20;
pub const MAX_SEGMENT: usize = MAX_RECORD + (32 << 20);
pub const MAX_SEGMENT_TEXT: u64 = 64 << 30;
pub const MAX_BASED: usize = 64 << 20;
pub const MIN_BASE: usize = 8;
pub const MAX_HUNKS: usize = 1 << 20;
pub const MIN_WINDOW_LOG: u32 = 10;
pub const MAX_WINDOW_LOG: u32 = 27;
pub const WIDE: usize = 4 << 20;
pub const MAX_TABLE_LOG: u32 = 24;
