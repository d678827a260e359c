//! Pumps the engine: one task owns it, feeds it what the parts sense, and has its outputs carried
//! out in the order *persist, act, tell*.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use slice_core::engine::{Engine, Status};
use slice_core::event::{
    Act, Action, ActionId, ClusterInput, Command, CommandId, Event, EventType, Input, Now, Outcome,
    Output, Reply, Request, UnitChange,
};
use slice_core::judge::Severity;
use slice_core::model::Kind;
use tokio::sync::{Notify, broadcast, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, error, warn};

use super::books::{Batch, Books};
use super::tell::Teller;
use super::twin::{Desired, Reported};
use crate::act::Actor;
use crate::act::recorder::{Note, Recorder};
use crate::observe::logs::LogHandle;
use crate::observe::metrics::Metrics;
use crate::sense::journal::JournalInput;
use crate::serve::{ControlCall, ControlReply, Health as PartHealth, Part, Responder};
use crate::settings::{Closed, JournalSettings, LogLevel};
use slice_core::heal::gate::HoldReason;

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
    status: watch::Sender<Option<Status>>,
    events: broadcast::Sender<Event>,
    health: PartHealth,
    journal_settings: watch::Sender<JournalSettings>,
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
            status,
            events,
            health: parts.health,
            journal_settings,
        };
        (pump, window)
    }

    /// The journal settings in force, for the one who follows it.
    pub fn journal_settings(&self) -> watch::Receiver<JournalSettings> {
        self.journal_settings.subscribe()
    }

    /// How long to wait for news.
    pub fn sleep(&self) -> Duration {
        self.engine.sleep(self.now())
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
                Incoming::Hub(event) => self.hub_event(event, &mut outputs).await,
                Incoming::Ask(request, reply) => {
                    self.ask(request, Waiting::Asked(reply), &mut outputs);
                }
                Incoming::Control(call) => self.control(call, &mut outputs).await,
            }
        }
        self.carry_out(outputs).await;
        self.publish();
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
        let event = Event {
            kind: EventType::Drain,
            at: Timestamp::now(),
            severity: Severity::Info,
            message: "slice-healer goes down in order".to_owned(),
            service: None,
            slice: None,
            finding: None,
            evidence: Vec::new(),
            heal: None,
            incident: None,
        };
        self.carry_out(vec![Output::Emit(event)]).await;
        self.save_cursor(true).await;
    }

    fn now(&self) -> Now {
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
            JournalInput::Signal(signal) => self.feed(Input::Signal(signal), outputs),
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
    fn open_or_close(&mut self, outputs: &mut Vec<Output>) {
        let settings = self.desired.in_force();
        let closed = settings
            .closed_at(Timestamp::now())
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

    pub(super) async fn carry_out(&mut self, outputs: Vec<Output>) {
        let mut batch = Batch::default();
        let mut actions = Vec::new();
        let mut events = Vec::new();
        let mut replies = Vec::new();
        for output in outputs {
            match output {
                Output::Persist(record) => batch.records.push(record),
                Output::Act(action) => actions.push(action),
                Output::Emit(event) => events.push(event),
                Output::Reply { id, reply } => replies.push((id, reply)),
            }
        }
        let node = self.engine.node().map(str::to_owned);
        for event in &events {
            let settings = self.desired.in_force();
            batch
                .messages
                .extend(self.teller.tell(event, node.as_deref(), settings));
        }
        let persisted = self.persist(batch).await;
        for action in actions {
            match &persisted {
                Err(why) if is_write(&action.act) => {
                    // Without the intent on disk a crash could repeat the write without limit.
                    let text = format!("not begun, the state could not be written: {why}");
                    self.spawn_done(action.id, Outcome::Failed(text));
                }
                _ => self.spawn(action),
            }
        }
        // First the replies: who asked for a heal follows the events that come after.
        for (id, reply) in replies {
            if let Some(who) = self.waiting.remove(&id) {
                self.reply(who, reply);
            }
        }
        for event in events {
            self.note(&event);
            self.tell_follower(&event);
            // Nobody listening is no error.
            let _ = self.events.send(event);
        }
    }

    fn reply(&mut self, who: Waiting, reply: Reply) {
        match (who, reply) {
            (Waiting::Asked(asked), reply) => {
                let _ = asked.send(reply);
            }
            (Waiting::Method(method), reply) => {
                let answer = crate::report::methods::answer(reply);
                method.respond(answer.status, answer.body);
            }
            (Waiting::Control(responder), Reply::Accepted { incident }) => {
                self.following.insert(incident, responder);
            }
            (Waiting::Control(responder), reply) => {
                self.tasks.spawn(responder.reply(reply.into()));
            }
        }
    }

    fn tell_follower(&mut self, event: &Event) {
        let Some(incident) = &event.incident else {
            return;
        };
        if let Some(follower) = self.following.get(incident) {
            follower.event(event.message.clone());
        }
        let (EventType::Heal, Some(heal)) = (event.kind, &event.heal) else {
            return;
        };
        let Some(follower) = self.following.remove(incident) else {
            return;
        };
        let reply = match heal.outcome {
            Some(outcome) => ControlReply::Ended {
                action: heal.action,
                outcome,
                seconds: heal.seconds,
                message: event.message.clone(),
            },
            None => ControlReply::Held {
                reason: heal
                    .reason
                    .as_deref()
                    .and_then(|r| HoldReason::ALL.into_iter().find(|h| h.as_str() == r))
                    .unwrap_or(HoldReason::Grace),
                detail: event.message.clone(),
            },
        };
        self.tasks.spawn(follower.reply(reply));
    }

    async fn persist(&mut self, mut batch: Batch) -> Result<(), String> {
        let told = !batch.messages.is_empty();
        if batch.is_empty() {
            self.save_cursor(false).await;
            return Ok(());
        }
        // Whatever is written takes the cursor along.
        batch.cursor = self.cursor.take();
        let cursor = batch.cursor.clone();
        match self.books.commit(batch).await {
            Ok(()) => {
                self.cursor_saved = Instant::now();
                if told {
                    self.outbox_filled.notify_one();
                }
                Ok(())
            }
            Err(why) => {
                error!(error = %why, "the state could not be written; nothing is healed until it can");
                self.cursor = self.cursor.take().or(cursor);
                Err(why.to_string())
            }
        }
    }

    async fn save_cursor(&mut self, now: bool) {
        let every = self.desired.in_force().journal.commit_interval.0;
        if self.cursor.is_none() || (!now && self.cursor_saved.elapsed() < every) {
            return;
        }
        let batch = Batch {
            cursor: self.cursor.take(),
            ..Batch::default()
        };
        let cursor = batch.cursor.clone();
        if let Err(why) = self.books.commit(batch).await {
            warn!(error = %why, "the journal position could not be written");
            self.cursor = cursor;
        }
        self.cursor_saved = Instant::now();
    }

    fn spawn(&mut self, action: Action) {
        debug!(?action, "begins");
        let actor = self.actor.clone();
        let tx = self.tx.clone();
        self.tasks.spawn(async move {
            let id = action.id;
            let outcome = actor.run(action).await;
            // The pump being gone means that the process is ending.
            let _ = tx.send(Incoming::Done(id, outcome)).await;
        });
    }

    fn spawn_done(&mut self, id: ActionId, outcome: Outcome) {
        let tx = self.tx.clone();
        self.tasks.spawn(async move {
            let _ = tx.send(Incoming::Done(id, outcome)).await;
        });
    }

    /// Tells on the Service itself, where `kubectl describe` shows it. `observe` writes nothing,
    /// not even that.
    fn note(&mut self, event: &Event) {
        let (Some(recorder), Some(service), Some(heal)) =
            (&self.recorder, &event.service, &event.heal)
        else {
            return;
        };
        let observed = heal.reason.as_deref() == Some(HoldReason::ObserveMode.as_str());
        if event.kind != EventType::Heal || observed {
            return;
        }
        let Some(uid) = self.engine.service_uid(service) else {
            return;
        };
        let note = Note {
            service: service.clone(),
            uid,
            warning: !heal
                .outcome
                .is_some_and(slice_core::event::HealOutcome::is_success),
            reason: match heal.outcome {
                None => "SliceHealHeld".to_owned(),
                Some(o) if o.is_success() => "SliceHealed".to_owned(),
                Some(_) => "SliceHealFailed".to_owned(),
            },
            action: camel(heal.action.as_str()),
            text: event.message.clone(),
        };
        let recorder = recorder.clone();
        self.tasks.spawn(async move {
            if let Err(why) = recorder.record(&note, Duration::from_secs(10)).await {
                debug!(error = why, "no Kubernetes Event was written");
            }
        });
    }

    /// Shows the state after a step.
    fn publish(&mut self) {
        let status = self.engine.status(self.now());
        let of_kind = |(kind, severity): &(_, _), count: &usize| {
            std::iter::repeat_n((*kind, *severity), *count)
        };
        self.metrics.set_findings(
            status
                .findings
                .by_kind
                .iter()
                .flat_map(|(k, n)| of_kind(k, n)),
            status.findings.stale_slices,
        );
        for kind in Kind::ALL {
            self.metrics.set_synced(kind, self.engine.is_synced(kind));
        }
        if let Some(hub) = &self.hub {
            self.metrics
                .set_hub_connected(hub.status().state.is_connected());
            self.reported.update(hub, &status, &self.desired);
        }
        self.report_parts(&status);
        let (waiting, dropped, written) = self.books.counters();
        self.metrics.set_outbox(waiting, dropped);
        self.metrics.set_store_written(written);
        self.status.send_replace(Some(status));
    }
}

impl Pump {
    /// What `/readyz` shows. Every state is a state: a missing cluster is still ready.
    fn report_parts(&self, status: &Status) {
        let text = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let cluster = text(serde_json::json!(status.cluster.state));
        self.health.report(
            "cluster",
            match &status.cluster.detail {
                Some(why) => Part::because(cluster, why.clone()),
                None => Part::new(cluster),
            },
        );
        self.health.report(
            "journal",
            Part::new(text(serde_json::json!(status.journal.state))),
        );
        let hub = match &self.hub {
            None => Part::new("none"),
            Some(hub) => {
                let hub = hub.status();
                match hub.last_failure {
                    _ if hub.state.is_connected() => Part::new("connected"),
                    Some((_, why)) => Part::because("away", why),
                    None => Part::new("connecting"),
                }
            }
        };
        self.health.report("hub", hub);
    }
}

fn is_write(act: &Act) -> bool {
    matches!(act, Act::Refresh { .. } | Act::Delete { .. })
}

/// `refresh-service` → `RefreshService`.
fn camel(text: &str) -> String {
    text.split('-')
        .map(|word| {
            let mut chars = word.chars();
            chars.next().map_or_else(String::new, |first| {
                first.to_ascii_uppercase().to_string() + chars.as_str()
            })
        })
        .collect()
}
