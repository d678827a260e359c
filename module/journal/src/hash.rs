//! The two hashes that journal files index their fields with.

use siphasher::sip::SipHasher24;

/// Siphash-2-4 keyed with the file's id (files with the keyed-hash flag).
pub(crate) fn keyed(key: &[u8; 16], data: &[u8]) -> u64 {
    SipHasher24::new_with_key(key).hash(data)
}

/// Bob Jenkins' lookup3 (`hashlittle2` with both seeds zero), the first word in the high half
/// (files without the flag, and every file's entry checksum).
pub(crate) fn jenkins(data: &[u8]) -> u64 {
    let seed = 0xdead_beef_u32.wrapping_add(data.len() as u32);
    let (mut a, mut b, mut c) = (seed, seed, seed);
    let mut rest = data;
    while rest.len() > 12 {
        a = a.wrapping_add(word(rest, 0));
        b = b.wrapping_add(word(rest, 4));
        c = c.wrapping_add(word(rest, 8));
        (a, b, c) = mix(a, b, c);
        rest = &rest[12..];
    }
    // Nothing left happens only for empty data, where lookup3 skips the final mix.
    if !rest.is_empty() {
        a = a.wrapping_add(word(rest, 0));
        b = b.wrapping_add(word(rest, 4));
        c = c.wrapping_add(word(rest, 8));
        (b, c) = last_mix(a, b, c);
    }
    (u64::from(c) << 32) | u64::from(b)
}

/// Little-endian word at `at`; bytes past the end count as zero.
fn word(data: &[u8], at: usize) -> u32 {
    (0..4).fold(0, |word, i| {
        word | data
            .get(at + i)
            .map_or(0, |byte| u32::from(*byte) << (8 * i))
    })
}

fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    a = a.wrapping_sub(c) ^ c.rotate_left(4);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(6);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(8);
    b = b.wrapping_add(a);
    a = a.wrapping_sub(c) ^ c.rotate_left(16);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(19);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(4);
    b = b.wrapping_add(a);
    (a, b, c)
}

fn last_mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32) {
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    c = (c ^ b).wrapping_sub(b.rotate_left(24));
    (b, c)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of lookup3.c's own self test.
    #[test]
    fn jenkins_gives_the_published_values() {
        assert_eq!(jenkins(b""), 0xdead_beef_dead_beef);
        assert_eq!(
            jenkins(b"Four score and seven years ago"),
            0x1777_0551_ce72_26e6
        );
    }
}
