//! Compressed payloads as systemd expects them in a journal file.

use super::Compression;
use std::io;

/// The packed payload and its object flag, or None where it is stored plain.
pub(super) fn pack(compression: Compression, plain: &[u8]) -> io::Result<Option<(Vec<u8>, u8)>> {
    let (packed, flag) = match compression {
        Compression::None => return Ok(None),
        Compression::Xz => (xz(plain)?, 1),
        Compression::Lz4 => {
            let mut packed = (plain.len() as u64).to_le_bytes().to_vec();
            packed.extend(lz4_flex::block::compress(plain));
            (packed, 2)
        }
        Compression::Zstd => (zstd(plain)?, 4),
    };
    Ok(Some((packed, flag)))
}

/// systemd refuses frames that do not say their size, and ruzstd writes none: put another frame
/// header before its blocks.
fn zstd(plain: &[u8]) -> io::Result<Vec<u8>> {
    const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    const CHECKSUM: u8 = 1 << 2;
    /// A size of four bytes, one segment: no window descriptor.
    const SIZED: u8 = 0b1010_0000;
    let frame =
        ruzstd::encoding::compress_to_vec(plain, ruzstd::encoding::CompressionLevel::Fastest);
    // Magic, descriptor without sizes or dictionary, window descriptor.
    let (head, blocks) = frame.split_at_checked(6).unwrap_or_default();
    if !head.starts_with(&MAGIC) || head[4] & !CHECKSUM != 0 {
        return Err(io::Error::other("ruzstd writes another frame header now"));
    }
    let size = u32::try_from(plain.len()).map_err(io::Error::other)?;
    let mut packed = MAGIC.to_vec();
    packed.push(SIZED | (head[4] & CHECKSUM));
    packed.extend(size.to_le_bytes());
    packed.extend(blocks);
    Ok(packed)
}

/// An .xz stream without check, one LZMA2 block, its chunks really range coded: `xz_compress` of
/// lzma-rs only stores. Container: <https://tukaani.org/xz/xz-file-format.txt>.
fn xz(plain: &[u8]) -> io::Result<Vec<u8>> {
    const FLAGS: [u8; 2] = [0, 0];
    let mut out = b"\xfd7zXZ\0".to_vec();
    out.extend(FLAGS);
    out.extend(crc32(&FLAGS).to_le_bytes());
    // Block header of 12 bytes: one filter, LZMA2, a dictionary of 8 MiB.
    let mut header = vec![2, 0, 0x21, 1, 22, 0, 0, 0];
    header.extend(crc32(&header).to_le_bytes());
    let block = out.len();
    out.extend(header);
    // Packed chunks hold at most 64 KiB, which literals of this many bytes cannot exceed.
    for chunk in plain.chunks(32 << 10) {
        lzma2_chunk(chunk, &mut out)?;
    }
    out.push(0);
    let unpadded = out.len() - block;
    pad(&mut out);
    let start = out.len();
    out.extend([0, 1]);
    number(unpadded, &mut out);
    number(plain.len(), &mut out);
    pad(&mut out);
    let sum = crc32(&out[start..]);
    out.extend(sum.to_le_bytes());
    let index = out.len() - start;
    let mut footer = ((index / 4 - 1) as u32).to_le_bytes().to_vec();
    footer.extend(FLAGS);
    out.extend(crc32(&footer).to_le_bytes());
    out.extend(footer);
    out.extend(b"YZ");
    Ok(out)
}

/// One chunk that resets dictionary, state and properties.
fn lzma2_chunk(plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let options = lzma_rs::compress::Options {
        unpacked_size: lzma_rs::compress::UnpackedSize::SkipWritingToHeader,
    };
    let mut stream = Vec::new();
    lzma_rs::lzma_compress_with_options(&mut &*plain, &mut stream, &options)?;
    // Properties, dictionary size, then the range coder's bytes.
    let properties = stream[0];
    let coded = &stream[5..];
    let (plain_size, coded_size) = (plain.len() - 1, coded.len() - 1);
    out.push(0xe0 | (plain_size >> 16) as u8);
    out.extend(((plain_size & 0xffff) as u16).to_be_bytes());
    out.extend(
        u16::try_from(coded_size)
            .map_err(io::Error::other)?
            .to_be_bytes(),
    );
    out.push(properties);
    out.extend(coded);
    Ok(())
}

/// Seven bits a byte, lowest first.
fn number(mut value: usize, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

fn crc32(data: &[u8]) -> u32 {
    !data.iter().fold(!0u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg())
        })
    })
}
