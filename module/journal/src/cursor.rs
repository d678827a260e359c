//! A place in the journal in the text form that journalctl prints and takes.

use crate::Id128;
use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// `s=…;i=…;b=…;m=…;t=…;x=…`: sequence number id and number, boot id and monotonic time, realtime
/// (both in microseconds), and the exclusive-or of the entry's field hashes; all numbers hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    /// Sequence number id and the entry's number within it.
    pub seqnum: Option<(Id128, u64)>,
    /// Boot id and the time since that boot, in microseconds.
    pub monotonic: Option<(Id128, u64)>,
    /// Wall-clock time, in microseconds since 1970.
    pub realtime: Option<u64>,
    /// Exclusive-or over the hashes of the entry's fields.
    pub xor_hash: Option<u64>,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut part = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            let result = write!(f, "{separator}{text}");
            separator = ";";
            result
        };
        if let Some((id, number)) = self.seqnum {
            part(f, format_args!("s={id};i={number:x}"))?;
        }
        if let Some((boot, usec)) = self.monotonic {
            part(f, format_args!("b={boot};m={usec:x}"))?;
        }
        if let Some(usec) = self.realtime {
            part(f, format_args!("t={usec:x}"))?;
        }
        if let Some(hash) = self.xor_hash {
            part(f, format_args!("x={hash:x}"))?;
        }
        Ok(())
    }
}

impl FromStr for Cursor {
    type Err = Error;

    /// Parts may come in any order and unknown ones are skipped, as sd-journal does; what remains
    /// must say a place: a sequence number, a monotonic time or a realtime.
    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |why| Error::BadCursor {
            text: text.chars().take(256).collect(),
            why,
        };
        let (mut s, mut i, mut b, mut m) = (None, None, None, None);
        let mut cursor = Self::default();
        for part in text.trim().split(';').filter(|part| !part.is_empty()) {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| bad("a part without `=`"))?;
            let id = || {
                value
                    .parse::<Id128>()
                    .map_err(|_| bad("an id is not 32 hex digits"))
            };
            let number =
                || u64::from_str_radix(value, 16).map_err(|_| bad("a number is not hexadecimal"));
            match key {
                "s" => s = Some(id()?),
                "i" => i = Some(number()?),
                "b" => b = Some(id()?),
                "m" => m = Some(number()?),
                "t" => cursor.realtime = Some(number()?),
                "x" => cursor.xor_hash = Some(number()?),
                _ => {}
            }
        }
        cursor.seqnum = s.zip(i);
        cursor.monotonic = b.zip(m);
        if cursor.seqnum.is_none() && cursor.monotonic.is_none() && cursor.realtime.is_none() {
            return Err(bad("it names no place (s and i, b and m, or t)"));
        }
        Ok(cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "s=0639b1e41b4a4a4b8c1f2f6f8d1f6a01;i=4e2;b=9b1e41b4a4a4b8c1f2f6f8d1f6a01063;m=2f1c9d3;t=5f0c1b2a3d4e5;x=8a7b6c5d4e3f2a1";

    #[test]
    fn text_goes_round() {
        let cursor: Cursor = TEXT.parse().unwrap();
        assert_eq!(cursor.to_string(), TEXT);
        assert_eq!(cursor.seqnum.unwrap().1, 0x4e2);
    }

    #[test]
    fn parts_may_be_missing_but_a_place_must_remain() {
        let cursor: Cursor = "t=10;x=2;z=future".parse().unwrap();
        assert_eq!((cursor.realtime, cursor.xor_hash), (Some(16), Some(2)));
        assert_eq!(cursor.to_string(), "t=10;x=2");
        for text in ["", "x=1", "s=00000000000000000000000000000000", "t=zz", "t"] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }
}
