//! Log lines as IoT Edge's edgeAgent reads them when it uploads module logs: a syslog priority in
//! angle brackets, a time with milliseconds and offset, then the text; one entry a line.
//!
//! The form is that of `doc/built-in-logs-pull.md` in Azure/iotedge; edgeAgent filters by the
//! priority and the time that it finds there.

use std::fmt::Write;

use jiff::Timestamp;
use tracing::Level;

use super::entry::Entry;

/// The line of an entry, with its line break.
pub(super) fn line(entry: &Entry, now: Timestamp) -> String {
    let (priority, name) = match entry.level {
        Level::ERROR => (3, "ERR"),
        Level::WARN => (4, "WRN"),
        Level::INFO => (6, "INF"),
        Level::DEBUG => (7, "DBG"),
        Level::TRACE => (7, "TRC"),
    };
    let time = now.strftime("%Y-%m-%d %H:%M:%S%.3f");
    let mut out = format!("<{priority}> {time} +00:00 [{name}] - ");
    put(&mut out, &entry.message);
    for (key, value) in &entry.fields {
        // Writing to a String cannot fail.
        let _ = write!(out, " {key}=");
        if value.is_empty() || value.contains([' ', '"', '=', '\n', '\t']) {
            let _ = write!(out, "{value:?}");
        } else {
            put(&mut out, value);
        }
    }
    out.push('\n');
    out
}

/// Control characters would break the line, or a terminal.
fn put(out: &mut String, text: &str) {
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(level: Level, message: &str, fields: &[(&str, &str)]) -> Entry {
        Entry {
            level,
            target: "t".to_owned(),
            module: None,
            file: None,
            line: None,
            message: message.to_owned(),
            fields: fields
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
        }
    }

    #[test]
    fn a_line_is_what_edge_agent_reads() {
        let now: Timestamp = "2026-12-01T10:00:00.0125Z".parse().unwrap();
        let written = line(
            &entry(
                Level::INFO,
                "healed",
                &[("service", "line1/model"), ("reason", "two words")],
            ),
            now,
        );
        assert_eq!(
            written,
            "<6> 2026-12-01 10:00:00.012 +00:00 [INF] - healed service=line1/model reason=\"two words\"\n"
        );
        // The pattern that edgeAgent applies, written anew: priority, then the time.
        let form =
            regex::Regex::new(r"^<(\d)>\s(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} [+-]\d\d:\d\d)\s")
                .unwrap();
        for (level, priority) in [(Level::ERROR, "3"), (Level::WARN, "4"), (Level::DEBUG, "7")] {
            let text = line(&entry(level, "x", &[]), Timestamp::UNIX_EPOCH);
            assert_eq!(&form.captures(&text).unwrap()[1], priority);
        }
    }

    #[test]
    fn an_entry_is_one_line_whatever_it_holds() {
        let text = line(
            &entry(Level::ERROR, "a\nb\u{1b}[31m", &[("k", "c\nd")]),
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(text.matches('\n').count(), 1);
        assert!(!text.contains('\u{1b}'));
        assert!(text.ends_with("a\\nb\\u{1b}[31m k=\"c\\nd\"\n"), "{text}");
    }
}
