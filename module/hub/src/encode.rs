//! Percent-encoding as IoT Hub wants it: everything but RFC 3986 "unreserved" is escaped, a space is
//! `%20` and never `+`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Escapes every byte of `text` that is not an RFC 3986 unreserved character.
pub(crate) fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Undoes [`percent_encode`]. Bytes that are not UTF-8 become U+FFFD: a peer's property must not be
/// able to end the connection.
pub(crate) fn percent_decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_what_topics_and_uris_cannot_hold() {
        assert_eq!(
            percent_encode("a b&c=d/e$f+#"),
            "a%20b%26c%3Dd%2Fe%24f%2B%23"
        );
        assert_eq!(percent_encode("Az09-._~"), "Az09-._~");
        assert_eq!(percent_encode("čidlo"), "%C4%8Didlo");
    }

    proptest! {
        #[test]
        fn every_text_survives_a_round_trip(text in ".*") {
            prop_assert_eq!(percent_decode(&percent_encode(&text)), text);
        }

        #[test]
        fn decoding_takes_anything(text in ".*") {
            percent_decode(&text);
        }
    }
}
