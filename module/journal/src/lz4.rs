//! The beginning of an LZ4 block: the libraries decode a block whole, and an entry's payload may be
//! hundreds of megabytes of which the caller wants a few kilobytes.

/// Decodes until `limit` bytes are there or the block ends. None where the block is damaged.
/// Format: <https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>.
pub(crate) fn prefix(input: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(limit.min(4096));
    let mut at = 0;
    while out.len() < limit {
        let token = *input.get(at)?;
        at += 1;
        let literals = length(input, &mut at, token >> 4)?;
        let bytes = input.get(at..at.checked_add(literals)?)?;
        out.extend_from_slice(&bytes[..literals.min(limit - out.len())]);
        at += literals;
        // The last sequence has no match part.
        if at == input.len() || out.len() == limit {
            break;
        }
        let distance = usize::from(u16::from_le_bytes([*input.get(at)?, *input.get(at + 1)?]));
        at += 2;
        let matched = length(input, &mut at, token & 15)?.checked_add(4)?;
        let start = out.len().checked_sub(distance)?;
        if distance == 0 {
            return None;
        }
        // The match may run into what it writes, so byte by byte.
        for i in 0..matched.min(limit - out.len()) {
            out.push(out[start + i]);
        }
    }
    Some(out)
}

fn length(input: &[u8], at: &mut usize, nibble: u8) -> Option<usize> {
    let mut length = usize::from(nibble);
    if nibble == 15 {
        loop {
            let byte = *input.get(*at)?;
            *at += 1;
            length = length.checked_add(usize::from(byte))?;
            if byte != 255 {
                break;
            }
        }
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gives_the_beginning_of_what_the_library_packed(
            words in prop::collection::vec(prop::sample::select(vec!["cache", " hit ", "slice", "\0", "é"]), 0..300),
            limit in 0usize..2000,
        ) {
            let plain = words.concat().into_bytes();
            let packed = lz4_flex::block::compress(&plain);
            prop_assert_eq!(prefix(&packed, limit).unwrap(), &plain[..limit.min(plain.len())]);
        }

        #[test]
        fn damage_ends_in_none_or_some_never_in_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200), limit in 0usize..4096,
        ) {
            if let Some(out) = prefix(&bytes, limit) {
                prop_assert!(out.len() <= limit);
            }
        }
    }
}
