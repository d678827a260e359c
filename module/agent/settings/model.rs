//! Every setting there is. The values come from `config/default.toml`, which documents each of
//! them; there are no defaults in code, so that none can differ from what is documented.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slice_core::heal::policy::{LoadBalancers, Locality, Mode};
use slice_core::judge::Severity;

use super::types::{Ladder, Names, Selector, Span, Unset};
use super::windows::Window;

/// All settings in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Observe or heal.
    #[schemars(with = "String", extend("enum" = ["observe", "heal"]))]
    pub mode: Mode,
    /// How much is logged.
    pub log_level: LogLevel,
    /// Up to 8 labels of this module, such as site and line: they go into telemetry and twin.
    pub labels: BTreeMap<String, String>,
    /// Which Services are judged.
    pub scope: ScopeSettings,
    /// Where the journal is and what is read from it.
    pub journal: JournalSettings,
    /// How the cluster is reached.
    pub cluster: ClusterSettings,
    /// How the hub is reached.
    pub hub: HubSettings,
    /// How long a difference must stand.
    pub grace: GraceSettings,
    /// The steps of a heal, in order.
    pub ladder: Ladder,
    /// How often heals may happen.
    pub budgets: BudgetSettings,
    /// How a heal goes.
    pub heal: HealSettings,
    /// Opening times: outside all of them nothing is written. None means always open.
    pub windows: BTreeMap<String, Window>,
    /// Named holds: nothing is written before the time given.
    #[schemars(with = "BTreeMap<String, String>")]
    pub holds: BTreeMap<String, Timestamp>,
    /// Probes through Services, by name.
    pub probes: BTreeMap<String, ProbeSettings>,
    /// Thresholds of findings.
    pub findings: FindingSettings,
    /// What is told, and how often.
    pub report: ReportSettings,
    /// The HTTP server.
    pub serve: ServeSettings,
    /// What is kept on disk.
    pub store: StoreSettings,
    /// Unit states.
    pub dbus: DbusSettings,
}

/// How much is logged.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What failed.
    Error,
    /// And what may soon fail.
    Warn,
    /// And what was done.
    Info,
    /// And why.
    Debug,
    /// And every step.
    Trace,
}

impl LogLevel {
    /// Every level, the quietest first.
    pub const ALL: [Self; 5] = [
        Self::Error,
        Self::Warn,
        Self::Info,
        Self::Debug,
        Self::Trace,
    ];

    /// The name in settings, twin and methods.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    /// The level of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }
}

/// Section `scope`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScopeSettings {
    /// By node or by cluster.
    #[schemars(with = "String", extend("enum" = ["node", "cluster"]))]
    pub locality: Locality,
    /// Only these namespaces; none means all.
    pub namespaces: Names,
    /// Never these namespaces.
    pub exclude_namespaces: Names,
    /// Only Services with all these labels.
    pub service_selector: Selector,
}

/// Section `journal`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JournalSettings {
    /// Folders that hold journals, persistent and volatile.
    pub directories: Names,
    /// Units whose entries are read.
    pub units: Names,
    /// A file of rules in place of the built-in ones.
    pub rules_file: Unset,
    /// Further rules, by name.
    pub rules: BTreeMap<String, RuleSettings>,
    /// How far back the very first start reads.
    pub look_back: Span,
    /// Polling of the folders, where and while inotify does not tell.
    pub poll_interval: Span,
    /// How often the position is written to disk at most.
    pub commit_interval: Span,
    /// The host's machine id.
    pub machine_id_file: PathBuf,
}

/// A journal rule from settings or twin; it counts as `custom` in metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleSettings {
    /// Regular expression on the message, with the groups `namespace`, `service`, `slice`, `pod`
    /// and `node` where it has them.
    pub pattern: String,
    /// How bad a match is.
    #[serde(default = "info")]
    #[schemars(with = "String", extend("enum" = ["critical", "warning", "info"]))]
    pub severity: Severity,
    /// Only entries of these units; none means all that are read.
    #[serde(default)]
    pub units: Names,
}

fn info() -> Severity {
    Severity::Info
}

/// Section `cluster`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterSettings {
    /// The kubeconfig file.
    pub kubeconfig: Unset,
    /// The context in it.
    pub context: Unset,
    /// Another URL than the kubeconfig's.
    pub server: Unset,
    /// The name in the server's certificate, where it is not the one of the URL.
    pub tls_server_name: Unset,
    /// The Kubernetes node that this device is.
    pub node_name: Unset,
}

/// Whether a part is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Enabled {
    /// Where what it needs is there.
    Auto,
    /// Yes: reported as missing where it is not there.
    Always,
    /// No.
    Never,
}

/// Section `hub`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HubSettings {
    /// Whether the module client runs.
    pub enabled: Enabled,
    /// The gateway's MQTT port.
    pub gateway_port: u16,
    /// A file with a module connection string, for development outside IoT Edge.
    pub connection_string_file: Unset,
    /// The certificates trusted with a connection string.
    pub trusted_roots: PathBuf,
}

/// Section `grace`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraceSettings {
    /// Before a refresh.
    pub refresh: Span,
    /// Before a delete.
    pub delete: Span,
    /// Before a refresh, when the journal spoke.
    pub refresh_on_signal: Span,
    /// Before a delete, when the journal spoke.
    pub delete_on_signal: Span,
    /// How long a signal counts.
    pub signal_window: Span,
}

/// Section `budgets`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetSettings {
    /// Heals of one Service an hour.
    pub per_service_per_hour: u32,
    /// Heals in one namespace an hour.
    pub per_namespace_per_hour: u32,
    /// Heals by this module an hour.
    pub per_node_per_hour: u32,
    /// Right, ready endpoints that one delete may take away for a moment.
    pub max_lost_endpoints: u32,
}

/// Section `heal`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HealSettings {
    /// Whether slices of Services without a selector may be deleted.
    pub delete_leftover: bool,
    /// What is done about Services of type LoadBalancer.
    #[schemars(with = "String", extend("enum" = ["slow", "skip", "heal"]))]
    pub load_balancers: LoadBalancers,
    /// Whether a delete needs the canary's answer.
    pub canary: bool,
    /// Whether a heal takes the Lease.
    pub lease: bool,
    /// The waits inside a heal.
    pub pace: PaceSettings,
}

/// Section `heal.pace`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PaceSettings {
    /// After each refresh, until the next step; as many refreshes as items.
    pub look_again: Spans,
    /// After the DELETED event, before the next refresh.
    pub after_delete: Span,
    /// When to refresh after that, until a new slice is there.
    pub recreate: Spans,
    /// How long a deleted slice may stay away.
    pub recreate_deadline: Span,
    /// Between the two reads that prove a heal.
    pub verify_gap: Span,
    /// How long the API must have been back before anything is written.
    pub settle: Span,
    /// Pause of a Service after its heal.
    pub cool_down: Span,
    /// Deadline of one action.
    pub action_deadline: Span,
}

/// A list of durations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Spans(pub Vec<Span>);

impl<'de> Deserialize<'de> for Spans {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "a list of durations such as `PT5S`, or a comma-separated text of them"
        )]
        enum Form {
            List(Vec<String>),
            Text(String),
        }
        let items = match Form::deserialize(from)? {
            Form::List(items) => items,
            Form::Text(text) => text.split(',').map(str::to_owned).collect(),
        };
        items
            .iter()
            .map(|item| item.parse().map_err(serde::de::Error::custom))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// A probe through a Service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbeSettings {
    /// What is asked: `http://` or `https://`, without credentials.
    pub url: String,
    /// The version that must answer; empty means any.
    #[serde(default)]
    pub expect_version: Unset,
}

/// Section `findings`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FindingSettings {
    /// Slice updates of one Service in a minute that count as churn.
    pub churn_per_minute: u32,
}

/// Section `report`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportSettings {
    /// Shortest time between two reported patches.
    pub min_interval: Span,
    /// How often `status` telemetry is sent; zero is never.
    pub status_interval: Span,
    /// The least severity that becomes telemetry.
    #[schemars(with = "String", extend("enum" = ["critical", "warning", "info"]))]
    pub telemetry_min_severity: Severity,
    /// Telemetry messages a second, on average.
    pub telemetry_per_second: u32,
    /// Earliest renewal of `reportedAt`.
    pub heartbeat_min: Span,
    /// Latest renewal of `reportedAt`.
    pub heartbeat_max: Span,
}

/// Section `serve`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServeSettings {
    /// Address to listen on.
    pub address: IpAddr,
    /// Port; 0 takes a free one.
    pub port: u16,
    /// How old a task's sign of life may be before `/livez` fails.
    pub stale_after: Span,
}

/// Section `store`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreSettings {
    /// The state directory.
    pub directory: PathBuf,
    /// Telemetry waiting for the hub, in bytes.
    pub outbox_bytes: u64,
    /// Telemetry waiting for the hub, in messages.
    pub outbox_messages: u64,
    /// How long telemetry may wait for the hub.
    pub outbox_age: Span,
}

/// Section `dbus`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DbusSettings {
    /// Whether unit states are watched.
    pub enabled: Enabled,
    /// The system bus; empty means its usual place.
    pub address: Unset,
    /// Units whose starts, stops and restarts count.
    pub units: Names,
}
