//! Pumps the engine: one task owns it, feeds it what the parts sense, and has its outputs carried
//! out in the order *persist, act, tell*.

mod carry;
mod publish;
mod unsaved;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use slice_core::engine::{Engine, Status};
use slice_core::event::{
    ActionId, ClusterInput, Command, CommandId, Event, EventType, Input, Now, Outcome, Output,
    Reply, Request, UnitChange,
};
use slice_core::heal::gate::HoldReason;
use slice_core::judge::Severity;
use tokio::sync::{Notify, broadcast, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::info;

use super::books::Books;
use super::holds::Holds;
use super::tell::Teller;
use super::timeline::Timeline;
use super::twin::{Desired, Reported};
use crate::act::Actor;
use crate::act::recorder::Recorder;
use crate::expiry::Ends;
use crate::observe::logs::LogHandle;
use crate::observe::metrics::Metrics;
use crate::sense::cluster::Counters;
use crate::sense::journal::JournalInput;
use crate::sense::units::BusState;
use crate::serve::{ControlCall, Health as PartHealth, Responder};
use crate::settings::{Closed, JournalSettings, LogLevel};

/// How long until a disk that failed is tried again.
const DISK_AGAIN: Duration = Duration::from_secs(2);

/// What the parts send to the pump.
pub enum Incoming {
    /// From the cluster watches.
    Cluster(ClusterInput),
    /// From the journal.
    Journal(JournalInput),
    /// From D-Bus.
    Unit(UnitChange),
    /// An action ended.
    Done(ActionId, Outcome),
    /// From the hub.
    Hub(slice_hub::Event),
    /// When the credentials end.
    Ends(Ends),
    /// Somebody asks for something and waits for the answer.
    Ask(Request, oneshot::Sender<Reply>),
    /// From the control socket.
    Control(ControlCall),
}

/// What others may see of the pump while it works.
#[derive(Clone)]
pub struct Window {
    /// The engine's status after each step.
    pub status: watch::Receiver<Option<Status>>,
    /// Every event, for those who follow a heal.
    pub events: broadcast::Sender<Event>,
}

/// The pump and all that it owns.
pub struct Pump {
    pub(super) engine: Engine,
    pub(super) desired: Desired,
    pub(super) books: Books,
    pub(super) outbox_filled: Arc<Notify>,
    actor: Actor,
    recorder: Option<Recorder>,
    metrics: Arc<Metrics>,
    log: Option<LogHandle>,
    teller: Teller,
    reported: Reported,
    hub: Option<slice_hub::Handle>,
    started: Instant,
    tx: mpsc::Sender<Incoming>,
    pub(super) tasks: JoinSet<()>,
    waiting: HashMap<CommandId, Waiting>,
    /// Who waits for the end of a heal, by incident.
    pub(super) following: HashMap<String, Responder>,
    commands: u64,
    cursor: Option<String>,
    cursor_saved: Instant,
    unsaved: unsaved::Unsaved,
    status_told: Instant,
    status: watch::Sender<Option<Status>>,
    events: broadcast::Sender<Event>,
    health: PartHealth,
    journal_settings: watch::Sender<JournalSettings>,
    /// What the watches count, once they run.
    watched: Option<Arc<Counters>>,
    /// Whether units are seen, where they are looked at.
    bus: Option<watch::Receiver<BusState>>,
    pub(super) holds: Holds,
    pub(super) timeline: Timeline,
}

/// Who waits for a reply.
pub(super) enum Waiting {
    Asked(oneshot::Sender<Reply>),
    Method(slice_hub::MethodReply),
    Control(Responder),
}

/// What a pump is made of.
pub struct Parts {
    /// The engine, with its history.
    pub engine: Engine,
    /// Settings and twin.
    pub desired: Desired,
    /// What is on disk.
    pub books: Books,
    /// The only writer to the cluster.
    pub actor: Actor,
    /// Writes Kubernetes Events, if wanted.
    pub recorder: Option<Recorder>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// The log level, where it can be changed.
    pub log: Option<LogHandle>,
    /// Renders events.
    pub teller: Teller,
    /// Keeps the reported document.
    pub reported: Reported,
    /// The module client, if there is a hub.
    pub hub: Option<slice_hub::Handle>,
    /// The pump's own way in, for what its actions bring.
    pub tx: mpsc::Sender<Incoming>,
    /// Where the state of the parts is shown.
    pub health: PartHealth,
}

impl Pump {
    /// A pump, and the window on it.
    pub fn new(parts: Parts) -> (Self, Window) {
        let (status, status_rx) = watch::channel(None);
        let (events, _) = broadcast::channel(256);
        let (journal_settings, _) = watch::channel(parts.desired.in_force().journal.clone());
        let window = Window {
            status: status_rx,
            events: events.clone(),
        };
        let pump = Self {
            engine: parts.engine,
            desired: parts.desired,
            books: parts.books,
            outbox_filled: Arc::new(Notify::new()),
            actor: parts.actor,
            recorder: parts.recorder,
            metrics: parts.metrics,
            log: parts.log,
            teller: parts.teller,
            reported: parts.reported,
            hub: parts.hub,
            started: Instant::now(),
            tx: parts.tx,
            tasks: JoinSet::new(),
            waiting: HashMap::new(),
            following: HashMap::new(),
            commands: 0,
            cursor: None,
            cursor_saved: Instant::now(),
            unsaved: unsaved::Unsaved::default(),
            status_told: Instant::now(),
            status,
            events,
            health: parts.health,
            journal_settings,
            watched: None,
            bus: None,
            holds: Holds::default(),
            timeline: Timeline::default(),
        };
        (pump, window)
    }

    /// Shows what the senses count and how they stand, from now on.
    pub fn watch_over(&mut self, counters: Arc<Counters>, bus: Option<watch::Receiver<BusState>>) {
        self.watched = Some(counters);
        self.bus = bus;
    }

    /// The journal settings in force, for the one who follows it.
    pub fn journal_settings(&self) -> watch::Receiver<JournalSettings> {
        self.journal_settings.subscribe()
    }

    /// How long to wait for news.
    pub fn sleep(&self) -> Duration {
        let mut nap = self.engine.sleep(self.now());
        if !self.unsaved.is_empty() {
            nap = nap.min(DISK_AGAIN);
        }
        let every = self.desired.in_force().report.status_interval.0;
        if every.is_zero() {
            return nap;
        }
        nap.min(every.saturating_sub(self.status_told.elapsed()))
    }

    /// Takes up what came in; with nothing, time has passed.
    pub async fn take(&mut self, batch: Vec<Incoming>) {
        while self.tasks.try_join_next().is_some() {}
        let mut outputs = Vec::new();
        self.open_or_close(&mut outputs);
        if batch.is_empty() {
            self.feed(Input::Tick, &mut outputs);
        }
        for incoming in batch {
            match incoming {
                Incoming::Cluster(change) => self.feed(Input::Cluster(change), &mut outputs),
                Incoming::Journal(news) => self.journal(news, &mut outputs),
                Incoming::Unit(change) => self.feed(Input::Unit(change), &mut outputs),
                Incoming::Done(id, outcome) => {
                    self.feed(Input::Done { id, outcome }, &mut outputs);
                }
                Incoming::Ends(ends) => {
                    self.metrics.set_ends(&ends);
                    self.reported.set_ends(ends);
                }
                Incoming::Hub(event) => self.hub_event(event, &mut outputs).await,
                Incoming::Ask(request, reply) => {
                    self.ask(request, Waiting::Asked(reply), &mut outputs);
                }
                Incoming::Control(call) => self.control(call, &mut outputs).await,
            }
        }
        outputs.extend(self.status_due());
        self.carry_out(outputs).await;
        self.publish();
    }

    /// The periodic status, where the settings ask for it.
    fn status_due(&mut self) -> Option<Output> {
        let every = self.desired.in_force().report.status_interval.0;
        if every.is_zero() || self.status_told.elapsed() < every {
            return None;
        }
        self.status_told = Instant::now();
        let status = self.engine.status(self.now());
        let counts = &status.findings;
        let reason = status.health.reason.as_str();
        Some(Output::Emit(Event {
            evidence: [
                ("critical", counts.critical.to_string()),
                ("warning", counts.warning.to_string()),
                ("healed", status.heals.succeeded.to_string()),
                ("services", status.cluster.services.to_string()),
                ("endpoints", status.cluster.endpoints.to_string()),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .to_vec(),
            ..Event::of_module(EventType::Status, Timestamp::now(), Severity::Info, reason)
        }))
    }

    /// Puts the desired section in force that was kept from an earlier run; the hub may be away.
    pub async fn take_up_desired(&mut self, kept: Option<(u64, serde_json::Value)>) {
        let mut outputs = Vec::new();
        if let Some((version, document)) = kept {
            self.desired(version, &document, &mut outputs);
        }
        self.carry_out(outputs).await;
        self.publish();
    }

    /// Whether a heal is under way.
    pub fn is_healing(&self) -> bool {
        self.engine.is_healing()
    }

    /// Whether a heal is under way that must not be cut off.
    pub fn owes_a_slice(&self) -> bool {
        self.engine.owes_a_slice()
    }

    /// Tells that the module goes down, and puts on disk what is still in memory.
    pub async fn say_goodbye(&mut self) {
        let event = Event::of_module(
            EventType::Drain,
            Timestamp::now(),
            Severity::Info,
            "slice-healer goes down in order",
        );
        self.carry_out(vec![Output::Emit(event)]).await;
        self.save_cursor(true).await;
    }

    pub(super) fn now(&self) -> Now {
        Now {
            mono: self.started.elapsed(),
            wall: Timestamp::now(),
        }
    }

    fn feed(&mut self, input: Input, outputs: &mut Vec<Output>) {
        let now = self.now();
        outputs.extend(self.engine.step(input, now));
    }

    fn journal(&mut self, news: JournalInput, outputs: &mut Vec<Output>) {
        match news {
            JournalInput::State(state) => self.feed(Input::Journal(state), outputs),
            JournalInput::Signals { signals, cursor } => {
                for signal in signals {
                    self.feed(Input::Signal(signal), outputs);
                }
                // In one transaction with the events that come of them.
                self.cursor = Some(cursor);
            }
            JournalInput::Read { cursor } => self.cursor = Some(cursor),
        }
    }

    pub(super) fn ask(&mut self, request: Request, who: Waiting, outputs: &mut Vec<Output>) {
        self.commands += 1;
        let id = CommandId(self.commands);
        self.waiting.insert(id, who);
        self.feed(Input::Command(Command { id, request }), outputs);
    }

    /// Windows and holds open and close with time.
    pub(super) fn open_or_close(&mut self, outputs: &mut Vec<Output>) {
        let settings = self.desired.in_force();
        let closed = settings
            .closed_at(Timestamp::now(), self.holds.all())
            .map(|closed| match closed {
                Closed::OutsideWindow => (
                    HoldReason::OutsideWindow,
                    "no heal window is open".to_owned(),
                ),
                Closed::Hold { name, until } => {
                    (HoldReason::Hold, format!("hold {name:?} until {until}"))
                }
            });
        if self.engine.policy().closed != closed {
            match &closed {
                Some((reason, why)) => info!(reason = reason.as_str(), "nothing is written: {why}"),
                None => info!("windows and holds allow writing again"),
            }
            self.put_policy(closed, outputs);
        }
    }

    /// Puts the settings in force into the engine.
    pub(super) fn put_policy(
        &mut self,
        closed: Option<(HoldReason, String)>,
        outputs: &mut Vec<Output>,
    ) {
        let settings = self.desired.in_force();
        self.journal_settings.send_if_modified(|old| {
            let changed = *old != settings.journal;
            if changed {
                old.clone_from(&settings.journal);
            }
            changed
        });
        let mut policy = settings.to_policy();
        policy.closed = closed;
        self.feed(Input::Policy(Box::new(policy)), outputs);
    }

    pub(super) fn set_log_level(&self, level: LogLevel) {
        if let Some(log) = &self.log {
            log.set_level(level);
        }
    }

    pub(super) fn log_level(&self) -> LogLevel {
        let configured = self.desired.in_force().log_level;
        self.log.as_ref().map_or(configured, LogHandle::level)
    }
}
