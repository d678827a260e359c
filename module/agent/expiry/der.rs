//! As much of X.509 as a warning needs: PEM, and the end of a certificate's life. Never used to
//! trust anything.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The end of the certificate of a PEM text that ends first.
pub fn earliest_end(pem: &[u8]) -> Option<Timestamp> {
    let all = certificates(pem);
    all.iter().filter_map(|der| not_after(der)).min()
}

/// The certificates of a PEM text, in DER.
fn certificates(pem: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(pem);
    text.split("-----BEGIN CERTIFICATE-----")
        .skip(1)
        .filter_map(|rest| rest.split_once("-----END CERTIFICATE-----"))
        .filter_map(|(body, _)| {
            let body: String = body.chars().filter(|c| !c.is_whitespace()).collect();
            STANDARD.decode(body).ok()
        })
        .collect()
}

/// `notAfter` of a certificate in DER (RFC 5280, 4.1).
pub(super) fn not_after(der: &[u8]) -> Option<Timestamp> {
    let (_, certificate, _) = element(der, Some(SEQUENCE))?;
    let (_, mut rest, _) = element(certificate, Some(SEQUENCE))?;
    if rest.first() == Some(&VERSION) {
        rest = element(rest, None)?.2;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        rest = element(rest, None)?.2;
    }
    let (_, validity, _) = element(rest, Some(SEQUENCE))?;
    let (_, _, after) = element(validity, None)?;
    let (tag, text, _) = element(after, None)?;
    let text = std::str::from_utf8(text).ok()?;
    let full = match tag {
        UTC_TIME => {
            // Two digits: 50 to 99 are of the last century (RFC 5280, 4.1.2.5.1).
            let year: u8 = text.get(..2)?.parse().ok()?;
            format!("{}{text}", if year >= 50 { "19" } else { "20" })
        }
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", &full).ok()?;
    time.to_zoned(TimeZone::UTC)
        .ok()
        .map(|time| time.timestamp())
}

/// Tag, content and what follows the first element.
fn element(der: &[u8], wanted: Option<u8>) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    if wanted.is_some_and(|wanted| wanted != tag) {
        return None;
    }
    let (&first, mut rest) = rest.split_first()?;
    let length = if first < 0x80 {
        usize::from(first)
    } else {
        let count = usize::from(first & 0x7f);
        if count == 0 || count > 4 {
            return None;
        }
        let (bytes, after) = rest.split_at_checked(count)?;
        rest = after;
        bytes
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte))
    };
    let (content, after) = rest.split_at_checked(length)?;
    Some((tag, content, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with `openssl ca -selfsign -enddate 20310506070809Z`: a date before 2050, in the short form.
    const UTC: &str = include_str!("testdata/utc-time.pem");
    /// The same with `-enddate 20550102030405Z`, in the long form.
    const LONG: &str = include_str!("testdata/generalized-time.pem");

    #[test]
    fn the_end_of_a_certificate_is_read_in_both_forms() {
        let ends: Vec<String> = [UTC, LONG]
            .iter()
            .map(|pem| {
                not_after(&certificates(pem.as_bytes())[0])
                    .unwrap()
                    .to_string()
            })
            .collect();
        assert_eq!(ends, ["2031-05-06T07:08:09Z", "2055-01-02T03:04:05Z"]);
        let both = format!("{LONG}\n{UTC}");
        assert_eq!(certificates(both.as_bytes()).len(), 2);
        assert_eq!(earliest_end(both.as_bytes()).unwrap().to_string(), ends[0]);
        assert_eq!(earliest_end(b"no certificate"), None);
    }

    #[test]
    fn nonsense_is_no_certificate() {
        let der = &certificates(UTC.as_bytes())[0];
        for length in 0..der.len() {
            // Cut short it may still hold the date, but it must not panic; the outer length fails.
            assert_eq!(not_after(&der[..length]), None);
        }
        assert!(
            certificates(b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----").is_empty()
        );
        assert_eq!(not_after(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
