//! The host's journal: log lines go into real journal files, and onto the timeline.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

use super::timeline::Timeline;
use crate::journal::{Format, JournalWriter};
use crate::kube::controller::{LogLine, LogSink};

/// A journal that is written by the lab. Clones write to the same one.
#[derive(Clone)]
pub struct Journal {
    writer: Arc<Mutex<JournalWriter>>,
    timeline: Timeline,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}

impl Journal {
    /// Makes `directory`, whose name is the machine id, and a journal in it.
    pub(crate) fn create(directory: &Path, timeline: &Timeline) -> io::Result<Self> {
        let writer = JournalWriter::create(directory, Format::MODERN)?;
        Ok(Self {
            writer: Arc::new(Mutex::new(writer)),
            timeline: timeline.clone(),
        })
    }

    /// Appends a line of a unit without a word about it on the timeline.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn quietly(&self, unit: &str, identifier: &str, message: &str) -> io::Result<()> {
        let now = u64::try_from(Timestamp::now().as_microsecond()).unwrap_or_default();
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer
            .unit_line(unit, identifier, message, now)
            .map(|_cursor| ())
    }
}

impl LogSink for Journal {
    fn line(&self, line: LogLine) {
        let written = self.quietly(line.unit, line.identifier, &line.message);
        match written {
            Ok(()) => self
                .timeline
                .add("journal", format!("{}: {}", line.unit, line.message)),
            Err(error) => self.timeline.add(
                "journal-lost",
                format!("the line could not be written: {error}"),
            ),
        }
    }
}
