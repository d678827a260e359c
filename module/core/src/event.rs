//! The closed vocabulary between the core and the world: everything that can happen to slice-healer
//! is an [`Input`], everything it wants done is an [`Output`].
//!
//! Nothing here does anything. The agent turns what it senses into inputs, carries out outputs in
//! the order *persist, act, report*, and brings results back as inputs.

mod made;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::heal::clues::Clues;
use crate::heal::gate::HoldReason;
use crate::heal::policy::Policy;
use crate::heal::record::Record;
use crate::judge::{Finding, FindingKind, RemedyAction, Severity};
use crate::model::{
    Endpoints, Kind, Namespace, Node, Object, ObjectRef, Pod, ServerVersion, Service, ServiceKey,
    Slice,
};
use crate::signal::Signal;

/// The moment of a step. Waits are measured on `mono`, which no clock change moves; `wall` is only
/// written down for people and for budgets that outlive the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Time since the process started, from a monotonic clock.
    pub mono: Duration,
    /// Wall-clock time.
    pub wall: Timestamp,
}

/// Everything that can happen.
#[derive(Clone, Debug)]
pub enum Input {
    /// The cluster changed, or our view of it did.
    Cluster(ClusterInput),
    /// A journal rule matched.
    Signal(Signal),
    /// The journal follower changed its state.
    Journal(JournalState),
    /// A unit of the host started, stopped or restarted.
    Unit(UnitChange),
    /// New settings are in force; they were validated before.
    Policy(Box<Policy>),
    /// Somebody asks for something: a direct method or the control socket.
    Command(Command),
    /// An [`Action`] has ended, in whatever way. Every action ends in exactly one of these.
    Done {
        /// Which action.
        id: ActionId,
        /// How it ended.
        outcome: Outcome,
    },
    /// Time has passed.
    Tick,
}

/// What the cluster watches deliver.
#[derive(Clone, Debug)]
pub enum ClusterInput {
    /// An object was added or changed.
    Apply(Object),
    /// An object is gone.
    Deleted(ObjectRef),
    /// A full list replaces all that was known of this kind.
    Reset(Kind, Vec<Object>),
    /// The watch of this kind changed its state.
    Link(Kind, Link),
    /// The API server told its version.
    Version(ServerVersion),
    /// The node this module runs on, once known. `None` means unknown, so locality is `cluster`.
    LocalNode(Option<String>),
}

/// The state of one watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// Connected, the first list has not come through yet.
    Syncing,
    /// Listed and following.
    Synced,
    /// The API does not answer; the text says why.
    Unreachable(String),
    /// The API refuses; the text names the verb that is missing.
    Forbidden(String),
}

/// The state of the journal follower, as the twin reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JournalState {
    /// There is no journal yet.
    #[default]
    Waiting,
    /// Entries are being read.
    Following,
    /// There is a journal that may not be read.
    Denied,
}

/// A unit of the host changed its state; seen over D-Bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitChange {
    /// Unit name such as `aziot-edged.service`.
    pub unit: String,
    /// systemd's `ActiveState`, such as `active` or `failed`.
    pub state: String,
    /// Whether the unit has a new main process since the last look.
    pub restarted: bool,
    /// When it was seen.
    pub at: Timestamp,
}

/// Names one [`Action`] within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionId(pub u64);

/// Something to be done to the cluster, or asked of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Comes back in [`Input::Done`].
    pub id: ActionId,
    /// How long it may take; then it ends as [`Outcome::Failed`].
    pub deadline: Duration,
    /// What.
    pub act: Act,
}

/// The kinds of action. Each write is bound to what was judged: names alone are never enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Fresh reads, past every cache, of all that one Service is judged on. Ends as
    /// [`Outcome::Snapshot`].
    Read {
        /// The Service.
        service: ServiceKey,
    },
    /// Merge-patches the refresh annotation of a Service. Ends as [`Outcome::Written`].
    Refresh {
        /// The Service.
        service: ServiceKey,
        /// Its uid, so that a Service recreated under the name is not written to.
        uid: String,
        /// The annotation's value.
        value: String,
    },
    /// Deletes one EndpointSlice, only in the version that was judged. Ends as
    /// [`Outcome::Written`].
    Delete {
        /// The Service that the slice belongs to.
        service: ServiceKey,
        /// The slice's name.
        slice: String,
        /// Precondition.
        uid: String,
        /// Precondition.
        resource_version: String,
    },
    /// Reads what may say why refreshes did not help. Ends as [`Outcome::Clues`].
    Diagnose {
        /// The Service.
        service: ServiceKey,
    },
    /// Asks the slice controller to prove that it works: a label on the canary's slice must be
    /// stripped again. Ends as [`Outcome::Canary`].
    Canary,
    /// Takes the Lease for one heal. Ends as [`Outcome::Lease`].
    TakeLease,
    /// Gives the Lease back. Ends as [`Outcome::Written`].
    ReleaseLease,
}

/// How an action ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The objects as they are now.
    Snapshot(Box<Snapshot>),
    /// What was read for a diagnosis.
    Clues(Box<Clues>),
    /// The write was accepted.
    Written,
    /// A precondition did not hold (409): what was judged is not what is there.
    Conflict(String),
    /// The object is not there (404).
    Gone,
    /// The API refuses (401, 403, admission); the text names the verb.
    Forbidden(String),
    /// The canary's answer.
    Canary(CanaryAnswer),
    /// Whether the Lease is ours.
    Lease(LeaseAnswer),
    /// Anything else: no connection, deadline, 429 to the end, 5xx, an answer that is nonsense.
    Failed(String),
}

/// What the canary Service showed about the slice controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CanaryAnswer {
    /// The controller stripped the label in time.
    Answered,
    /// It did not.
    Unanswered,
    /// There is no canary to ask; the text says what is missing.
    Absent(String),
}

/// Who has the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// We do.
    Taken,
    /// Somebody else does.
    HeldBy(String),
    /// The cluster has no place for it (the namespace is missing, or the verb is).
    Absent(String),
}

/// Fresh objects for judging one Service.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The Service, if it exists.
    pub service: Option<Service>,
    /// Its namespace, where it could be read.
    pub namespace: Option<Namespace>,
    /// Every slice that names the Service.
    pub slices: Vec<Slice>,
    /// Every pod that the Service selects or a slice names.
    pub pods: Vec<Pod>,
    /// Every node that these pods or slices name and that exists.
    pub nodes: Vec<Node>,
    /// The legacy Endpoints object, where it could be read.
    pub endpoints: Option<Endpoints>,
    /// The slices word for word, by name, so that a person can restore what a delete took away.
    pub raw_slices: BTreeMap<String, serde_json::Value>,
}

/// A request from outside.
#[derive(Clone, Debug)]
pub struct Command {
    /// Comes back in [`Output::Reply`].
    pub id: CommandId,
    /// What is asked.
    pub request: Request,
}

/// Names one request within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub u64);

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The findings as they stand.
    Inspect {
        /// Only this namespace.
        namespace: Option<String>,
        /// Only this Service name.
        service: Option<String>,
    },
    /// One heal by hand; also in mode `observe`.
    Heal {
        /// The Service.
        service: ServiceKey,
        /// Which step; `None` is the whole ladder.
        action: Option<RemedyAction>,
        /// Only say what would be done.
        dry_run: bool,
    },
}

/// The answer to a [`Command`].
#[derive(Clone, Debug)]
pub enum Reply {
    /// For [`Request::Inspect`].
    Findings(Vec<Finding>),
    /// A heal was taken up; its result follows as an event of this incident.
    Accepted {
        /// The incident's id.
        incident: String,
    },
    /// There is nothing to heal.
    NothingToDo,
    /// What a heal would do first.
    WouldAct {
        /// The step.
        action: RemedyAction,
        /// Why.
        detail: String,
        /// Every write of it, in order, word for word.
        writes: Vec<String>,
    },
    /// Held back.
    Held {
        /// The reason.
        reason: HoldReason,
        /// In words.
        detail: String,
    },
    /// No such Service.
    NotFound,
    /// Another heal is running.
    Busy,
}

/// Everything that the core wants done.
#[derive(Clone, Debug)]
pub enum Output {
    /// To be on disk before any action of the same step starts.
    Persist(Record),
    /// To be carried out.
    Act(Action),
    /// To be told: log, telemetry, metrics.
    Emit(Event),
    /// The answer to a command.
    Reply {
        /// Whose.
        id: CommandId,
        /// What.
        reply: Reply,
    },
}

/// The types of event, as telemetry names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventType {
    /// A journal rule matched.
    Signal,
    /// A finding opened.
    Finding,
    /// A heal ended or was held back.
    Heal,
    /// A finding is gone.
    Resolved,
    /// A person is needed.
    Escalated,
    /// The module goes down in order.
    Drain,
    /// Periodic.
    Status,
}

impl EventType {
    /// The name in telemetry.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Finding => "finding",
            Self::Heal => "heal",
            Self::Resolved => "resolved",
            Self::Escalated => "escalated",
            Self::Drain => "drain",
            Self::Status => "status",
        }
    }
}

/// Something worth telling. The agent gives it an id and sends it as `slice-healer/event/v1`.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// What type.
    pub kind: EventType,
    /// When.
    pub at: Timestamp,
    /// How bad.
    pub severity: Severity,
    /// One sentence for a person.
    pub message: String,
    /// The Service, if one is concerned.
    pub service: Option<ServiceKey>,
    /// The slice, if one is concerned.
    pub slice: Option<String>,
    /// The finding's kind, if there is one.
    pub finding: Option<FindingKind>,
    /// Name and value pairs that prove the message.
    pub evidence: Vec<(String, String)>,
    /// For heals.
    pub heal: Option<HealEvent>,
    /// Id of the incident, if one is concerned.
    pub incident: Option<String>,
}

/// The heal part of an [`Event`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HealEvent {
    /// The last step taken, or the one that would have been.
    pub action: RemedyAction,
    /// How it ended; `held` is told by `reason`.
    pub outcome: Option<HealOutcome>,
    /// Why it was held back, or what failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Which attempt of this incident, from 1.
    pub attempt: u32,
    /// From the first sight of the staleness to now.
    pub seconds: f64,
}

/// Why a heal was held back, or what failed; one text in telemetry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Reason {
    /// It was held back.
    Hold(HoldReason),
    /// In words.
    Detail(String),
}

impl HealEvent {
    /// Why it was held back, if it was.
    pub fn held(&self) -> Option<HoldReason> {
        match self.reason {
            Some(Reason::Hold(reason)) => Some(reason),
            _ => None,
        }
    }
}

/// How a heal ended (contract: telemetry).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HealOutcome {
    /// Two fresh reads agree that the slices are right.
    Healed,
    /// It was right again before anything was written.
    HealedByItself,
    /// The slices were right once, the second look could not confirm it.
    NotVerified,
    /// Everything that is allowed was done, and it is still stale.
    StillStale,
    /// A deleted slice did not come back in time.
    NotRecreated,
    /// The object was not the one that was judged.
    Conflict,
    /// The API refused a write.
    Forbidden,
    /// Something else failed.
    Failed,
}

impl HealOutcome {
    /// The name in telemetry, twin and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healed => "healed",
            Self::HealedByItself => "healed-by-itself",
            Self::NotVerified => "not-verified",
            Self::StillStale => "still-stale",
            Self::NotRecreated => "not-recreated",
            Self::Conflict => "conflict",
            Self::Forbidden => "forbidden",
            Self::Failed => "failed",
        }
    }

    /// Whether the Service is right now.
    pub fn is_success(self) -> bool {
        matches!(self, Self::Healed | Self::HealedByItself)
    }
}
