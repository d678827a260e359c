//! The journal on its way to the engine: the rules in force, a follower that starts anew where it was
//! when they change, and the position.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::pump::Incoming;
use crate::observe::metrics::Metrics;
use crate::sense::journal::{self, Journal, JournalInput, Options};
use crate::sense::rules::Rules;
use crate::settings::JournalSettings;

/// How many news of the follower may wait; where it is full the follower waits, the journal keeps.
const QUEUE: usize = 256;

/// What starts the follower.
pub(super) struct Ear {
    /// This module's id: what it logs is never a signal.
    pub(super) module: String,
    /// Where an earlier process ended.
    pub(super) cursor: Option<String>,
    /// Into the pump.
    pub(super) tx: mpsc::Sender<Incoming>,
    /// Counts entries.
    pub(super) metrics: Arc<Metrics>,
    /// The end.
    pub(super) stop: CancellationToken,
}

impl Ear {
    /// Follows as the settings say, and anew when they change. The task ends only with the process,
    /// or when the follower's thread has died.
    pub(super) fn listen(
        mut self,
        mut settings: watch::Receiver<JournalSettings>,
    ) -> JoinHandle<()> {
        tokio::spawn(async move {
            loop {
                let current = settings.borrow_and_update().clone();
                let until = self.stop.child_token();
                let (tx, mut news) = mpsc::channel(QUEUE);
                let changed = match self.start(&current, tx, &until) {
                    Ok(follower) => self.forward(&follower, &mut news, &mut settings).await,
                    Err(why) => {
                        warn!(
                            error = format!("{why:#}"),
                            "the journal is not followed with these settings"
                        );
                        settings.changed().await.is_ok()
                    }
                };
                if !changed {
                    return;
                }
                until.cancel();
                // What was read goes on before the next follower starts behind it.
                while let Some(rest) = news.recv().await {
                    if !self.pass(rest).await {
                        return;
                    }
                }
                info!("journal settings have changed: following anew from the same position");
            }
        })
    }

    fn start(
        &self,
        settings: &JournalSettings,
        tx: mpsc::Sender<JournalInput>,
        until: &CancellationToken,
    ) -> anyhow::Result<Journal> {
        let rules = Rules::of_settings(settings, &self.module);
        for bad in &rules.bad {
            warn!(
                rule = bad.id,
                why = bad.why,
                "a journal rule is not in force; the others are"
            );
        }
        let options = Options {
            directories: settings
                .directories
                .as_slice()
                .iter()
                .map(Into::into)
                .collect(),
            matches: rules.matches(settings.units.as_slice().iter().map(String::as_str))?,
            fields: rules.fields(),
            cursor: self.cursor.clone(),
            look_back: settings.look_back.0,
            poll: settings.poll_interval.0,
            own: vec![self.module.clone()],
            ..Options::host()
        };
        Ok(journal::spawn(options, rules.matcher(), tx, until.clone())?)
    }

    /// Hands on until the settings change (true) or the follower has ended (false).
    async fn forward(
        &mut self,
        follower: &Journal,
        news: &mut mpsc::Receiver<JournalInput>,
        settings: &mut watch::Receiver<JournalSettings>,
    ) -> bool {
        let mut counted = 0;
        loop {
            tokio::select! {
                changed = settings.changed() => return changed.is_ok(),
                one = news.recv() => {
                    let entries = follower.counters.entries.load(Ordering::Relaxed);
                    self.metrics.journal_read(entries.saturating_sub(counted));
                    counted = entries;
                    let Some(one) = one else { return false };
                    if !self.pass(one).await {
                        return false;
                    }
                }
            }
        }
    }

    async fn pass(&mut self, one: JournalInput) -> bool {
        if let JournalInput::Signals { cursor, .. } | JournalInput::Read { cursor } = &one {
            self.cursor = Some(cursor.clone());
        }
        self.tx.send(Incoming::Journal(one)).await.is_ok()
    }
}
