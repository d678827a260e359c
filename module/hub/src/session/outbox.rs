//! Telemetry that the session holds: in order, at most as many as may be in flight, sent again after
//! every reconnect until the hub has acknowledged each.

use std::collections::VecDeque;
use std::time::Instant;

use crate::handle::Outgoing;

#[derive(Debug)]
struct Entry {
    outgoing: Outgoing,
    /// Set while the message is in flight on the present link.
    sent: Option<(u16, Instant)>,
    attempts: u32,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    entries: VecDeque<Entry>,
}

impl Outbox {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn push(&mut self, outgoing: Outgoing) {
        self.entries.push_back(Entry {
            outgoing,
            sent: None,
            attempts: 0,
        });
    }

    /// Nothing is in flight any more.
    pub(crate) fn link_lost(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.sent = None);
    }

    /// Sends what is not in flight, in order. `send` gets topic, body and whether it is a repeat.
    pub(crate) fn flush<E>(
        &mut self,
        now: Instant,
        mut send: impl FnMut(&str, &[u8], bool) -> Result<u16, E>,
    ) -> Result<u64, E> {
        let mut resent = 0;
        for entry in self.entries.iter_mut().filter(|entry| entry.sent.is_none()) {
            let repeat = entry.attempts > 0;
            let id = send(&entry.outgoing.topic, &entry.outgoing.message.body, repeat)?;
            entry.sent = Some((id, now));
            entry.attempts = entry.attempts.saturating_add(1);
            resent += u64::from(repeat);
        }
        Ok(resent)
    }

    /// The hub acknowledged a packet; true when it was one of these.
    pub(crate) fn on_puback(&mut self, id: u16) -> bool {
        let found = self
            .entries
            .iter()
            .position(|e| e.sent.is_some_and(|(sent, _)| sent == id));
        let Some(entry) = found.and_then(|index| self.entries.remove(index)) else {
            return false;
        };
        // The program may have stopped waiting; the message is delivered all the same.
        let _ = entry.outgoing.acked.send(());
        true
    }

    /// When the oldest message in flight was sent.
    pub(crate) fn oldest_sent(&self) -> Option<Instant> {
        self.entries
            .iter()
            .filter_map(|e| e.sent.map(|(_, at)| at))
            .min()
    }
}
