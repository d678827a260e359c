//! Pods, as far as endpoints follow from them.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;

use super::decode::{null_default, present};
use super::meta::Meta;
use super::service::Protocol;

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Pod {
    /// Metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta,
    /// What it asks for.
    #[serde(default, deserialize_with = "null_default")]
    pub spec: PodSpec,
    /// What it is.
    #[serde(default, deserialize_with = "null_default")]
    pub status: PodStatus,
}

impl Pod {
    /// Puts the parts together.
    pub fn new(meta: Meta, spec: PodSpec, status: PodStatus) -> Self {
        Self { meta, spec, status }
    }

    /// Whether it has finished, for good or bad; its Ready condition does not matter then.
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Whether its Ready condition is True.
    pub fn is_ready(&self) -> bool {
        self.status
            .condition("Ready")
            .is_some_and(|c| c.status == Truth::True)
    }

    /// The addresses that endpoints are made of. `podIP` alone gives none.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.status
            .pod_ips
            .iter()
            .filter_map(|ip| parse_address(&ip.ip))
    }

    /// Whether it has an address of any kind; without one it has no endpoint.
    pub fn has_address(&self) -> bool {
        !self.status.pod_ips.is_empty()
            || self.status.pod_ip.as_deref().is_some_and(|a| !a.is_empty())
    }
}

/// Reads an address loosely: leading zeros, which old clusters wrote, are decimal, and a mapped
/// IPv4 address is an IPv4 address (`utilnet.ParseIPSloppy`).
pub fn parse_address(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let mut parts = text.split('.');
    let mut octets = [0_u8; 4];
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || part.len() > 8 || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse::<u32>().ok()?.try_into().ok()?;
    }
    parts.next().is_none().then(|| IpAddr::from(octets))
}

/// `spec` of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Where it runs; empty until scheduled.
    #[serde(deserialize_with = "null_default")]
    pub node_name: Option<Arc<str>>,
    /// Name within the subdomain.
    #[serde(deserialize_with = "null_default")]
    pub hostname: Option<Box<str>>,
    /// The headless Service that gives it a DNS name.
    #[serde(deserialize_with = "null_default")]
    pub subdomain: Option<Box<str>>,
    /// Whether it uses the node's own addresses.
    #[serde(deserialize_with = "null_default")]
    pub host_network: bool,
    /// Containers.
    #[serde(deserialize_with = "null_default")]
    pub containers: Containers,
    /// Containers that run before these, or beside them.
    #[serde(deserialize_with = "null_default")]
    pub init_containers: Containers,
    /// Conditions beyond the containers that it must meet to be ready.
    #[serde(deserialize_with = "null_default")]
    pub readiness_gates: Vec<ReadinessGate>,
}

/// Containers, which all pods of one workload share.
pub type Containers = Arc<[Container]>;

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Name.
    #[serde(deserialize_with = "null_default")]
    pub name: Box<str>,
    /// Image reference.
    #[serde(deserialize_with = "null_default")]
    pub image: Box<str>,
    /// Ports that it names.
    #[serde(deserialize_with = "null_default")]
    pub ports: Vec<ContainerPort>,
    /// `Always` makes an init container a sidecar.
    #[serde(deserialize_with = "null_default")]
    pub restart_policy: Option<Box<str>>,
    /// Whether it has a readiness probe.
    #[serde(deserialize_with = "present")]
    pub readiness_probe: bool,
}

impl Container {
    /// Whether an init container keeps running beside the containers.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

/// A port that a container names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// Name; empty where there is none.
    #[serde(deserialize_with = "null_default")]
    pub name: Box<str>,
    /// Number.
    #[serde(deserialize_with = "null_default")]
    pub container_port: i32,
    /// Protocol.
    #[serde(deserialize_with = "null_default")]
    pub protocol: Protocol,
}

/// A condition that readiness waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReadinessGate {
    /// The condition's type.
    #[serde(deserialize_with = "null_default")]
    pub condition_type: Box<str>,
}

/// `status` of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// Phase.
    #[serde(deserialize_with = "null_default")]
    pub phase: Phase,
    /// The primary address.
    #[serde(rename = "podIP", deserialize_with = "null_default")]
    pub pod_ip: Option<Box<str>>,
    /// All addresses; endpoints come from these only.
    #[serde(rename = "podIPs", deserialize_with = "null_default")]
    pub pod_ips: Vec<PodIp>,
    /// Conditions.
    #[serde(deserialize_with = "null_default")]
    pub conditions: Vec<Condition>,
    /// How its containers do.
    #[serde(deserialize_with = "null_default")]
    pub container_statuses: Vec<ContainerStatus>,
    /// A word on why it is in this phase, such as `Evicted`.
    #[serde(deserialize_with = "null_default")]
    pub reason: Option<Box<str>>,
}

impl PodStatus {
    /// The condition of this type.
    pub fn condition(&self, name: &str) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.name.as_ref() == name)
    }
}

/// An address of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodIp {
    /// As text.
    #[serde(deserialize_with = "null_default")]
    pub ip: Box<str>,
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Phase {
    /// Not all containers have started.
    #[default]
    Pending,
    /// Running.
    Running,
    /// Finished well.
    Succeeded,
    /// Finished badly.
    Failed,
    /// The node does not answer, or a phase that this version does not know.
    #[serde(other)]
    Unknown,
}

/// True, False or Unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum Truth {
    /// Yes.
    True,
    /// No.
    False,
    /// Nobody can say.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A condition of a pod or node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Its type, such as `Ready`.
    #[serde(rename = "type", deserialize_with = "null_default")]
    pub name: Arc<str>,
    /// Whether it holds.
    #[serde(deserialize_with = "null_default")]
    pub status: Truth,
    /// One word on why.
    #[serde(deserialize_with = "null_default")]
    pub reason: Option<Box<str>>,
    /// A sentence on why.
    #[serde(deserialize_with = "null_default")]
    pub message: Option<Box<str>>,
    /// Since when.
    pub last_transition_time: Option<Timestamp>,
}

/// How a container does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Name of the container.
    #[serde(deserialize_with = "null_default")]
    pub name: Box<str>,
    /// Whether its readiness probe passes.
    #[serde(deserialize_with = "null_default")]
    pub ready: bool,
    /// What it is doing.
    #[serde(deserialize_with = "null_default")]
    pub state: ContainerState,
}

/// What a container is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// Waits; why.
    pub waiting: Option<Box<StateReason>>,
    /// Has ended; why.
    pub terminated: Option<Box<StateReason>>,
}

/// Why a container waits or has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct StateReason {
    /// One word, such as `ImagePullBackOff`.
    #[serde(deserialize_with = "null_default")]
    pub reason: Option<Box<str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_as_the_controller_reads_them() {
        let same = |a: &str, b: &str| assert_eq!(parse_address(a), b.parse().ok(), "{a}");
        same("010.001.000.012", "10.1.0.12");
        same("::ffff:10.1.0.5", "10.1.0.5");
        same("FD00::0:1", "fd00::1");
        for bad in [
            "",
            "10.1.0",
            "10.1.0.1.2",
            "10.1.0.256",
            "node-1",
            "10..0.1",
            "10.1.0.-1",
        ] {
            assert_eq!(parse_address(bad), None, "{bad}");
        }
    }

    #[test]
    fn nulls_and_unknown_fields_are_tolerated() {
        let pod: Pod = serde_json::from_str(
            r#"{"metadata":{"name":"a","labels":null,"managedFields":[{}]},
                "spec":{"nodeName":null,"containers":null,"tolerations":[1]},
                "status":{"phase":"Odd","podIPs":[{"ip":"10.1.0.5"}],"conditions":[
                  {"type":"Ready","status":"True","lastTransitionTime":null,"reason":null}]}}"#,
        )
        .unwrap();
        assert!(pod.is_ready() && !pod.is_terminal());
        assert_eq!(pod.status.phase, Phase::Unknown);
        assert_eq!(pod.addresses().count(), 1);
    }
}
