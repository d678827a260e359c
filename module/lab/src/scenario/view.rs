//! What a person sees while a scenario plays: one picture as text, or a line for each happening.
//!
//! Renders text and writes it to the writer it is given; never touches a terminal's modes, so that
//! an interrupted run leaves the terminal as it was.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::look::{Endpoint, Standing};
use super::timeline::Happening;
use super::world::World;
use super::{Outcome, Scenario};
use crate::traffic::Counts;

/// Between two pictures.
const REDRAW: Duration = Duration::from_millis(250);
/// Happenings in a picture.
const EVENTS: usize = 12;
/// Windows in a picture's sparkline.
const WINDOWS: usize = 60;

/// Everything that a picture shows.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Name of the scenario.
    pub scenario: &'static str,
    /// What it is about.
    pub summary: &'static str,
    /// Milliseconds since the world began.
    pub at_ms: u64,
    /// The newest happenings.
    pub events: Vec<Happening>,
    /// The slices when the Service had just become stale.
    pub before: Vec<Endpoint>,
    /// The slices now.
    pub now: Vec<Endpoint>,
    /// Requests in windows of half a second, oldest first.
    pub windows: Vec<Counts>,
    /// All requests.
    pub total: Counts,
    /// The reported twin.
    pub twin: Value,
    /// Messages at the cloud.
    pub telemetry: usize,
    /// How it ended.
    pub outcome: Option<Outcome>,
}

impl Frame {
    /// The picture of this moment.
    #[must_use]
    pub fn of(world: &World, scenario: &Scenario) -> Self {
        let mut windows = world.traffic().windows();
        let skip = windows.len().saturating_sub(WINDOWS);
        windows.drain(..skip);
        Self {
            scenario: scenario.name,
            summary: scenario.summary,
            at_ms: world.timeline().now_ms(),
            events: world.timeline().tail(EVENTS),
            before: world.endpoints_before(),
            now: world.endpoints(),
            windows,
            total: world.traffic().total(),
            twin: world.twin(),
            telemetry: world.edge().telemetry().len(),
            outcome: world.outcome(),
        }
    }
}

/// How text is dressed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns; longer lines are cut.
    pub width: usize,
    /// Rows; a picture shows fewer happenings rather than be higher.
    pub height: usize,
    /// Whether colours are used.
    pub colour: bool,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn cut(self, text: &str) -> String {
        if text.chars().count() <= self.width {
            return text.to_owned();
        }
        let keep = self.width.saturating_sub(1);
        text.chars().take(keep).chain(['…']).collect()
    }
}

const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const BOLD: &str = "1";
const DIM: &str = "2";

/// The whole picture; lines end with `\n`.
#[must_use]
pub fn render(frame: &Frame, style: Style) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    let head = format!(
        "slice-healer lab · {} · {}",
        frame.scenario,
        clock(frame.at_ms)
    );
    line(style.paint(BOLD, &style.cut(&head)));
    line(style.paint(DIM, &style.cut(frame.summary)));
    line(String::new());
    line(requests(frame, style));
    line(format!("  {}", sparkline(&frame.windows, style)));
    line(String::new());
    if !frame.before.is_empty() {
        line(style.paint(BOLD, "slices when they were stale"));
        endpoints(&frame.before, style)
            .into_iter()
            .for_each(&mut line);
    }
    line(style.paint(BOLD, "slices now"));
    endpoints(&frame.now, style).into_iter().for_each(&mut line);
    line(String::new());
    line(style.cut(&twin(&frame.twin)));
    line(style.cut(&format!(
        "telemetry  {} messages at the cloud",
        frame.telemetry
    )));
    line(String::new());
    // One row is the cursor's, two are the outcome's.
    let taken = out.lines().count() + 3;
    let room = style.height.saturating_sub(taken);
    let skip = frame.events.len().saturating_sub(room);
    for happening in &frame.events[skip..] {
        out.push_str(&happened(happening, style));
        out.push('\n');
    }
    if let Some(outcome) = frame.outcome {
        let code = match outcome {
            Outcome::Healed => GREEN,
            Outcome::Held => YELLOW,
            Outcome::Failed => RED,
        };
        out.push('\n');
        out.push_str(&style.paint(code, outcome.as_str()));
        out.push('\n');
    }
    out
}

/// One happening as a line without its end.
#[must_use]
pub fn happened(happening: &Happening, style: Style) -> String {
    let code = match happening.event.as_str() {
        "stale" | "failed" | "slice-deleted" => RED,
        "right" | "healed" | "slice-created" => GREEN,
        "held" | "refresh" | "journal" => YELLOW,
        _ => "0",
    };
    let text = format!(
        "{}  {:<14} {}",
        clock(happening.at_ms),
        happening.event,
        happening.detail.replace('\n', " ")
    );
    style.paint(code, &style.cut(&text))
}

fn clock(ms: u64) -> String {
    format!("{:>5}.{} s", ms / 1000, ms / 100 % 10)
}

fn requests(frame: &Frame, style: Style) -> String {
    let total = frame.total;
    let plain = format!(
        "requests  {} sent · {} right · {} wrong version · {} failed",
        total.sent,
        total.right(),
        total.wrong,
        total.failed
    );
    if !style.colour || plain.chars().count() > style.width {
        return style.cut(&plain);
    }
    let part = |code: &str, count: u64, what: &str| {
        let text = format!("{count} {what}");
        if count == 0 {
            text
        } else {
            style.paint(code, &text)
        }
    };
    format!(
        "requests  {} sent · {} · {} · {}",
        total.sent,
        part(GREEN, total.right(), "right"),
        part(YELLOW, total.wrong, "wrong version"),
        part(RED, total.failed, "failed"),
    )
}

/// One character a window: the higher, the more of its requests were right.
fn sparkline(windows: &[Counts], style: Style) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let skip = windows.len().saturating_sub(style.width.saturating_sub(2));
    windows[skip..]
        .iter()
        .fold(String::new(), |mut line, window| {
            let bar = match window.sent {
                0 => ' ',
                // Rounded down: a full bar means that not one request went wrong.
                sent => {
                    let step = usize::try_from(window.right() * 7 / sent).unwrap_or(0);
                    BARS[step.min(7)]
                }
            };
            let code = if window.failed > 0 {
                RED
            } else if window.wrong > 0 {
                YELLOW
            } else {
                GREEN
            };
            line.push_str(&style.paint(code, &bar.to_string()));
            line
        })
}

fn endpoints(list: &[Endpoint], style: Style) -> Vec<String> {
    if list.is_empty() {
        return vec![style.paint(RED, "  none: nobody is routed to")];
    }
    list.iter()
        .map(|endpoint| {
            let (code, says) = match endpoint.standing {
                Standing::Right => (GREEN, format!("answers {}", endpoint.version)),
                Standing::Old => (
                    YELLOW,
                    format!("pod gone, still answers {}", endpoint.version),
                ),
                Standing::Gone => (RED, "pod gone, nobody answers".to_owned()),
            };
            let text = format!("  {:<28} {:<16} {says}", endpoint.slice, endpoint.address);
            style.paint(code, &style.cut(&text))
        })
        .collect()
}

fn twin(twin: &Value) -> String {
    let text = |path: &str| -> String {
        match twin.pointer(path) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => "-".to_owned(),
        }
    };
    let mut out = format!(
        "twin       health {} · findings {}/{}/{} · heals {} done, {} failed, {} held",
        text("/health/state"),
        text("/findings/critical"),
        text("/findings/warning"),
        text("/findings/info"),
        text("/heals/succeeded"),
        text("/heals/failed"),
        text("/heals/held"),
    );
    let reason = text("/health/reason");
    if reason != "-" && !reason.is_empty() {
        let _ = write!(out, " · {reason}");
    }
    out
}

/// Draws pictures over each other until `stop`, and one last picture then.
///
/// # Errors
/// When `out` cannot be written.
pub async fn live(
    world: &World,
    scenario: &Scenario,
    out: &mut (impl Write + Send),
    style: Style,
    stop: CancellationToken,
) -> io::Result<()> {
    let mut drawn = 0;
    loop {
        let stopped = stop.is_cancelled();
        let picture = render(&Frame::of(world, scenario), style);
        // Back to the first line of the last picture, and away with what is left of it.
        if drawn > 0 {
            write!(out, "\x1b[{drawn}A\x1b[J")?;
        }
        out.write_all(picture.as_bytes())?;
        out.flush()?;
        drawn = picture.lines().count();
        if stopped {
            return Ok(());
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(REDRAW) => {}
        }
    }
}

/// Writes a line for each happening until `stop` and all that happened by then is written.
///
/// # Errors
/// When `out` cannot be written.
pub async fn lines(
    world: &World,
    out: &mut (impl Write + Send),
    style: Style,
    stop: CancellationToken,
) -> io::Result<()> {
    let mut happenings = world.timeline().watch();
    for happening in world.timeline().all() {
        writeln!(out, "{}", happened(&happening, style))?;
    }
    loop {
        tokio::select! {
            biased;
            next = happenings.recv() => match next {
                Ok(happening) => {
                    writeln!(out, "{}", happened(&happening, style))?;
                    out.flush()?;
                }
                Err(RecvError::Lagged(missed)) => writeln!(out, "({missed} happenings not shown)")?,
                Err(RecvError::Closed) => return Ok(()),
            },
            () = stop.cancelled() => return out.flush(),
        }
    }
}
