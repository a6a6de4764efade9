//! LEB128 in its shortest form, as in `records/varint.py`.

pub const MAX_BYTES: usize = 9;

/// Read the integer at `at`, and move `at` behind it. Return `None` if it is cut off, too long or not in its shortest
/// form.
#[inline]
pub fn read(buf: &[u8], at: &mut usize) -> Option<u64> {
    let first = *buf.get(*at)?;
    *at += 1;
    if first < 0x80 {
        return Some(u64::from(first));
    }
    let mut n = u64::from(first & 0x7f);
    for group in 1..MAX_BYTES {
        let byte = *buf.get(*at)?;
        *at += 1;
        n |= u64::from(byte & 0x7f) << (7 * group);
        if byte < 0x80 {
            return (byte != 0).then_some(n);
        }
    }
    None
}

/// Append an integer.
#[inline]
pub fn write(out: &mut Vec<u8>, mut n: u64) {
    while n > 0x7f {
        out.push(n as u8 & 0x7f | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Append a length, and as many bytes.
pub fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Read the bytes at `at` that begin with their length, which is at most `most`.
#[inline]
pub fn read_bytes<'a>(buf: &'a [u8], at: &mut usize, most: usize) -> Option<&'a [u8]> {
    let length = read(buf, at)?;
    if length > most as u64 {
        return None;
    }
    let end = *at + length as usize;
    let found = buf.get(*at..end)?;
    *at = end;
    Some(found)
}
