//! The hashes of journal files. A second implementation beside the reader's on purpose: the two
//! check each other, and the lab imports nothing of the product.

use siphasher::sip::SipHasher24;

/// Siphash-2-4 keyed with the file id.
pub(super) fn keyed(file_id: &[u8; 16], data: &[u8]) -> u64 {
    SipHasher24::new_with_key(file_id).hash(data)
}

/// lookup3's `hashlittle2`, as systemd combines its two words.
pub(super) fn jenkins(data: &[u8]) -> u64 {
    let mut s = [0xdead_beef_u32.wrapping_add(data.len() as u32); 3];
    let mut blocks = data.chunks(12).peekable();
    while let Some(block) = blocks.next() {
        for (i, byte) in block.iter().enumerate() {
            s[i / 4] = s[i / 4].wrapping_add(u32::from(*byte) << (8 * (i % 4)));
        }
        if blocks.peek().is_some() {
            // Each step: one word minus another, mixed with it rotated, and a third one added up.
            for (step, rotation) in [4, 6, 8, 16, 19, 4].into_iter().enumerate() {
                let (x, y, z) = (step % 3, (step + 2) % 3, (step + 1) % 3);
                s[x] = s[x].wrapping_sub(s[y]) ^ s[y].rotate_left(rotation);
                s[y] = s[y].wrapping_add(s[z]);
            }
        } else {
            for (step, rotation) in [14, 11, 25, 16, 4, 14, 24].into_iter().enumerate() {
                let (x, y) = ((step + 2) % 3, (step + 1) % 3);
                s[x] = (s[x] ^ s[y]).wrapping_sub(s[y].rotate_left(rotation));
            }
        }
    }
    (u64::from(s[2]) << 32) | u64::from(s[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jenkins_gives_the_published_values() {
        assert_eq!(jenkins(b""), 0xdead_beef_dead_beef);
        assert_eq!(
            jenkins(b"Four score and seven years ago"),
            0x1777_0551_ce72_26e6
        );
    }
}
