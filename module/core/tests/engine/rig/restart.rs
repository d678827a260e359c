//! Killing the process in the middle of things, and starting it anew on what was on disk.

use slice_core::engine::Engine;
use slice_core::event::Act;
use slice_core::heal::policy::Policy;
use slice_core::heal::record::{History, Record};

use super::Rig;

/// When the process dies: at a write that it has decided, before or after the write is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kill {
    /// So many writes from now.
    pub(crate) writes: u32,
    /// Whether the write still reaches the cluster.
    pub(crate) done: bool,
}

impl Rig {
    /// Whether this write is the last thing that the process decides.
    pub(super) fn dies_at(&mut self, act: &Act) -> Option<Kill> {
        if !matches!(act, Act::Refresh { .. } | Act::Delete { .. }) {
            return None;
        }
        let kill = self.kill.as_mut()?;
        if kill.writes > 0 {
            kill.writes -= 1;
            return None;
        }
        self.dead = true;
        self.kill.take()
    }

    /// What is on disk: the records, in the order in which they were written.
    pub(crate) fn history(&self) -> History {
        let mut history = History::default();
        for record in &self.records {
            match record {
                Record::Charge(charge) => history.charges.push(charge.clone()),
                Record::Ended(ended) => history.ended.push(ended.clone()),
                Record::Intent(intent) => history.intent.clone_from(intent),
                Record::Evidence(_) | Record::Incident(_) => {}
            }
        }
        history
    }

    /// Another process on the same disk.
    pub(crate) fn restart(&mut self, policy: Policy) {
        self.boots += 1;
        self.engine = Engine::new(policy, &self.history(), format!("t{}", self.boots));
        self.dead = false;
        self.sync();
    }
}
