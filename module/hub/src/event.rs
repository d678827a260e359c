//! What the client tells the program: events in order, and a status that is always current.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::clock::now;
use crate::message::Input;
use crate::methods::MethodCall;

/// Something happened. Events wait in a bounded queue; what may not be lost is also in [`Status`],
/// is repeated (desired properties, inputs) or answered by the client itself (methods).
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// Connected and subscribed; methods and telemetry work from here on.
    Connected {
        /// Whether the hub had kept our session.
        session_present: bool,
    },
    /// A link that was connected has ended.
    Disconnected {
        /// Why, for branching and metrics.
        reason: DisconnectReason,
        /// Why, for people.
        detail: String,
    },
    /// The hub refused CONNECT. 5 is "not authorised", which also happens while edgeHub does not
    /// know the module yet or when the clock is wrong; the client keeps trying.
    ConnackRefused {
        /// MQTT return code.
        code: u8,
    },
    /// A planned reconnect with a new token is done.
    Renewed,
    /// The whole desired section, after a change. Changes in quick succession come as one event.
    Desired {
        /// Its `$version`, for acknowledgements.
        version: u64,
        /// The section without the hub's own keys.
        document: Value,
        /// Whether a value differs from what the event before said; if not, only the version does.
        changed: bool,
    },
    /// Somebody calls a method.
    Method(MethodCall),
    /// A message for an input. It has been acknowledged: from here on it is the program's.
    Input(Input),
    /// The hub has accepted all of the reported document that it did not refuse.
    ReportedSettled,
    /// The hub refuses a top-level section of the reported document; it is not sent again until its
    /// value changes.
    ReportedRefused {
        /// Key of the section.
        section: String,
        /// The hub's status.
        status: u16,
    },
    /// The hub accepts reported properties and the cloud does not get them. With edgeHub only a
    /// wiped store helps: somebody must look.
    ReportedStuck,
    /// They arrive again.
    ReportedRecovered,
}

/// Why a link ended or an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DisconnectReason {
    /// The workload API did not give a token or the trust bundle.
    Workload,
    /// There is no usable certificate to trust.
    Trust,
    /// Name resolution or TCP connect failed.
    Network,
    /// The TLS handshake failed.
    Tls,
    /// The hub refused CONNECT.
    Refused,
    /// No CONNACK.
    ConnackTimeout,
    /// No SUBACK, or a filter was refused.
    Subscribe,
    /// No answer to a ping.
    PingTimeout,
    /// A message was not acknowledged.
    PubackTimeout,
    /// Twin requests stay without answer although the link lives.
    TwinSilent,
    /// The peer takes no bytes.
    WriteStall,
    /// The connection was closed or broke.
    Closed,
    /// The peer broke the protocol.
    Protocol,
    /// Planned, to renew the token.
    Renewal,
    /// Planned, because the program ends.
    Drained,
}

impl DisconnectReason {
    /// Short fixed name, fit for a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workload => "workload",
            Self::Trust => "trust",
            Self::Network => "network",
            Self::Tls => "tls",
            Self::Refused => "refused",
            Self::ConnackTimeout => "connack-timeout",
            Self::Subscribe => "subscribe",
            Self::PingTimeout => "ping-timeout",
            Self::PubackTimeout => "puback-timeout",
            Self::TwinSilent => "twin-silent",
            Self::WriteStall => "write-stall",
            Self::Closed => "closed",
            Self::Protocol => "protocol",
            Self::Renewal => "renewal",
            Self::Drained => "drained",
        }
    }

    /// Whether nothing is wrong.
    pub fn is_planned(self) -> bool {
        matches!(self, Self::Renewal | Self::Drained)
    }
}

/// Where the client is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum State {
    /// Not begun.
    #[default]
    Init,
    /// Getting a token and the trust bundle.
    Sign,
    /// TCP connect and TLS handshake.
    Tls,
    /// Waiting for CONNACK.
    Connack,
    /// Waiting for SUBACK.
    Subscribing,
    /// Connected; the twin is not known yet.
    Syncing,
    /// Connected and in step.
    Up,
    /// Waiting after the workload API failed.
    WaitWorkload,
    /// Waiting after something else failed.
    Backoff,
    /// The program ends; the last messages go out.
    Draining,
    /// Ended.
    Stopped,
}

impl State {
    /// Whether messages can flow.
    pub fn is_connected(self) -> bool {
        matches!(self, Self::Syncing | Self::Up)
    }
}

/// Counters since the client was started. They never go down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Links that got as far as CONNACK.
    pub connects: u64,
    /// Planned reconnects among them.
    pub renewals: u64,
    /// Telemetry messages that the hub acknowledged.
    pub telemetry_acked: u64,
    /// Telemetry messages that were sent again.
    pub telemetry_resent: u64,
    /// Reported patches that the hub accepted.
    pub patches_accepted: u64,
    /// Twin GETs that were sent.
    pub twin_gets: u64,
    /// Method calls that were handed out.
    pub methods: u64,
    /// Method calls that the client answered because the program was late.
    pub methods_late: u64,
    /// Method calls that were refused because too many were under way.
    pub methods_refused: u64,
    /// Inputs that were handed out.
    pub inputs: u64,
    /// Inputs left for redelivery because the event queue was full.
    pub inputs_deferred: u64,
    /// Informative events that were dropped because the event queue was full.
    pub events_dropped: u64,
    /// Messages with a topic that this client does not know.
    pub unknown_topics: u64,
}

/// The client's condition. Get it from [`crate::Handle::status`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Where the client is in its life.
    pub state: State,
    /// Since when.
    pub since: Instant,
    /// Attempts and links that failed in a row; zero once the twin is in step.
    pub failures: u32,
    /// The last failure, for people; cleared when the twin is in step.
    pub last_failure: Option<(DisconnectReason, String)>,
    /// Since when the workload socket has been refusing us without a break. It is tried when a
    /// token is needed, so this may be set while an older connection still works.
    pub workload_refused_since: Option<Instant>,
    /// Whether accepted reported properties do not arrive in the cloud.
    pub reported_stuck: bool,
    /// Telemetry that the session holds and the hub has not acknowledged.
    pub unacknowledged: usize,
    /// Counters.
    pub counters: Counters,
}

impl Status {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Init,
            since: now(),
            failures: 0,
            last_failure: None,
            workload_refused_since: None,
            reported_stuck: false,
            unacknowledged: 0,
            counters: Counters::default(),
        }
    }

    /// For how long the workload socket has been refusing us, at `now`. When this lasts for
    /// minutes, the daemon has made a new socket that this container does not see: only a new
    /// container helps.
    pub fn workload_refused_for(&self, now: Instant) -> Option<Duration> {
        self.workload_refused_since
            .map(|since| now.saturating_duration_since(since))
    }
}
