//! The life of a client: credentials, connection, link, and again. One task, which owns all of it.
//!
//! Nothing here is ever final except the program's own wish to end: every failure leads to a wait and
//! the next attempt.

mod codec;
mod control;
mod credentials;
mod end;
mod engine;
mod outbox;
mod outside;
mod pump;
mod report;
mod transport;
mod twin_requests;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use self::control::{Commands, DrainRequest};
use self::credentials::{NoCredentials, Prepared, Preparing};
use self::end::End;
use self::engine::Engine;
use self::outside::{EdgeDevice, Outside};
use self::pump::{Finished, Inputs, Renewal};
use self::report::Reporter;
use crate::backoff::Backoff;
use crate::clock::now;
use crate::config::Config;
use crate::event::{DisconnectReason, Event, State, Status};
use crate::handle::{DrainReport, Handle, Outgoing, WantedSlot};
use crate::methods::Answer;

/// Credentials that were made ahead are used only if they need no renewal within this.
const FRESH: Duration = Duration::from_secs(60);
/// Commands that may wait.
const COMMANDS: usize = 16;

/// A running client.
#[derive(Debug)]
pub struct Client {
    /// Gives commands.
    pub handle: Handle,
    /// Tells what happens. Read it: methods are answered with 429 when it is full.
    pub events: mpsc::Receiver<Event>,
    /// The task, which ends after [`Handle::drain`] or when the last handle is gone.
    pub task: JoinHandle<()>,
}

impl Client {
    /// Starts a client in a task of its own and returns at once. Being offline is not an error.
    ///
    /// # Panics
    /// Outside of a tokio runtime, as [`tokio::spawn`] does.
    pub fn spawn(config: Config) -> Self {
        let outside = EdgeDevice::new(&config);
        Self::spawn_in(outside, config)
    }

    fn spawn_in<O: Outside>(outside: O, config: Config) -> Self {
        let limits = &config.limits;
        let (events_in, events) = mpsc::channel(limits.events.max(1));
        let (telemetry_in, telemetry) = mpsc::channel(limits.telemetry.max(1));
        let (answers_in, answers) = mpsc::channel(limits.methods.max(1));
        let (control_in, control) = mpsc::channel(COMMANDS);
        let (status_in, status) = watch::channel(Status::new());
        let wanted = Arc::new(WantedSlot::default());
        let handle = Handle {
            identity: config.identity.clone(),
            publish_bytes: limits.publish_bytes,
            reported_bytes: limits.reported_bytes,
            telemetry: telemetry_in,
            wanted: Arc::clone(&wanted),
            control: control_in,
            status,
        };
        let session = Session {
            outside: Arc::new(outside),
            engine: Engine::new(config.clone(), events_in, answers_in, now()),
            config,
            telemetry,
            answers,
            commands: Commands::new(control, wanted),
            report: Reporter::new(status_in),
            backoff: Backoff::default(),
            pause_before_connect: false,
            links: 0,
        };
        Self {
            handle,
            events,
            task: tokio::spawn(session.run()),
        }
    }
}

struct Session<O> {
    config: Config,
    outside: Arc<O>,
    engine: Engine,
    telemetry: mpsc::Receiver<Outgoing>,
    answers: mpsc::Receiver<Answer>,
    commands: Commands,
    report: Reporter,
    backoff: Backoff,
    /// Once a CONNECT got lost, each later one waits a little: some edgeHub images lose one that
    /// arrives together with the end of the TLS handshake.
    pause_before_connect: bool,
    links: u64,
}

/// What became of a step that the program may interrupt.
enum Step<T> {
    Done(T),
    Drain(DrainRequest),
}

/// What became of one link.
enum LinkOutcome {
    Again {
        next: Option<Box<Prepared>>,
    },
    Over {
        request: Option<DrainRequest>,
        clean: bool,
    },
}

impl<O: Outside> Session<O> {
    async fn run(mut self) {
        let mut next: Option<Box<Prepared>> = None;
        loop {
            match self.one_round(next.take()).await {
                LinkOutcome::Again { next: prepared } => next = prepared,
                LinkOutcome::Over { request, clean } => {
                    self.finish(request, clean);
                    return;
                }
            }
        }
    }

    /// Credentials, connection, link, and the wait after a failure.
    async fn one_round(&mut self, renewed: Option<Box<Prepared>>) -> LinkOutcome {
        let renewing = renewed.is_some();
        let attempt = attempt(
            &self.config,
            self.outside.as_ref(),
            &self.report,
            renewed.filter(|prepared| prepared.renew_at > now() + FRESH),
            self.pause_before_connect,
        );
        let step = interruptible(&mut self.commands, &mut self.engine, attempt).await;
        let end = match step {
            Step::Drain(request) => {
                return LinkOutcome::Over {
                    request: Some(request),
                    clean: false,
                };
            }
            Step::Done(Ok((stream, prepared))) => {
                match self.link(stream, *prepared, renewing).await {
                    Ok(outcome) => return outcome,
                    Err(end) => end,
                }
            }
            Step::Done(Err(end)) => end,
        };
        self.wait_after(&end).await
    }

    /// Serves a connection. `Err` is a failure that asks for a wait.
    async fn link(
        &mut self,
        stream: O::Stream,
        prepared: Prepared,
        renewing: bool,
    ) -> Result<LinkOutcome, End> {
        self.links += 1;
        let nonce = format!("{:08x}{:x}", rand::random::<u32>(), self.links);
        let connects = self.engine.counters.connects;
        self.engine
            .begin(now(), &prepared.password, nonce, renewing)?;
        let outside = Arc::clone(&self.outside);
        let mut drain = None;
        let finished = pump::serve(
            stream,
            &mut self.engine,
            Inputs {
                telemetry: &mut self.telemetry,
                answers: &mut self.answers,
                commands: &mut self.commands,
                report: &mut self.report,
                drain: &mut drain,
            },
            Renewal {
                at: prepared.renew_at,
                prepare: move || prepare(&outside),
            },
            &self.config.timings,
        )
        .await;
        let was_open = self.engine.is_open();
        let stable = self.config.timings.stable;
        if self
            .engine
            .opened_at()
            .is_some_and(|at| now() >= at + stable)
        {
            self.backoff.reset();
        }
        self.engine.end();
        match finished {
            Finished::Broken(end) => {
                let answered = self.engine.counters.connects > connects;
                if !answered && lost_connect(&end) {
                    self.pause_before_connect = true;
                }
                if was_open {
                    self.disconnected(&end);
                }
                match drain {
                    Some(request) => Ok(LinkOutcome::Over {
                        request: Some(request),
                        clean: false,
                    }),
                    None => Err(end),
                }
            }
            Finished::Renewing(prepared) => {
                self.disconnected(&End::new(DisconnectReason::Renewal, "to renew the token"));
                Ok(LinkOutcome::Again {
                    next: Some(prepared),
                })
            }
            Finished::Drained { clean } => {
                if was_open {
                    self.disconnected(&End::new(DisconnectReason::Drained, "the program ends"));
                }
                Ok(LinkOutcome::Over {
                    request: drain,
                    clean,
                })
            }
        }
    }

    fn disconnected(&mut self, end: &End) {
        if end.reason.is_planned() {
            tracing::debug!(reason = end.reason.as_str(), "link ended");
        } else {
            tracing::warn!(reason = end.reason.as_str(), detail = %end.detail, "link lost");
        }
        self.engine.inform(Event::Disconnected {
            reason: end.reason,
            detail: end.detail.clone(),
        });
    }

    async fn wait_after(&mut self, end: &End) -> LinkOutcome {
        let timings = &self.config.timings;
        let (range, state) = match end.reason {
            DisconnectReason::Workload => (timings.workload_backoff, State::WaitWorkload),
            _ => (timings.backoff, State::Backoff),
        };
        let wait = self.backoff.next(range, rand::random());
        self.report.failures(self.backoff.failures(), Some(end));
        self.report.state(state);
        tracing::info!(reason = end.reason.as_str(), detail = %end.detail, ?wait, "trying again");
        let sleep = tokio::time::sleep(wait);
        match interruptible(&mut self.commands, &mut self.engine, sleep).await {
            Step::Done(()) => LinkOutcome::Again { next: None },
            Step::Drain(request) => LinkOutcome::Over {
                request: Some(request),
                clean: false,
            },
        }
    }

    fn finish(&mut self, request: Option<DrainRequest>, clean: bool) {
        self.telemetry.close();
        let report = DrainReport {
            unacknowledged: self.engine.unacknowledged() + self.telemetry.len(),
            reported_settled: self.engine.reported_settled(),
            disconnected: clean,
        };
        self.report.state(State::Stopped);
        if let Some(request) = request {
            request.finish(report);
        }
        self.commands.close(report);
    }
}

/// Whether the hub may never have seen our CONNECT.
fn lost_connect(end: &End) -> bool {
    matches!(
        end.reason,
        DisconnectReason::ConnackTimeout | DisconnectReason::Closed
    )
}

/// Credentials for the next link while the present one is served.
fn prepare<O: Outside>(outside: &Arc<O>) -> Preparing {
    let outside = Arc::clone(outside);
    Box::pin(async move { outside.prepare().await })
}

async fn attempt<O: Outside>(
    config: &Config,
    outside: &O,
    report: &Reporter,
    renewed: Option<Box<Prepared>>,
    pause: bool,
) -> Result<(O::Stream, Box<Prepared>), End> {
    let prepared = match renewed {
        Some(prepared) => prepared,
        None => {
            report.state(State::Sign);
            match outside.prepare().await {
                Ok(prepared) => {
                    report.workload_answered(false);
                    Box::new(prepared)
                }
                Err(NoCredentials { end, refusal }) => {
                    report.workload_answered(refusal);
                    return Err(end);
                }
            }
        }
    };
    report.state(State::Tls);
    let stream = outside.dial(&prepared).await?;
    if pause {
        let (from, to) = config.timings.connect_pause;
        let spread = to.saturating_sub(from).mul_f64(rand::random());
        tokio::time::sleep(from + spread).await;
    }
    Ok((stream, prepared))
}

/// Runs `step` while commands are carried out; ends early when the program wants to.
async fn interruptible<T>(
    commands: &mut Commands,
    engine: &mut Engine,
    step: impl Future<Output = T>,
) -> Step<T> {
    let mut step = pin!(step);
    loop {
        tokio::select! {
            done = &mut step => return Step::Done(done),
            command = commands.next() => {
                if let Some(request) = commands.apply(command, engine) {
                    return Step::Drain(request);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
