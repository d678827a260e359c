//! The newest moment that a dump mentions: a dump has no date of its own, but its objects do.

use jiff::Timestamp;

/// The shortest form, `2026-11-30T10:00:00Z`.
const SHORTEST: usize = 20;

/// The newest RFC 3339 moment in the text that is not after `now`. The end of a pod's grace
/// (`deletionTimestamp`) lies in the future of the dump and does not count.
pub fn newest_before(text: &str, now: Timestamp) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let mut newest = None;
    let mut at = 10;
    while at + SHORTEST - 10 <= bytes.len() {
        if !is_moment(bytes, at) {
            at += 1;
            continue;
        }
        let start = at - 10;
        let rest = text.get(start..).unwrap_or_default();
        let length = rest
            .find(|c: char| !(c.is_ascii_digit() || matches!(c, '-' | 'T' | ':' | '.' | 'Z' | '+')))
            .unwrap_or(rest.len());
        let moment = rest
            .get(..length)
            .and_then(|text| text.parse::<Timestamp>().ok());
        if let Some(moment) = moment
            && moment <= now
            && !is_end_of_grace(text.get(..start).unwrap_or_default())
        {
            newest = newest.max(Some(moment));
        }
        at += length.max(1);
    }
    newest
}

/// Whether there is a `T` here with a date before it and a time behind it.
fn is_moment(bytes: &[u8], at: usize) -> bool {
    let is = |offset: isize, wanted: u8| {
        at.checked_add_signed(offset)
            .and_then(|i| bytes.get(i))
            .is_some_and(|b| *b == wanted)
    };
    is(0, b'T') && is(-3, b'-') && is(-6, b'-') && is(3, b':') && is(6, b':')
}

fn is_end_of_grace(before: &str) -> bool {
    before
        .trim_end_matches(['"', '\'', ' ', ':'])
        .ends_with("deletionTimestamp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_newest_past_moment_and_leaves_the_end_of_grace_out() {
        let now: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
        let text = r#"{"creationTimestamp":"2026-11-30T09:00:00Z","renewTime":
            "2026-11-30T10:00:00.250000Z","deletionTimestamp": "2026-11-30T11:00:00Z",
            "notAfter":"2030-01-01T00:00:00Z","x":"T-T:T"}"#;
        let newest = newest_before(text, now).unwrap();
        assert_eq!(newest.to_string(), "2026-11-30T10:00:00.25Z");
        let yaml = "deletionTimestamp: \"2026-11-30T11:00:00Z\"\nat: 2026-11-30T08:00:00+01:00";
        assert_eq!(
            newest_before(yaml, now).unwrap().to_string(),
            "2026-11-30T07:00:00Z"
        );
        assert_eq!(newest_before("2026-11-30T1", now), None);
        assert_eq!(
            newest_before("ä2026-11-30T10:00:00Zö", now)
                .unwrap()
                .to_string(),
            "2026-11-30T10:00:00Z"
        );
    }
}
