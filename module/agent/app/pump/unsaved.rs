//! What a failing disk did not take: kept in order until it does, so that a journal position never
//! runs ahead of the events behind it.

use slice_core::heal::record::Record;

use crate::app::books::Batch;

/// Messages that are kept at most; beyond it the oldest go, and are counted.
const MESSAGES: usize = 5000;
/// Records that are kept at most.
const RECORDS: usize = 1000;

/// Batches that could not be written, as one.
#[derive(Debug, Default)]
pub(super) struct Unsaved {
    batch: Batch,
    dropped: u64,
}

impl Unsaved {
    /// Whether everything is on disk.
    pub(super) fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Messages that were given up.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// What is to be written now: what is kept, then the new.
    pub(super) fn with(&mut self, new: Batch) -> Batch {
        let mut all = std::mem::take(&mut self.batch);
        all.records.extend(new.records);
        all.messages.extend(new.messages);
        all
    }

    /// It was not written.
    pub(super) fn keep(&mut self, mut batch: Batch) {
        batch.cursor = None;
        let surplus = batch.messages.len().saturating_sub(MESSAGES);
        batch.messages.drain(..surplus);
        self.dropped += surplus as u64;
        let surplus = batch.records.len().saturating_sub(RECORDS);
        if surplus > 0 {
            // The oldest stories go first; charges and intents are small and worth more.
            let mut left = surplus;
            batch.records.retain(|record| {
                let goes = left > 0 && matches!(record, Record::Incident(_));
                left -= usize::from(goes);
                !goes
            });
            let surplus = batch.records.len().saturating_sub(RECORDS);
            batch.records.drain(..surplus);
        }
        self.batch = batch;
    }
}

#[cfg(test)]
mod tests {
    use slice_core::event::EventType;

    use super::*;
    use crate::report::telemetry::Message;

    fn message(n: usize) -> Message {
        Message {
            id: n.to_string(),
            output: "events",
            kind: EventType::Signal,
            properties: Vec::new(),
            body: String::new(),
        }
    }

    fn batch(messages: std::ops::Range<usize>) -> Batch {
        Batch {
            records: vec![Record::Intent(None)],
            messages: messages.map(message).collect(),
            cursor: Some("s=1".to_owned()),
        }
    }

    #[test]
    fn what_was_not_written_comes_first_the_next_time() {
        let mut unsaved = Unsaved::default();
        let first = unsaved.with(batch(0..2));
        unsaved.keep(first);
        let second = unsaved.with(batch(2..3));
        let ids: Vec<&str> = second.messages.iter().map(|m| m.id.as_str()).collect();
        assert_eq!(ids, ["0", "1", "2"]);
        assert_eq!(second.records.len(), 2);
        assert_eq!(second.cursor, None, "the pump says how far it has read");
        assert!(unsaved.is_empty());
    }

    #[test]
    fn it_is_bounded_and_counts_what_it_gives_up() {
        let mut unsaved = Unsaved::default();
        for i in 0..60 {
            let all = unsaved.with(batch(i * 100..(i + 1) * 100));
            unsaved.keep(all);
        }
        assert_eq!(unsaved.dropped(), 1000);
        let all = unsaved.with(Batch::default());
        assert_eq!(all.messages.len(), MESSAGES);
        assert_eq!(all.messages[0].id, "1000");
    }
}
