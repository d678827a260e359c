//! The beginning of a compressed payload, never more memory than the caller's limit asks for
//! (plus one block or chunk of the method).

use crate::lz4;
use std::io::Read as _;

/// How a data object's payload is stored: the low three bits of the object's flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Xz,
    Lz4,
    Zstd,
}

impl Method {
    /// None for plain; an error for several bits at once, which no writer sets.
    pub(crate) fn of_flags(flags: u8) -> Result<Option<Self>, ()> {
        match flags & 7 {
            0 => Ok(None),
            1 => Ok(Some(Self::Xz)),
            2 => Ok(Some(Self::Lz4)),
            4 => Ok(Some(Self::Zstd)),
            _ => Err(()),
        }
    }
}

/// Larger windows than any level of libzstd below "ultra" asks for are taken as damage.
const ZSTD_WINDOW: u64 = 32 << 20;

/// At most `limit` bytes from the start of what `packed` holds; None where it is damaged.
pub(crate) fn prefix(method: Method, packed: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut out = match method {
        Method::Zstd => zstd(packed, limit)?,
        // systemd puts the unpacked size (8 bytes) before the block.
        Method::Lz4 => lz4::prefix(packed.get(8..)?, limit)?,
        Method::Xz => xz(packed, limit)?,
    };
    out.truncate(limit);
    Some(out)
}

fn zstd(packed: &[u8], limit: usize) -> Option<Vec<u8>> {
    let decoder =
        ruzstd::decoding::StreamingDecoder::new_with_max_window_size(packed, ZSTD_WINDOW).ok()?;
    let mut out = Vec::new();
    decoder.take(limit as u64).read_to_end(&mut out).ok()?;
    Some(out)
}

/// lzma-rs decodes an .xz stream as a whole and into unbounded memory. The sizes stand in the
/// chunk headers of the LZMA2 data, though: cut it after the chunk that reaches the limit.
fn xz(packed: &[u8], limit: usize) -> Option<Vec<u8>> {
    const MAGIC: &[u8] = b"\xfd7zXZ\0";
    const STREAM_HEADER: usize = 12;
    if !packed.starts_with(MAGIC) {
        return None;
    }
    let blocks = packed.get(STREAM_HEADER..)?;
    // One filter, LZMA2: the only one that systemd has ever used.
    let (header_size, flags) = (usize::from(*blocks.first()?), *blocks.get(1)?);
    if header_size == 0 || flags & 3 != 0 {
        return None;
    }
    let data = blocks.get((header_size + 1) * 4..)?;
    let (mut at, mut unpacked) = (0, 0);
    while unpacked < limit {
        let control = *data.get(at)?;
        let size = |i: usize| -> Option<usize> {
            Some(
                usize::from(u16::from_be_bytes([
                    *data.get(at + i)?,
                    *data.get(at + i + 1)?,
                ])) + 1,
            )
        };
        let (chunk, plain) = match control {
            0 => break,
            1 | 2 => (3 + size(1)?, size(1)?),
            3..=0x7f => return None,
            _ => {
                let header = if control >= 0xc0 { 6 } else { 5 };
                let plain = (usize::from(control & 0x1f) << 16) + size(1)?;
                (header + size(3)?, plain)
            }
        };
        at += chunk;
        unpacked += plain;
    }
    let mut cut = data.get(..at)?.to_vec();
    cut.push(0);
    let mut out = Vec::new();
    lzma_rs::lzma2_decompress(&mut cut.as_slice(), &mut out).ok()?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> Vec<u8> {
        (0..9000u32)
            .flat_map(|i| format!("line {i} of a long message; ").into_bytes())
            .collect()
    }

    fn packed(method: Method, plain: &[u8]) -> Vec<u8> {
        match method {
            Method::Zstd => ruzstd::encoding::compress_to_vec(
                plain,
                ruzstd::encoding::CompressionLevel::Fastest,
            ),
            Method::Lz4 => {
                let mut out = (plain.len() as u64).to_le_bytes().to_vec();
                out.extend(lz4_flex::block::compress(plain));
                out
            }
            Method::Xz => {
                let mut out = Vec::new();
                lzma_rs::xz_compress(&mut &plain[..], &mut out).unwrap();
                out
            }
        }
    }

    #[test]
    fn each_method_gives_all_or_the_beginning() {
        let plain = text();
        for method in [Method::Zstd, Method::Lz4, Method::Xz] {
            let packed = packed(method, &plain);
            for limit in [0, 1, 100, 70_000, plain.len(), plain.len() + 1000] {
                assert_eq!(
                    prefix(method, &packed, limit).unwrap(),
                    &plain[..limit.min(plain.len())],
                    "{method:?} to {limit}"
                );
            }
        }
    }

    #[test]
    fn damage_is_none_or_wrong_bytes_but_bounded() {
        let plain = text();
        for method in [Method::Zstd, Method::Lz4, Method::Xz] {
            let good = packed(method, &plain[..4000]);
            for at in 0..good.len().min(600) {
                for value in [0u8, 0xff, good[at] ^ 0x55] {
                    let mut bad = good.clone();
                    bad[at] = value;
                    let out = prefix(method, &bad, 8192);
                    assert!(
                        out.is_none_or(|out| out.len() <= 8192),
                        "{method:?} at {at}"
                    );
                }
            }
            for len in 0..good.len().min(300) {
                let _ = prefix(method, &good[..len], 8192);
            }
        }
    }

    #[test]
    fn flags_name_one_method() {
        assert_eq!(Method::of_flags(0), Ok(None));
        assert_eq!(Method::of_flags(4), Ok(Some(Method::Zstd)));
        assert_eq!(Method::of_flags(3), Err(()));
    }
}
