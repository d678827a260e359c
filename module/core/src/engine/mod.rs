//! `step(state, input, now) -> outputs`: the whole behaviour of slice-healer, without IO.
//!
//! The engine owns the world (what the watches know), the findings, the incidents, the one heal
//! that may be under way, and the books. It is driven by one task and shares nothing.

mod canary;
mod cluster;
mod commands;
mod dry_run;
mod findings;
mod heals;
mod incidents;
mod status;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::event::{
    Action, ActionId, Event, Input, JournalState, Now, Outcome, Output, UnitChange,
};
use crate::heal::budget::Ledger;
use crate::heal::incident::Incident;
use crate::heal::ladder::Ladder;
use crate::heal::policy::Policy;
use crate::heal::record::{History, Intent};
use crate::judge::Finding;
use crate::judge::churn::Churn;
use crate::model::{ServerVersion, ServiceKey, World};
use crate::signal::{Signal, SignalWindow};

pub use status::{
    ClusterState, ClusterStatus, FindingCounts, HealStatus, Health, HealthState, JournalStatus,
    LastHeal, Status,
};

/// The longest the engine sleeps: time alone makes some findings (a termination that is overdue).
const LONGEST_SLEEP: Duration = Duration::from_secs(15);
/// Everything is judged again within this time, whatever the watches say.
const FULL_SWEEP: Duration = Duration::from_secs(60);
/// How many signals are kept for incidents that open after them.
const SIGNALS_KEPT: usize = 16;
/// How many unit changes are kept as evidence.
const UNITS_KEPT: usize = 20;

/// The decision core.
#[derive(Debug)]
pub struct Engine {
    policy: Policy,
    world: World,
    links: cluster::Links,
    node: Option<String>,
    node_known: bool,
    server: Option<ServerVersion>,
    dirty: BTreeSet<ServiceKey>,
    swept: Duration,
    sweep_from: Option<ServiceKey>,
    churn: Churn,
    findings: BTreeMap<ServiceKey, Vec<Finding>>,
    standing: findings::Standing,
    incidents: BTreeMap<ServiceKey, Incident>,
    active: Option<Active>,
    ledger: Ledger,
    interrupted: Option<Intent>,
    canary: canary::Guard,
    window: SignalWindow,
    journal: JournalState,
    signals_seen: u64,
    last_signal: Option<jiff::Timestamp>,
    /// The latest signals, when they came (monotonic) and whom they name.
    recent_signals: VecDeque<(Duration, Option<ServiceKey>, Signal)>,
    units: VecDeque<UnitChange>,
    heals: HealStatus,
    health: Option<Health>,
    ids: Ids,
}

/// The heal under way.
#[derive(Debug)]
struct Active {
    ladder: Ladder,
    action: Option<ActionId>,
    began: Now,
    /// First sight of the staleness.
    stale_since: Duration,
    /// What it was begun for; a delete changes what is wrong meanwhile.
    begun_for: Finding,
    story: Vec<String>,
}

/// Where names come from: a prefix that is unique to this process, and counters.
#[derive(Debug)]
struct Ids {
    prefix: String,
    action: u64,
    incident: u64,
}

impl Ids {
    fn action(&mut self) -> ActionId {
        self.action += 1;
        ActionId(self.action)
    }

    fn incident(&mut self) -> String {
        self.incident += 1;
        format!("{}-{}", self.prefix, self.incident)
    }
}

impl Engine {
    /// A new engine. `prefix` makes the ids of incidents unique across restarts and devices.
    pub fn new(policy: Policy, history: &History, prefix: impl Into<String>) -> Self {
        Self {
            window: SignalWindow::new(policy.signal_window),
            churn: churn(&policy),
            policy,
            world: World::default(),
            links: cluster::Links::default(),
            node: None,
            node_known: false,
            server: None,
            dirty: BTreeSet::new(),
            swept: Duration::ZERO,
            sweep_from: None,
            findings: BTreeMap::new(),
            standing: findings::Standing::default(),
            incidents: BTreeMap::new(),
            active: None,
            ledger: Ledger::new(history),
            interrupted: history.intent.clone(),
            canary: canary::Guard::default(),
            journal: JournalState::default(),
            signals_seen: 0,
            last_signal: None,
            recent_signals: VecDeque::new(),
            units: VecDeque::new(),
            heals: HealStatus::default(),
            health: None,
            ids: Ids {
                prefix: prefix.into(),
                action: 0,
                incident: 0,
            },
        }
    }

    /// Takes one input and says what is to be done about it, in order.
    pub fn step(&mut self, input: Input, now: Now) -> Vec<Output> {
        let mut out = Vec::new();
        match input {
            Input::Cluster(change) => self.cluster(change, now),
            Input::Signal(signal) => self.signal(signal, now, &mut out),
            Input::Journal(state) => self.journal = state,
            Input::Unit(change) => self.unit(change),
            Input::Policy(policy) => self.set_policy(*policy),
            Input::Command(command) => self.command(command, now, &mut out),
            Input::Done { id, outcome } => self.done(id, outcome, now, &mut out),
            Input::Tick => {}
        }
        self.sweep(now);
        self.judge_dirty(now, &mut out);
        self.announce(now, &mut out);
        self.guard(now, &mut out);
        self.advance(now, &mut out);
        self.start_due(now, &mut out);
        self.update_health(now);
        out
    }

    /// How long the engine may sleep if nothing happens.
    pub fn sleep(&self, now: Now) -> Duration {
        let due = [
            self.active
                .as_ref()
                .and_then(|a| a.ladder.wake_at(&self.policy.pace)),
            self.next_incident_due(now),
            self.standing.next_due(self.policy.grace.refresh),
            self.canary.next_due(),
            self.churn.next_due(),
        ];
        let soonest = due.into_iter().flatten().min();
        soonest.map_or(LONGEST_SLEEP, |at| {
            at.saturating_sub(now.mono).min(LONGEST_SLEEP)
        })
    }

    /// Whether a heal is under way.
    pub fn is_healing(&self) -> bool {
        self.active.is_some()
    }

    /// Whether a heal is under way that must not be cut off: it has deleted a slice that is not
    /// there again.
    pub fn owes_a_slice(&self) -> bool {
        self.active
            .as_ref()
            .is_some_and(|a| a.ladder.owes_a_slice())
    }

    /// The settings in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// All findings as they stand, in the order of the contract.
    pub fn findings(&self) -> Vec<Finding> {
        let mut all: Vec<Finding> = self.findings.values().flatten().cloned().collect();
        all.extend(self.canary.finding());
        all.sort_by(Finding::order);
        all
    }

    fn set_policy(&mut self, policy: Policy) {
        if policy == self.policy {
            return;
        }
        self.window = self.window.with_length(policy.signal_window);
        let scope_changed = policy.scope != self.policy.scope
            || policy.delete_leftover != self.policy.delete_leftover;
        if policy.churn_per_minute != self.policy.churn_per_minute {
            self.churn = churn(&policy);
            self.dirty.extend(self.findings.keys().cloned());
        }
        self.policy = policy;
        for incident in self.incidents.values_mut() {
            incident.held = None;
            incident.told = None;
            incident.shadowed = false;
            incident.not_before = Duration::ZERO;
        }
        if scope_changed {
            self.dirty.extend(self.world.services());
            self.dirty.extend(self.findings.keys().cloned());
        }
    }

    fn signal(&mut self, signal: Signal, now: Now, out: &mut Vec<Output>) {
        self.signals_seen += u64::from(signal.count.max(1));
        self.last_signal = Some(signal.at);
        self.window.note(&signal, now.mono);
        let service = signal.service_key();
        for incident in self.incidents.values_mut() {
            if service.as_ref().is_none_or(|k| *k == incident.service) {
                incident.signalled(&signal);
            }
        }
        if self.recent_signals.len() == SIGNALS_KEPT {
            self.recent_signals.pop_front();
        }
        out.push(Output::Emit(Event::from_signal(&signal, service.clone())));
        self.recent_signals.push_back((now.mono, service, signal));
    }

    fn unit(&mut self, change: UnitChange) {
        if self.units.len() == UNITS_KEPT {
            self.units.pop_front();
        }
        self.units.push_back(change);
    }

    fn act(&mut self, act: crate::event::Act, out: &mut Vec<Output>) -> ActionId {
        let id = self.ids.action();
        let deadline = self.policy.pace.action_deadline;
        out.push(Output::Act(Action { id, deadline, act }));
        id
    }

    fn done(&mut self, id: ActionId, outcome: Outcome, now: Now, out: &mut Vec<Output>) {
        if self.canary.is_pending(id) {
            return self.canary_done(outcome, now, out);
        }
        match &mut self.active {
            Some(active) if active.action == Some(id) => active.action = None,
            // The heal it belonged to is over.
            _ => return,
        }
        self.ladder_done(outcome, now, out);
    }
}

fn churn(policy: &Policy) -> Churn {
    Churn::new(usize::try_from(policy.churn_per_minute).unwrap_or(usize::MAX))
}
