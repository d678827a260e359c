//! Moves bytes, commands and time between one connection and the engine, until the connection ends.
//!
//! Nothing waits for anything else here: the link is served while a new token is fetched, and a peer
//! that takes no bytes does not stop us from noticing that.

use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{sleep_until, timeout};

use super::control::{Commands, DrainRequest};
use super::credentials::{NoCredentials, Prepared, Preparing};
use super::end::End;
use super::engine::Engine;
use super::report::Reporter;
use crate::backoff::Backoff;
use crate::clock::now;
use crate::event::DisconnectReason;
use crate::handle::Outgoing;
use crate::methods::Answer;
use crate::timings::Timings;

/// How a link came to its end.
pub(crate) enum Finished {
    /// It broke.
    Broken(End),
    /// It was ended on purpose; these are for the next one.
    Renewing(Box<Prepared>),
    /// The program ends.
    Drained { clean: bool },
}

/// Everything that a link listens to besides the connection.
pub(crate) struct Inputs<'a> {
    pub(crate) telemetry: &'a mut mpsc::Receiver<Outgoing>,
    pub(crate) answers: &'a mut mpsc::Receiver<Answer>,
    pub(crate) commands: &'a mut Commands,
    pub(crate) report: &'a mut Reporter,
    /// Filled when the program wants to end.
    pub(crate) drain: &'a mut Option<DrainRequest>,
}

/// Planned replacement of the link.
pub(crate) struct Renewal<F> {
    pub(crate) at: Instant,
    pub(crate) prepare: F,
}

enum RenewalStep {
    Waiting {
        at: Instant,
    },
    Preparing(Preparing),
    Quieting {
        prepared: Box<Prepared>,
        until: Instant,
    },
}

/// Serves one connection on which [`Engine::begin`] has been called.
pub(crate) async fn serve<S, F>(
    stream: S,
    engine: &mut Engine,
    inputs: Inputs<'_>,
    renewal: Renewal<F>,
    timings: &Timings,
) -> Finished
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Fn() -> Preparing,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let outcome = run(&mut reader, &mut writer, engine, inputs, renewal, timings).await;
    let outcome = match outcome {
        Ok(finished) => finished,
        Err(end) => Finished::Broken(end),
    };
    match outcome {
        Finished::Broken(end) => Finished::Broken(end),
        planned => {
            let clean = say_goodbye(&mut writer, engine).await;
            match planned {
                Finished::Drained { .. } => Finished::Drained { clean },
                other => other,
            }
        }
    }
}

async fn run<R, W, F>(
    reader: &mut R,
    writer: &mut W,
    engine: &mut Engine,
    inputs: Inputs<'_>,
    renewal: Renewal<F>,
    timings: &Timings,
) -> Result<Finished, End>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    F: Fn() -> Preparing,
{
    let Inputs {
        telemetry,
        answers,
        commands,
        report,
        drain,
    } = inputs;
    let mut buffer = vec![0; 16 * 1024];
    let mut unflushed = false;
    let mut stalled_since: Option<Instant> = None;
    let mut step = RenewalStep::Waiting { at: renewal.at };
    let mut retries = Backoff::default();
    loop {
        let at = now();
        engine.tick(at)?;
        report.update(engine);
        if let Some(finished) = planned_end(engine, &mut step, drain.as_ref(), at) {
            return Ok(finished);
        }
        match &step {
            RenewalStep::Waiting { at: due } if at >= *due && engine.is_open() => {
                step = RenewalStep::Preparing((renewal.prepare)());
            }
            _ => {}
        }
        let writing = !engine.output().is_empty() || unflushed;
        if !writing {
            stalled_since = None;
        } else if stalled_since.is_none() {
            stalled_since = Some(at);
        }
        if stalled_since.is_some_and(|since| at >= since + timings.write_stall) {
            return Err(End::new(
                DisconnectReason::WriteStall,
                "the hub takes no more bytes",
            ));
        }
        let wake = [
            engine.next_tick(at),
            stalled_since.map(|since| since + timings.write_stall),
            step.wakes_at(engine.is_open()),
            drain.as_ref().map(|request| request.deadline),
        ];
        let wake = wake.into_iter().flatten().min();
        tokio::select! {
            read = reader.read(&mut buffer) => match read {
                Ok(0) => return Err(closed("the hub closed the connection")),
                Ok(count) => engine.feed(now(), &buffer[..count])?,
                Err(error) => return Err(closed(format!("reading failed: {error}"))),
            },
            written = write_some(writer, engine.output()), if writing => {
                match written {
                    Ok(progress) => {
                        unflushed = progress == Progress::Wrote;
                        stalled_since = None;
                    }
                    Err(error) => return Err(closed(format!("writing failed: {error}"))),
                }
            },
            Some(answer) = answers.recv() => engine.method_answered(now(), answer)?,
            Some(outgoing) = telemetry.recv(), if engine.can_take() => {
                engine.send_telemetry(now(), outgoing)?;
            }
            command = commands.next(), if drain.is_none() => {
                *drain = commands.apply(command, engine);
                if drain.is_some() {
                    engine.hurry();
                }
            }
            prepared = step.prepared() => step = match prepared {
                Ok(prepared) => {
                    report.workload_answered(false);
                    engine.pause();
                    let until = now() + timings.renewal_drain;
                    RenewalStep::Quieting { prepared: Box::new(prepared), until }
                }
                Err(NoCredentials { end, refusal }) => {
                    report.workload_answered(refusal);
                    let wait = retries.next(timings.workload_backoff, rand::random());
                    tracing::warn!(reason = %end.detail, ?wait, "no new token yet, keeping the link");
                    RenewalStep::Waiting { at: now() + wait }
                }
            },
            () = sleep_till(wake) => {}
        }
        // Telemetry that is already queued belongs to the drain, so it is taken without a wait.
        while drain.is_some() && engine.can_take() {
            let Ok(outgoing) = telemetry.try_recv() else {
                break;
            };
            engine.send_telemetry(now(), outgoing)?;
        }
    }
}

fn planned_end(
    engine: &Engine,
    step: &mut RenewalStep,
    drain: Option<&DrainRequest>,
    now: Instant,
) -> Option<Finished> {
    if let Some(request) = drain {
        let done = engine.is_quiet() && engine.reported_settled();
        return (done || now >= request.deadline || !engine.is_open())
            .then_some(Finished::Drained { clean: false });
    }
    let over = match step {
        RenewalStep::Quieting { until, .. } => engine.is_quiet() || now >= *until,
        RenewalStep::Waiting { .. } | RenewalStep::Preparing(_) => false,
    };
    if !over {
        return None;
    }
    match std::mem::replace(step, RenewalStep::Waiting { at: now }) {
        RenewalStep::Quieting { prepared, .. } => Some(Finished::Renewing(prepared)),
        RenewalStep::Waiting { .. } | RenewalStep::Preparing(_) => None,
    }
}

impl RenewalStep {
    fn wakes_at(&self, open: bool) -> Option<Instant> {
        match self {
            Self::Waiting { at } if open => Some(*at),
            Self::Quieting { until, .. } => Some(*until),
            Self::Waiting { .. } | Self::Preparing(_) => None,
        }
    }

    async fn prepared(&mut self) -> Result<Prepared, NoCredentials> {
        match self {
            Self::Preparing(preparing) => preparing.await,
            Self::Waiting { .. } | Self::Quieting { .. } => std::future::pending().await,
        }
    }
}

#[derive(PartialEq, Eq)]
enum Progress {
    Wrote,
    Flushed,
}

/// One step of writing. Safe to cancel: what was written has left the buffer.
async fn write_some<W: AsyncWrite + Unpin>(
    writer: &mut W,
    output: &mut bytes::BytesMut,
) -> std::io::Result<Progress> {
    if output.is_empty() {
        writer.flush().await?;
        return Ok(Progress::Flushed);
    }
    match writer.write_buf(output).await? {
        0 => Err(std::io::ErrorKind::WriteZero.into()),
        _ => Ok(Progress::Wrote),
    }
}

/// DISCONNECT, so that the hub does not take our going for a fault. Bounded: it may be dead.
async fn say_goodbye<W: AsyncWrite + Unpin>(writer: &mut W, engine: &mut Engine) -> bool {
    if !engine.is_open() || engine.disconnect().is_err() {
        return false;
    }
    let farewell = async {
        writer.write_all_buf(engine.output()).await?;
        writer.flush().await?;
        writer.shutdown().await
    };
    matches!(timeout(Duration::from_secs(1), farewell).await, Ok(Ok(())))
}

async fn sleep_till(wake: Option<Instant>) {
    match wake {
        Some(at) => sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

fn closed(detail: impl Into<String>) -> End {
    End::new(DisconnectReason::Closed, detail)
}
