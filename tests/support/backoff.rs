//! When the slice controller will try again, worked out from what it has logged.
//!
//! Its queue puts a Service off by 1 s after the first failure, by 2 s after the second and so on,
//! up to 1000 s; an earlier date that is still to come stands. Events let it try in between, which
//! counts as a failure like any other.

use anyhow::{Context as _, Result};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// What the controller logs each time a sync fails and will be tried again.
pub const RETRYING: &str = "Error syncing endpoint slices for service, retrying";
/// What it logs when it has failed 15 times and waits for the next event.
pub const GIVEN_UP: &str = "Retry budget exceeded, dropping service out of the queue";

/// A line is written a little before the Service is put off.
const SLACK: SignedDuration = SignedDuration::from_millis(5);

/// The date of the next try of `namespace/service`, if it has failed since `since`. No sync may have
/// succeeded from then on: the controller does not log that it counts from zero again.
///
/// # Errors
/// When a line does not begin as the controller's lines do.
pub fn next_try(
    log: &str,
    since: Timestamp,
    namespace: &str,
    service: &str,
) -> Result<Option<Timestamp>> {
    let key = format!("key=\"{namespace}/{service}\"");
    let mut failures = 0;
    let mut due: Option<Timestamp> = None;
    for line in log.lines().filter(|line| line.contains(&key)) {
        if line.contains(GIVEN_UP) {
            failures = 0;
        } else if line.contains(RETRYING) {
            let at = logged_at(line)?;
            if at < since {
                continue;
            }
            let seconds = 2_i64.pow(failures).min(1000);
            let next = at + SignedDuration::from_secs(seconds);
            let standing = due.filter(|due| *due > at + SLACK);
            due = Some(standing.map_or(next, |standing| standing.min(next)));
            failures = (failures + 1).min(15);
        }
    }
    Ok(due)
}

/// `I1201 01:37:17.409277   4101 file.go:358] …`: month, day and time, here in UTC; no year.
fn logged_at(line: &str) -> Result<Timestamp> {
    let stamp = line.get(1..21).context("a short line")?;
    let year = Timestamp::now().to_zoned(TimeZone::UTC).year();
    let text = format!("{year}{stamp}");
    let at = DateTime::strptime("%Y%m%d %H:%M:%S%.f", &text).with_context(|| line.to_owned())?;
    Ok(at.to_zoned(TimeZone::UTC)?.timestamp())
}

#[test]
fn a_date_stands_until_it_has_come() -> Result<()> {
    let line = |time: &str| format!("I0301 10:00:{time}    7 x.go:1] \"{RETRYING}\" key=\"a/b\"\n");
    let second = |log: &str| -> Result<Option<i64>> {
        let from = logged_at("I0301 10:00:00.000000")?;
        Ok(next_try(log, from, "a", "b")?.map(|due| due.duration_since(from).as_secs()))
    };
    let mut log = line("00.000000").replace("a/b", "a/c");
    log += &line("00.000000").replace("10:00", "09:59");
    assert_eq!(second(&log)?, None, "another Service, and too early");
    // Two failures at once: the first one's second stands. Then the third's four, then eight.
    log += &line("01.000000");
    log += &line("01.100000");
    assert_eq!(second(&log)?, Some(2));
    log += &line("02.000100");
    assert_eq!(second(&log)?, Some(6));
    log += &line("03.000000");
    assert_eq!(
        second(&log)?,
        Some(6),
        "an event in between does not put it off"
    );
    log += &line("06.001000");
    assert_eq!(second(&log)?, Some(22));
    Ok(())
}
