//! The journal as the engine sees it: rules that are in force, signals, the position.
use super::pump::Incoming;
use crate::sense::journal::{self, JournalInput, Options};
use crate::settings::Settings;
use slice_core::signal::Signal;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub(super) fn rule_ids() -> Vec<String> {
    vec![]
}

/// The task that hands on what the journal tells; its end is the end of the follower.
pub(super) fn start(
    settings: &Settings,
    module: &str,
    cursor: Option<String>,
    tx: &mpsc::Sender<Incoming>,
    stop: &CancellationToken,
) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let _: Vec<Signal> = vec![];
    let options = Options {
        directories: settings
            .journal
            .directories
            .as_slice()
            .iter()
            .map(Into::into)
            .collect(),
        matches: journal::unit_matches(
            settings.journal.units.as_slice().iter().map(String::as_str),
        )?,
        cursor,
        look_back: settings.journal.look_back.0,
        poll: settings.journal.poll_interval.0,
        own: vec![module.to_owned()],
        ..Options::host()
    };
    let (journal_tx, mut journal_rx) = mpsc::channel::<JournalInput>(256);
    let _journal = journal::spawn(options, Box::new(|_| Vec::new()), journal_tx, stop.clone())?;
    let tx = tx.clone();
    Ok(tokio::spawn(async move {
        while let Some(news) = journal_rx.recv().await {
            if tx.send(Incoming::Journal(news)).await.is_err() {
                return;
            }
        }
    }))
}
