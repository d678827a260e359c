//! 128-bit ids as systemd writes them: 32 lower-case hex digits without dashes.

use std::fmt;
use std::str::FromStr;

/// A machine, boot, file or sequence number id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Id128(pub [u8; 16]);

impl fmt::Display for Id128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Id128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id of 32 hex digits")]
pub struct BadId;

impl FromStr for Id128 {
    type Err = BadId;

    /// Takes the plain form and the one with dashes (`/proc/sys/kernel/random/boot_id`).
    fn from_str(text: &str) -> Result<Self, BadId> {
        let mut bytes = [0u8; 16];
        let mut digits = 0usize;
        for c in text.bytes().filter(|c| *c != b'-') {
            let value = char::from(c).to_digit(16).ok_or(BadId)?;
            let slot = bytes.get_mut(digits / 2).ok_or(BadId)?;
            // A hex digit fits four bits.
            *slot = (*slot << 4) | value as u8;
            digits += 1;
        }
        if digits == 32 {
            Ok(Self(bytes))
        } else {
            Err(BadId)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_round_and_dashes_are_taken() {
        let text = "0123456789abcdef0123456789abcdef";
        let id: Id128 = text.parse().unwrap();
        assert_eq!(id.to_string(), text);
        assert_eq!("01234567-89ab-cdef-0123-456789abcdef".parse(), Ok(id));
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "0123", "g123456789abcdef0123456789abcdef"] {
            assert_eq!(text.parse::<Id128>(), Err(BadId), "{text}");
        }
        assert!(
            "0123456789abcdef0123456789abcdef0"
                .parse::<Id128>()
                .is_err()
        );
    }
}
