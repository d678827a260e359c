//! Holds that a person sets at run time, by direct method or command line, beside those of settings
//! and twin: named, with an end, on disk. Which holds are in force is the settings' to say.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tracing::{info, warn};

use super::books::Books;
use super::pump::Pump;
use crate::report::methods::Answer;

/// How many there may be at a time.
const MOST: usize = 16;
/// The longest name, in characters.
const LONGEST_NAME: usize = 64;
/// The longest hold: a month is a setting.
const LONGEST_MINUTES: u32 = 31 * 24 * 60;

/// Holds by name, each with its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holds(BTreeMap<String, Timestamp>);

impl Holds {
    /// What an earlier process kept.
    pub(super) fn kept(holds: BTreeMap<String, Timestamp>) -> Self {
        Self(holds)
    }

    /// All of them, those that have ended included.
    pub(super) fn all(&self) -> &BTreeMap<String, Timestamp> {
        &self.0
    }

    /// Sets one, or another end of one; the end is returned. Those that have ended leave.
    ///
    /// # Errors
    /// What is wrong with name or minutes, with the field.
    pub(super) fn set(
        &mut self,
        name: &str,
        minutes: u32,
        now: Timestamp,
    ) -> Result<Timestamp, String> {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(legal) {
            return Err(format!(
                "name: {name:?} is not 1 to {LONGEST_NAME} letters, digits, `-`, `_` or `.`"
            ));
        }
        if !(1..=LONGEST_MINUTES).contains(&minutes) {
            return Err(format!("minutes: {minutes} is not 1 to {LONGEST_MINUTES}"));
        }
        self.0.retain(|_, until| *until > now);
        if self.0.len() >= MOST && !self.0.contains_key(name) {
            return Err(format!("name: there are {MOST} holds already; release one"));
        }
        let until = now
            .checked_add(SignedDuration::from_mins(minutes.into()))
            .map_err(|e| format!("minutes: {e}"))?;
        self.0.insert(name.to_owned(), until);
        Ok(until)
    }

    /// Ends one; whether there was one that had not ended.
    pub(super) fn release(&mut self, name: &str, now: Timestamp) -> bool {
        self.0.remove(name).is_some_and(|until| until > now)
    }

    async fn keep(&self, books: &Books) -> Option<String> {
        let kept = books.keep_holds(&self.0).await.err()?;
        warn!(error = %kept, "the holds could not be written; they end with this process");
        Some(kept.to_string())
    }
}

impl Pump {
    /// Takes up the holds of an earlier process.
    pub(super) fn take_up_holds(&mut self, holds: BTreeMap<String, Timestamp>) {
        self.holds = Holds::kept(holds);
    }

    pub(super) async fn hold(&mut self, name: &str, minutes: u32) -> Answer {
        match self.holds.set(name, minutes, Timestamp::now()) {
            Ok(until) => {
                info!(name, %until, "hold: nothing is written until then");
                let mut body = json!({"name": name, "until": until.to_string()});
                if let Some(why) = self.holds.keep(&self.books).await {
                    body["warning"] = format!("it ends with this process: {why}").into();
                }
                Answer::new(200, body)
            }
            Err(why) => Answer::error(400, format!("hold: {why}")),
        }
    }

    pub(super) async fn release(&mut self, name: &str) -> Answer {
        let now = Timestamp::now();
        if self.holds.release(name, now) {
            info!(name, "hold released");
            let mut body = json!({"name": name});
            if let Some(why) = self.holds.keep(&self.books).await {
                body["warning"] = format!("it may come back with the next start: {why}").into();
            }
            return Answer::new(200, body);
        }
        let of_settings = self.desired.in_force().holds.get(name);
        if of_settings.is_some_and(|until| *until > now) {
            let detail = format!("hold {name:?} is set by file or twin; take it away there");
            return Answer::new(409, json!({"reason": "hold", "detail": detail}));
        }
        Answer::error(404, format!("release: there is no hold {name:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_hold_has_a_name_an_end_and_a_release() {
        let mut holds = Holds::default();
        let now = at("2026-12-01T08:00:00Z");
        assert_eq!(holds.set("audit", 30, now), Ok(at("2026-12-01T08:30:00Z")));
        assert_eq!(holds.set("audit", 60, now), Ok(at("2026-12-01T09:00:00Z")));
        assert_eq!(holds.all().len(), 1, "another end of the same hold");
        assert!(holds.release("audit", now));
        assert!(!holds.release("audit", now));
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_field() {
        let mut holds = Holds::default();
        let now = at("2026-12-01T08:00:00Z");
        let long = "x".repeat(65);
        for name in ["", "a b", "ž", long.as_str()] {
            let why = holds.set(name, 1, now).unwrap_err();
            assert!(why.starts_with("name: "), "{why}");
        }
        for minutes in [0, LONGEST_MINUTES + 1] {
            let why = holds.set("a", minutes, now).unwrap_err();
            assert!(why.starts_with("minutes: "), "{why}");
        }
        for i in 0..MOST {
            holds.set(&format!("h{i}"), 1, now).unwrap();
        }
        assert!(holds.set("one-more", 1, now).is_err());
        assert!(
            holds.set("h0", 5, now).is_ok(),
            "one that is there may change"
        );
        // Those that have ended make room.
        assert!(holds.set("one-more", 1, at("2026-12-01T09:00:00Z")).is_ok());
    }
}
