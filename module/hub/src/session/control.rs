//! Commands of the program, understood in every state of the session.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::engine::Engine;
use crate::clock::now;
use crate::handle::{Control, DrainReport, WantedSlot};
use crate::twin::Urgency;

/// How long the client goes on when the last handle is gone without a word.
const ABANDONED: Duration = Duration::from_secs(1);

/// Something that the program wants.
#[derive(Debug)]
pub(crate) enum Command {
    Report(Value, Urgency),
    AskTwin,
    ReportInterval(Duration),
    Drain(DrainRequest),
}

/// The program wants the client to end.
#[derive(Debug)]
pub(crate) struct DrainRequest {
    pub(crate) deadline: Instant,
    done: Option<oneshot::Sender<DrainReport>>,
}

impl DrainRequest {
    /// Tells the program how it went, if it still listens.
    pub(crate) fn finish(self, report: DrainReport) {
        if let Some(done) = self.done {
            let _ = done.send(report);
        }
    }
}

pub(crate) struct Commands {
    control: mpsc::Receiver<Control>,
    wanted: Arc<WantedSlot>,
}

impl Commands {
    pub(crate) fn new(control: mpsc::Receiver<Control>, wanted: Arc<WantedSlot>) -> Self {
        Self { control, wanted }
    }

    /// Waits for the next command. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Command {
        loop {
            if let Some((document, urgency)) = self.wanted.take() {
                return Command::Report(document, urgency);
            }
            tokio::select! {
                () = self.wanted.filled() => {}
                control = self.control.recv() => return match control {
                    Some(Control::AskTwin) => Command::AskTwin,
                    Some(Control::ReportInterval(interval)) => Command::ReportInterval(interval),
                    Some(Control::Drain { deadline, done }) => {
                        Command::Drain(DrainRequest { deadline, done: Some(done) })
                    }
                    None => Command::Drain(DrainRequest { deadline: now() + ABANDONED, done: None }),
                },
            }
        }
    }

    /// Carries a command out; gives back the one that only the session can.
    pub(crate) fn apply(&self, command: Command, engine: &mut Engine) -> Option<DrainRequest> {
        match command {
            Command::Report(document, urgency) => engine.want(document, urgency),
            Command::AskTwin => engine.ask_twin(now()),
            Command::ReportInterval(interval) => engine.set_report_interval(interval),
            Command::Drain(request) => {
                // What was reported before belongs to the drain.
                if let Some((document, urgency)) = self.wanted.take() {
                    engine.want(document, urgency);
                }
                return Some(request);
            }
        }
        None
    }

    /// No more commands; whoever else asked to drain gets the same report.
    pub(crate) fn close(&mut self, report: DrainReport) {
        self.control.close();
        while let Ok(control) = self.control.try_recv() {
            if let Control::Drain { done, .. } = control {
                let _ = done.send(report);
            }
        }
    }
}
