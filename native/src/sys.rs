//! All code that needs `unsafe`: zstd's C functions, files that Python has opened, and mapped files. No other module has any.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::ptr::NonNull;

use memmap2::Mmap;
use zstd_sys as c;

use crate::limits::{MAX_TABLE_LOG, MAX_WINDOW_LOG, MIN_WINDOW_LOG, WIDE};
use crate::matcher::{Sequence, LEAST};

/// Up to so many bytes of base and text together, a text with a base is compressed by hash chains: `records/delta.py`.
const ROWLESS: usize = 1 << 20;

/// Up to so many bytes of base and text together, tables are kept for the next text.
const TABLES_KEPT: usize = 256 << 10;

/// The most bytes of an output buffer that is kept between frames.
const BUFFER: usize = 1 << 20;

/// Return a `File` of its own for an open descriptor of Python's.
pub fn file_of(descriptor: i32) -> io::Result<File> {
    if descriptor < 0 {
        return Err(io::Error::from_raw_os_error(9));
    }
    // SAFETY: the descriptor is not -1, and is only duplicated, by a call that fails if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    Ok(File::from(borrowed.try_clone_to_owned()?))
}

/// Map a file of git's into memory. Git writes a pack and its index under other names, and never changes them.
pub fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    // SAFETY: nobody changes the file: see above. If somebody cuts it short, the process ends, as git's would.
    unsafe { Mmap::map(&file) }
}

/// Reads frames without magic number.
pub struct Reader(NonNull<c::ZSTD_DCtx>);

// SAFETY: a context belongs to no thread, and each use of it takes `&mut self`.
unsafe impl Send for Reader {}
unsafe impl Sync for Reader {}

impl Reader {
    pub fn new() -> Self {
        // SAFETY: the call takes nothing; null means that there is no memory.
        let made = unsafe { c::ZSTD_createDCtx() };
        let reader = Reader(NonNull::new(made).expect("no memory for a zstd context"));
        let magicless = c::ZSTD_format_e::ZSTD_f_zstd1_magicless as i32;
        // SAFETY: the context is there.
        unsafe { c::ZSTD_DCtx_setParameter(made, c::ZSTD_dParameter::ZSTD_d_experimentalParam1, magicless) };
        reader
    }

    /// Return the text of `length` bytes in a frame that was checked; `None` if it is damaged.
    pub fn read(&mut self, frame: &[u8], length: usize, base: &[u8]) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        // If there is no memory, Python takes its turn and ends in an error.
        text.try_reserve_exact(length).ok()?;
        // SAFETY: the buffer has this capacity, and all its bytes are written on success.
        unsafe {
            self.read_at(frame, text.as_mut_ptr(), length, base).ok()?;
            text.set_len(length);
        }
        Some(text)
    }

    /// Write the text to a buffer. If the frame is damaged, return the message of zstd.
    pub fn read_into(&mut self, frame: &[u8], text: &mut [u8], base: &[u8]) -> Result<(), String> {
        // SAFETY: the buffer has this length.
        unsafe { self.read_at(frame, text.as_mut_ptr(), text.len(), base) }
    }

    /// SAFETY: `text` is a buffer of `length` bytes, all of which are written on success.
    unsafe fn read_at(&mut self, frame: &[u8], text: *mut u8, length: usize, base: &[u8]) -> Result<(), String> {
        let context = self.0.as_ptr();
        // SAFETY: pointers and lengths are those of live slices and of the caller's buffer. The base is not referred to
        // after the call.
        unsafe {
            if !base.is_empty() {
                c::ZSTD_DCtx_refPrefix(context, base.as_ptr().cast(), base.len());
            }
            let size = c::ZSTD_decompressDCtx(context, text.cast(), length, frame.as_ptr().cast(), frame.len());
            if c::ZSTD_isError(size) == 0 && size == length {
                return Ok(());
            }
            c::ZSTD_DCtx_reset(context, c::ZSTD_ResetDirective::ZSTD_reset_session_only);
            if c::ZSTD_isError(size) == 0 {
                return Err(format!("{size} bytes of text"));
            }
            Err(CStr::from_ptr(c::ZSTD_getErrorName(size)).to_string_lossy().into_owned())
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: the context is freed once.
        unsafe { c::ZSTD_freeDCtx(self.0.as_ptr()) };
    }
}

/// The values on which the parameters of a frame depend.
type Wanted = (i32, u32, u32, bool);

/// Return a new context for frames without magic number, with the size of their texts.
fn context() -> NonNull<c::ZSTD_CCtx> {
    // SAFETY: the call takes nothing; null means that there is no memory.
    let made = unsafe { c::ZSTD_createCCtx() };
    let context = NonNull::new(made).expect("no memory for a zstd context");
    for (option, value) in [
        (c::ZSTD_cParameter::ZSTD_c_experimentalParam2, c::ZSTD_format_e::ZSTD_f_zstd1_magicless as i32),
        (c::ZSTD_cParameter::ZSTD_c_contentSizeFlag, 1),
        (c::ZSTD_cParameter::ZSTD_c_checksumFlag, 0),
        (c::ZSTD_cParameter::ZSTD_c_dictIDFlag, 0),
    ] {
        // SAFETY: the context is there.
        unsafe { c::ZSTD_CCtx_setParameter(made, option, value) };
    }
    context
}

/// Return zstd's parameters for so many bytes of base and text.
fn parameters(level: i32, size: usize) -> c::ZSTD_compressionParameters {
    // SAFETY: these are plain numbers.
    let mut parameters = unsafe { c::ZSTD_getCParams(level, size as u64, 0) };
    parameters.windowLog = (usize::BITS - size.leading_zeros()).clamp(MIN_WINDOW_LOG, MAX_WINDOW_LOG);
    parameters
}

/// Writes frames without magic number.
pub struct Writer {
    context: NonNull<c::ZSTD_CCtx>,
    prepared: Option<Wanted>,
    out: Vec<u8>,
}

// SAFETY: as for `Reader`.
unsafe impl Send for Writer {}
unsafe impl Sync for Writer {}

impl Writer {
    pub fn new() -> Self {
        Writer { context: context(), prepared: None, out: Vec::new() }
    }

    /// Return the frame of a text. `base`: empty, or no part of the text in memory.
    pub fn write(&mut self, text: &[u8], base: &[u8], level: i32) -> &[u8] {
        let size = text.len() + base.len();
        let rowless = !base.is_empty() && size <= ROWLESS;
        if size > TABLES_KEPT {
            let mut alone = Writer::new();
            alone.prepare(level, size, rowless);
            self.out = alone.compress(text, base, std::mem::take(&mut self.out));
        } else {
            let bits = usize::BITS - size.leading_zeros();
            let power = usize::BITS - size.wrapping_sub(1).leading_zeros();
            let wanted = (level, bits, power, rowless);
            if self.prepared != Some(wanted) {
                self.prepare(level, size, rowless);
                self.prepared = Some(wanted);
            }
            let out = std::mem::take(&mut self.out);
            self.out = self.compress(text, base, out);
        }
        &self.out
    }

    /// Release a large buffer.
    pub fn trim(&mut self) {
        if self.out.capacity() > BUFFER {
            self.out = Vec::new();
        }
    }

    fn prepare(&mut self, level: i32, size: usize, rowless: bool) {
        let context = self.context.as_ptr();
        // SAFETY: the context is there; the parameters are plain numbers.
        unsafe {
            let mut parameters = parameters(level, size);
            if size > WIDE {
                parameters.hashLog = parameters.windowLog.min(MAX_TABLE_LOG);
                parameters.chainLog = parameters.hashLog;
            }
            c::ZSTD_CCtx_setCParams(context, parameters);
            let rows = if rowless { 2 } else { 0 }; // ZSTD_ps_disable, ZSTD_ps_auto
            c::ZSTD_CCtx_setParameter(context, c::ZSTD_cParameter::ZSTD_c_experimentalParam14, rows);
        }
    }

    fn compress(&mut self, text: &[u8], base: &[u8], mut out: Vec<u8>) -> Vec<u8> {
        let context = self.context.as_ptr();
        out.clear();
        // SAFETY: pointers and lengths are those of live slices, and of a buffer with room for any frame of the text.
        // zstd has written as many bytes of it as it says. The base is not referred to after the call.
        unsafe {
            let room = c::ZSTD_compressBound(text.len());
            out.reserve(room);
            if !base.is_empty() {
                let wrong = c::ZSTD_CCtx_refPrefix(context, base.as_ptr().cast(), base.len());
                assert_eq!(c::ZSTD_isError(wrong), 0, "zstd takes no base of {} bytes", base.len());
            }
            let size = c::ZSTD_compress2(context, out.as_mut_ptr() as *mut _, room, text.as_ptr().cast(), text.len());
            assert_eq!(c::ZSTD_isError(size), 0, "zstd cannot compress {} bytes", text.len());
            out.set_len(size);
        }
        out
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // SAFETY: the context is freed once.
        unsafe { c::ZSTD_freeCCtx(self.context.as_ptr()) };
    }
}

/// Writes frames whose matches were found already.
pub struct Assembler {
    context: NonNull<c::ZSTD_CCtx>,
    sequences: Vec<c::ZSTD_Sequence>,
    out: Vec<u8>,
}

// SAFETY: as for `Reader`.
unsafe impl Send for Assembler {}
unsafe impl Sync for Assembler {}

impl Assembler {
    pub fn new() -> Self {
        let context = context();
        // Without these, zstd allocates buffers that `ZSTD_compressSequences` does not use.
        for option in [c::ZSTD_cParameter::ZSTD_c_experimentalParam9, c::ZSTD_cParameter::ZSTD_c_experimentalParam10] {
            // SAFETY: the context is there.
            unsafe { c::ZSTD_CCtx_setParameter(context.as_ptr(), option, 1) };
        }
        Assembler { context, sequences: Vec::new(), out: Vec::new() }
    }

    /// Return the frame of a text that has a base of `base` bytes and these matches.
    pub fn write(&mut self, text: &[u8], base: usize, found: &[Sequence]) -> &[u8] {
        let mut end = 0;
        self.sequences.clear();
        for &Sequence { literals, length, offset } in found {
            assert!(offset > 0 && offset <= base + end + literals, "a match before the base");
            assert!(length >= LEAST, "a match of {length} bytes");
            end += literals + length;
            self.sequences.push(c::ZSTD_Sequence {
                offset: offset as u32,
                litLength: literals as u32,
                matchLength: length as u32,
                rep: 0,
            });
        }
        assert!(end <= text.len(), "a match behind the text");
        assert!(base + text.len() <= u32::MAX as usize, "offsets of over 32 bits");
        // zstd's own tables are not used. `ZSTD_fast` might leave literals uncompressed.
        let parameters = c::ZSTD_compressionParameters {
            hashLog: 6,
            chainLog: 6,
            minMatch: LEAST as u32,
            strategy: c::ZSTD_strategy::ZSTD_greedy,
            ..parameters(1, text.len())
        };
        let (context, sequences, out) = (self.context.as_ptr(), &self.sequences, &mut self.out);
        out.clear();
        // SAFETY: pointers and lengths are those of live vectors and slices, and of a buffer with room for any frame of
        // the text. zstd reads the text and the sequences alone, never the base, and refuses more sequences than it has
        // room for. The assertions above keep all lengths within the text. It has written as many bytes as it says.
        unsafe {
            let wrong = c::ZSTD_CCtx_setCParams(context, parameters);
            assert_eq!(c::ZSTD_isError(wrong), 0, "zstd takes no parameters for {} bytes", text.len());
            let room = c::ZSTD_compressBound(text.len());
            out.reserve(room);
            let (to, from) = (out.as_mut_ptr().cast(), text.as_ptr().cast());
            let size =
                c::ZSTD_compressSequences(context, to, room, sequences.as_ptr(), sequences.len(), from, text.len());
            assert_eq!(c::ZSTD_isError(size), 0, "zstd cannot assemble {} bytes", text.len());
            out.set_len(size);
            c::ZSTD_CCtx_reset(context, c::ZSTD_ResetDirective::ZSTD_reset_session_only);
        }
        out
    }

    /// Release a large buffer.
    pub fn trim(&mut self) {
        if self.out.capacity() > BUFFER {
            self.out = Vec::new();
        }
    }
}

impl Drop for Assembler {
    fn drop(&mut self) {
        // SAFETY: the context is freed once.
        unsafe { c::ZSTD_freeCCtx(self.context.as_ptr()) };
    }
}
