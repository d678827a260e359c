//! Opening times: when writing is allowed, in a time zone of its own. Pure: the caller says what
//! time it is.

use std::borrow::Cow;
use std::fmt;

use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const DAYS: [(&str, Weekday); 7] = [
    ("mon", Weekday::Monday),
    ("tue", Weekday::Tuesday),
    ("wed", Weekday::Wednesday),
    ("thu", Weekday::Thursday),
    ("fri", Weekday::Friday),
    ("sat", Weekday::Saturday),
    ("sun", Weekday::Sunday),
];

/// One opening time: `Mon-Fri 22:00-05:00 Europe/Prague`. Days are a range or a list
/// (`Sat,Sun`), `*` is every day; the day is the one on which the window opens, so that a window
/// over midnight reaches into the next. `00:00-24:00` is the whole day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    text: String,
    days: [bool; 7],
    from: u16,
    to: u16,
    zone: TimeZone,
}

impl Window {
    /// Whether it is open.
    pub fn is_open(&self, now: Timestamp) -> bool {
        let local = now.to_zoned(self.zone.clone());
        let minute = minutes(local.time());
        let today = self.opens_on(local.weekday());
        if self.from < self.to {
            return today && (self.from..self.to).contains(&minute);
        }
        let yesterday = local
            .date()
            .checked_sub(1.day())
            .is_ok_and(|date| self.opens_on(date.weekday()));
        (today && minute >= self.from) || (yesterday && minute < self.to)
    }

    fn opens_on(&self, day: Weekday) -> bool {
        self.days[usize::from(day.to_monday_zero_offset().unsigned_abs())]
    }
}

impl std::str::FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!(
                "`{text}` is not an opening time such as `Mon-Fri 22:00-05:00 Europe/Prague`: {what}"
            )
        };
        let mut parts = text.split_whitespace();
        let (Some(days), Some(hours), Some(zone), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong("days, hours and time zone are needed"));
        };
        let zone = TimeZone::get(zone).map_err(|_| wrong("that time zone is not known"))?;
        let days = parse_days(days).ok_or_else(|| wrong("the days are not clear"))?;
        let (from, to) = hours
            .split_once('-')
            .and_then(|(from, to)| Some((parse_minutes(from)?, parse_minutes(to)?)))
            .filter(|(from, to)| from != to && *from < 24 * 60)
            .ok_or_else(|| wrong("the hours are not clear"))?;
        Ok(Self {
            text: text.to_owned(),
            days,
            from,
            to,
            zone,
        })
    }
}

fn minutes(time: Time) -> u16 {
    u16::from(time.hour().unsigned_abs()) * 60 + u16::from(time.minute().unsigned_abs())
}

fn parse_minutes(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
    let all = hour * 60 + minute;
    (hour <= 24 && minute < 60 && all <= 24 * 60).then_some(all)
}

fn parse_days(text: &str) -> Option<[bool; 7]> {
    if text == "*" {
        return Some([true; 7]);
    }
    let number = |name: &str| {
        DAYS.iter()
            .position(|(day, _)| name.eq_ignore_ascii_case(day))
    };
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (mut day, last) = (number(first)?, number(last)?);
        loop {
            days[day] = true;
            if day == last {
                break;
            }
            day = (day + 1) % 7;
        }
    }
    Some(days)
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Window {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Window {
    fn schema_name() -> Cow<'static, str> {
        "Window".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "days, hours and time zone",
            "examples": ["Mon-Fri 22:00-05:00 Europe/Prague"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(window: &str, at: &str) -> bool {
        window
            .parse::<Window>()
            .unwrap()
            .is_open(at.parse().unwrap())
    }

    #[test]
    fn a_window_is_open_in_its_own_time_zone() {
        // 2026-12-01 is a Tuesday; Prague is one hour ahead of UTC then, two in summer.
        let window = "Mon-Fri 08:00-16:00 Europe/Prague";
        assert!(open(window, "2026-12-01T07:00:00Z"));
        assert!(!open(window, "2026-12-01T06:59:59Z"));
        assert!(!open(window, "2026-12-01T15:00:00Z"));
        assert!(open(window, "2026-07-01T06:30:00Z"));
        assert!(!open(window, "2026-12-05T10:00:00Z"), "a Saturday");
    }

    #[test]
    fn a_window_over_midnight_belongs_to_the_day_it_opens_on() {
        let window = "Fri 22:00-05:00 UTC";
        assert!(open(window, "2026-12-04T22:00:00Z"));
        assert!(open(window, "2026-12-05T04:59:00Z"));
        assert!(!open(window, "2026-12-05T05:00:00Z"));
        assert!(
            !open(window, "2026-12-04T04:00:00Z"),
            "Thursday did not open it"
        );
    }

    #[test]
    fn day_ranges_wrap_and_whole_days_are_whole() {
        assert!(open("Sat-Mon 00:00-24:00 UTC", "2026-11-30T23:59:59Z"));
        assert!(!open("Sat-Mon 00:00-24:00 UTC", "2026-12-01T00:00:00Z"));
        assert!(open("* 00:00-24:00 UTC", "2026-12-01T00:00:00Z"));
        assert!(open("tue,thu 00:00-24:00 UTC", "2026-12-03T12:00:00Z"));
    }

    #[test]
    fn a_night_in_which_the_clock_changes_ends_at_its_hour_all_the_same() {
        // Prague goes to summer time at 2026-03-29 02:00 (01:00 UTC) and back at 2026-10-25 03:00.
        let night = "Sat 22:00-05:00 Europe/Prague";
        for (opens, last, closed) in [
            (
                "2026-03-28T21:00:00Z",
                "2026-03-29T02:59:59Z",
                "2026-03-29T03:00:00Z",
            ),
            (
                "2026-10-24T20:00:00Z",
                "2026-10-25T03:59:59Z",
                "2026-10-25T04:00:00Z",
            ),
        ] {
            assert!(open(night, opens) && open(night, last), "{opens}");
            assert!(!open(night, closed), "{closed}");
        }
    }

    #[test]
    fn an_hour_that_the_clock_skips_does_not_open_and_one_that_it_repeats_opens_twice() {
        let hour = "Sun 02:15-02:45 Europe/Prague";
        for minute in 0..180 {
            let start: Timestamp = "2026-03-29T00:00:00Z".parse().unwrap();
            let at = start + minute.minutes();
            assert!(!hour.parse::<Window>().unwrap().is_open(at), "{at}");
        }
        assert!(open(hour, "2026-10-25T00:20:00Z"), "02:20 in summer time");
        assert!(!open(hour, "2026-10-25T00:50:00Z"));
        assert!(open(hour, "2026-10-25T01:20:00Z"), "02:20 once more");
        assert!(!open(hour, "2026-10-25T01:50:00Z"));
    }

    #[test]
    fn what_is_no_opening_time_is_refused() {
        for text in [
            "",
            "Mon-Fri 22:00-05:00",
            "Mon-Fri 22:00-05:00 Mars/Base",
            "Mox 22:00-05:00 UTC",
            "Mon 25:00-26:00 UTC",
            "Mon 08:00-08:00 UTC",
            "Mon 24:00-05:00 UTC",
            "Mon 08:60-09:00 UTC",
            "Mon 08:00-09:00 UTC x",
        ] {
            assert!(text.parse::<Window>().is_err(), "{text}");
        }
    }
}
