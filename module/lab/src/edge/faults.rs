//! The knobs: everything that an emulated device can be asked to do wrong. Plain data, so that the
//! control API can set it from another process; what it means is done where the fault happens.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Faults in force. `Faults::default()` is a device that works.
///
/// Durations are milliseconds in JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Faults {
    /// CONNACK comes this much later.
    #[serde(with = "millis")]
    pub connack_delay: Option<Duration>,
    /// CONNACK carries this return code and the connection closes.
    pub connack_code: Option<u8>,
    /// CONNACK never comes; the connection stays open.
    pub connack_never: bool,
    /// The three faults above hold for this many connections, then they are lifted.
    pub connack_times: Option<u32>,
    /// A CONNECT that arrives within this after the TLS handshake is lost, as edgeHub 1.6.0 can lose
    /// one that is glued to the client's Finished.
    #[serde(with = "millis")]
    pub lose_connect_within: Option<Duration>,
    /// Each new connection is dropped this long after its CONNACK.
    #[serde(with = "millis")]
    pub drop_after: Option<Duration>,
    /// The next message to a module is cut in half and the connection dropped. Clears itself.
    pub cut_next_publish: bool,
    /// PUBACKs are held back; after 16 edgeHub stops reading. They are sent when this is lifted.
    pub withhold_puback: bool,
    /// edgeHub neither reads nor writes, but keeps its connections: a dead peer.
    pub frozen: bool,
    /// The message store is full: telemetry closes the connection without PUBACK.
    pub disk_full: bool,
    /// Answers to twin reads.
    pub twin_get: TwinFault,
    /// Answers to reported patches. The patch is not taken.
    pub twin_report: TwinFault,
    /// The two faults above hold for this many requests, then they are lifted.
    pub twin_times: Option<u32>,
    /// Differences that edgeHub computes carry `$metadata`.
    pub diff_metadata: bool,
    /// The cloud refuses reported properties that edgeHub has confirmed.
    pub poison_reported: bool,
    /// The cloud cannot be reached from edgeHub.
    pub cloud_offline: bool,
    /// The workload API.
    pub workload: WorkloadFault,
    /// What the trust bundle holds.
    pub bundle: BundleFault,
    /// edgeHub's server certificate.
    pub certificate: CertificateFault,
}

/// What a twin request gets instead of its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TwinFault {
    /// Its answer.
    #[default]
    None,
    /// Nothing at all.
    Silent,
    /// This status with an empty body.
    Status(u16),
    /// 200 and a twin that is empty and has no versions, as edgeHub answers when it knows nothing.
    Empty,
}

/// What is wrong with the workload API.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WorkloadFault {
    /// Nothing.
    #[default]
    None,
    /// The socket file does not exist; the port is closed.
    Absent,
    /// The socket file exists and nobody listens: connections are refused.
    Stale,
    /// Connections are closed without an answer.
    Closed,
    /// Requests are never answered.
    Hang,
    /// Every request gets this status and a JSON error.
    Status(u16),
    /// Sign requests are answered this many milliseconds late.
    SlowSign(u64),
    /// Signatures are no base64.
    BadBase64,
}

/// What the trust bundle holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BundleFault {
    /// The root of the present chain.
    #[default]
    None,
    /// A stranger's root first, then the right one.
    Two,
    /// No certificate.
    Empty,
    /// None is configured: 404.
    Missing,
    /// The root from before the last rotation.
    Outdated,
}

/// What is wrong with edgeHub's server certificate. It is always by the present Edge CA.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CertificateFault {
    /// Nothing.
    #[default]
    None,
    /// It is for another host.
    WrongName,
    /// It begins in the future, as it looks to a device whose clock was not set at boot.
    NotYetValid,
    /// It has ended.
    Expired,
}

impl Faults {
    /// Whether this connection's CONNACK is faulty; counts `connack_times` down.
    pub(crate) fn take_connack(&mut self) -> ConnackFault {
        let fault = ConnackFault {
            delay: self.connack_delay,
            code: self.connack_code,
            never: self.connack_never,
        };
        if fault == ConnackFault::default() || !spend(&mut self.connack_times) {
            return fault;
        }
        self.connack_delay = None;
        self.connack_code = None;
        self.connack_never = false;
        fault
    }

    /// The fault of a twin read (`report`: of a reported patch); counts `twin_times` down.
    pub(crate) fn take_twin(&mut self, report: bool) -> TwinFault {
        let fault = if report {
            self.twin_report
        } else {
            self.twin_get
        };
        if fault != TwinFault::None && spend(&mut self.twin_times) {
            self.twin_get = TwinFault::None;
            self.twin_report = TwinFault::None;
        }
        fault
    }
}

/// Counts one use; true when it was the last.
fn spend(times: &mut Option<u32>) -> bool {
    let Some(left) = times else { return false };
    *left = left.saturating_sub(1);
    let last = *left == 0;
    if last {
        *times = None;
    }
    last
}

/// What happens to one CONNACK.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnackFault {
    pub(crate) delay: Option<Duration>,
    pub(crate) code: Option<u8>,
    pub(crate) never: bool,
}

mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    #[allow(clippy::ref_option, reason = "the shape that serde's `with` asks for")]
    pub(super) fn serialize<S: Serializer>(
        value: &Option<Duration>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => out.serialize_some(&value.as_millis()),
            None => out.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(input)?.map(Duration::from_millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counted_fault_lifts_itself() {
        let mut faults = Faults {
            connack_code: Some(5),
            connack_times: Some(2),
            ..Faults::default()
        };
        assert_eq!(faults.take_connack().code, Some(5));
        assert_eq!(faults.take_connack().code, Some(5));
        assert_eq!(faults.take_connack().code, None);
        faults.connack_never = true;
        assert!(faults.take_connack().never && faults.take_connack().never);
    }

    #[test]
    fn faults_go_through_json_and_unknown_ones_are_refused() {
        let text = r#"{"connackDelay": 1500, "twinGet": {"status": 429}, "workload": "hang"}"#;
        let faults: Faults = serde_json::from_str(text).unwrap();
        assert_eq!(faults.connack_delay, Some(Duration::from_millis(1500)));
        assert_eq!(faults.twin_get, TwinFault::Status(429));
        let back: Faults = serde_json::from_value(serde_json::to_value(&faults).unwrap()).unwrap();
        assert_eq!(back, faults);
        assert!(serde_json::from_str::<Faults>(r#"{"conackDelay": 1}"#).is_err());
    }
}
