//! The journal as the engine sees it: rules that are in force, signals, the position.

use super::pump::Incoming;
use crate::sense::journal::{self, JournalInput, Options};
use crate::sense::rules::Rules;
use crate::settings::Settings;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::error;

/// The ids that metrics name: those of the built-in rules, whatever file is used.
pub(super) fn rule_ids() -> Vec<String> {
    Rules::built_in("").metric_ids()
}

/// The task that hands on what the journal tells; its end is the end of the follower.
pub(super) fn start(
    settings: &Settings,
    module: &str,
    cursor: Option<String>,
    tx: &mpsc::Sender<Incoming>,
    stop: &CancellationToken,
) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let rules = Rules::of_settings(&settings.journal, module);
    for bad in &rules.bad {
        error!(
            rule = bad.id,
            why = bad.why,
            "a journal rule is not in force"
        );
    }
    let units = settings.journal.units.as_slice();
    let options = Options {
        directories: settings
            .journal
            .directories
            .as_slice()
            .iter()
            .map(Into::into)
            .collect(),
        matches: rules.matches(units.iter().map(String::as_str))?,
        fields: rules.fields(),
        cursor,
        look_back: settings.journal.look_back.0,
        poll: settings.journal.poll_interval.0,
        own: vec![module.to_owned()],
        ..Options::host()
    };
    let (journal_tx, mut journal_rx) = mpsc::channel::<JournalInput>(256);
    let _journal = journal::spawn(options, rules.matcher(), journal_tx, stop.clone())?;
    let tx = tx.clone();
    Ok(tokio::spawn(async move {
        while let Some(news) = journal_rx.recv().await {
            if tx.send(Incoming::Journal(news)).await.is_err() {
                return;
            }
        }
    }))
}
