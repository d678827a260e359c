//! The story of an incident: signal, finding, decision, action, outcome, each with its time. Kept
//! with the incident for whoever asks later; decides nothing.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::gate::HoldReason;
use crate::event::HealOutcome;
use crate::judge::{FindingKind, RemedyAction, Severity};
use crate::model::ServiceKey;

/// How many entries a story has at most: its beginning, and what came last.
const MOST: usize = 64;
/// Of them, from the beginning.
const FIRST: usize = 16;
/// The longest text of an entry, in bytes.
const LONGEST: usize = 600;

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// A journal rule matched.
    Signal,
    /// What was found wrong.
    Finding,
    /// To heal, or why not.
    Decision,
    /// What was read or written.
    Action,
    /// How it ended.
    Outcome,
}

/// One moment of the story.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When.
    pub at: Timestamp,
    /// What it is about.
    pub what: What,
    /// One sentence.
    pub text: String,
}

/// A bounded list of entries, in the order in which they were told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Story(Vec<Entry>);

impl Story {
    /// Adds an entry. Where there are too many, one from the middle goes.
    pub fn add(&mut self, at: Timestamp, what: What, text: impl Into<String>) {
        let mut text: String = text.into();
        if text.len() > LONGEST {
            let end = (0..=LONGEST).rev().find(|i| text.is_char_boundary(*i));
            text.truncate(end.unwrap_or_default());
        }
        if self.0.len() == MOST {
            self.0.remove(FIRST);
        }
        self.0.push(Entry { at, what, text });
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }
}

/// An incident as it is kept: told when it is held back, when a heal ends, and when it is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IncidentRecord {
    /// Its id, as in the events.
    pub id: String,
    /// Whose.
    pub service: ServiceKey,
    /// The worst finding's slice.
    pub slice: Option<String>,
    /// The worst finding's kind.
    pub kind: FindingKind,
    /// Its severity.
    pub severity: Severity,
    /// Its sentence.
    pub message: String,
    /// When it was first seen.
    pub opened: Timestamp,
    /// When it was over; none while it stands.
    pub closed: Option<Timestamp>,
    /// How many heals were begun.
    pub attempts: u32,
    /// The last step taken, `none` where nothing was written.
    pub action: RemedyAction,
    /// How the last heal ended, if one did.
    pub outcome: Option<HealOutcome>,
    /// Why it is held back, if it is.
    pub held: Option<HoldReason>,
    /// From the first sight to the end, or to now.
    pub seconds: f64,
    /// What happened, in order.
    pub story: Story,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_keeps_its_beginning_and_its_end() {
        let mut story = Story::default();
        for i in 0..200 {
            story.add(Timestamp::UNIX_EPOCH, What::Action, i.to_string());
        }
        let texts: Vec<&str> = story.entries().iter().map(|e| e.text.as_str()).collect();
        assert_eq!(texts.len(), MOST);
        assert_eq!((texts[0], texts[FIRST - 1]), ("0", "15"));
        assert_eq!(texts[MOST - 1], "199");
        story.add(Timestamp::UNIX_EPOCH, What::Action, "é".repeat(1000));
        assert!(story.entries()[MOST - 1].text.len() <= LONGEST);
    }
}
