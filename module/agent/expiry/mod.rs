//! When credentials end: the certificates and the token by which the cluster and the hub are reached.
//! Looks; never trusts anything by it, never renews, never shows what it read.

pub mod ask;
mod der;
mod kubeconfig;
mod look;
mod tls;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

pub use der::earliest_end;
pub use kubeconfig::{Credentials, TokenEnd};
pub use look::{Node, Places, bundle_pem, https, k3s_node, look, shown, trust_bundle};

/// So little left is a failure of `doctor`.
pub const URGENT: SignedDuration = SignedDuration::from_hours(30 * 24);
/// So little left is a warning of `doctor`.
pub const SOON: SignedDuration = SignedDuration::from_hours(90 * 24);

/// What may end. Its name is the check's in `doctor`, the key in the twin and the label in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Credential {
    /// The cluster's CA, as the kubeconfig holds it.
    CaCertificate,
    /// The kubeconfig's own certificate.
    ClientCertificate,
    /// The kubeconfig's token.
    Token,
    /// What the API server shows.
    ServerCertificate,
    /// What the kubelet of this node shows on k3s, which makes all its certificates at one time.
    K3sCertificate,
    /// What edgeHub is trusted by.
    TrustBundle,
    /// What edgeHub shows.
    GatewayCertificate,
}

impl Credential {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::CaCertificate,
        Self::ClientCertificate,
        Self::Token,
        Self::ServerCertificate,
        Self::K3sCertificate,
        Self::TrustBundle,
        Self::GatewayCertificate,
    ];

    /// The name in doctor, twin and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CaCertificate => "ca-certificate",
            Self::ClientCertificate => "client-certificate",
            Self::Token => "token",
            Self::ServerCertificate => "server-certificate",
            Self::K3sCertificate => "k3s-certificate",
            Self::TrustBundle => "trust-bundle",
            Self::GatewayCertificate => "gateway-certificate",
        }
    }

    /// What it is, for a sentence.
    pub fn what(self) -> &'static str {
        match self {
            Self::CaCertificate => "the cluster's CA",
            Self::ClientCertificate => "the kubeconfig's certificate",
            Self::Token => "the kubeconfig's token",
            Self::ServerCertificate => "the API server's certificate",
            Self::K3sCertificate => "the certificate of k3s's kubelet",
            Self::TrustBundle => "the gateway's trust bundle",
            Self::GatewayCertificate => "edgeHub's certificate",
        }
    }

    /// What to do before it ends.
    pub fn fix(self) -> &'static str {
        match self {
            Self::CaCertificate => {
                "renew the cluster's CA (k3s certificate rotate-ca, kubeadm certs), then take a fresh kubeconfig"
            }
            Self::ClientCertificate => {
                "k3s renews it at a restart within 90 days (120 from 1.33 on); kubeadm certs renew all; then take a fresh kubeconfig"
            }
            Self::Token => "use the token of the Secret in config/kubernetes, which does not end",
            Self::ServerCertificate => {
                "k3s renews it at a restart within 90 days (120 from 1.33 on); kubeadm certs renew all"
            }
            Self::K3sCertificate => {
                "restart k3s: it renews what ends within 90 days (120 from 1.33 on); k3s certificate check lists all"
            }
            Self::TrustBundle => "renew the Edge CA, then restart IoT Edge",
            Self::GatewayCertificate => {
                "edgeHub renews it by itself before its end; restart edgeHub if it did not"
            }
        }
    }
}

/// How the soonest end stands to a moment, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// It has ended.
    Ended,
    /// It ends within [`URGENT`].
    Days30,
    /// It ends within [`SOON`].
    Days90,
    /// It ends later, or never.
    Long,
    /// Nothing could be looked at yet.
    Unknown,
}

impl Left {
    /// What is left of something that ends then.
    pub fn until(end: Timestamp, now: Timestamp) -> Self {
        let left = end.duration_since(now);
        if !left.is_positive() {
            Self::Ended
        } else if left <= URGENT {
            Self::Days30
        } else if left <= SOON {
            Self::Days90
        } else {
            Self::Long
        }
    }

    /// The state in the twin.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Days30 => "ends-within-30-days",
            Self::Days90 => "ends-within-90-days",
            Self::Long => "valid",
            Self::Unknown => "unknown",
        }
    }
}

/// What is known of the ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// When each ends; what does not end or could not be looked at is not here.
    pub at: BTreeMap<Credential, Timestamp>,
    /// Whether anything could be looked at.
    pub looked: bool,
}

impl Ends {
    /// The one that ends first.
    pub fn first(&self) -> Option<(Credential, Timestamp)> {
        let all = self.at.iter().map(|(credential, at)| (*credential, *at));
        all.min_by_key(|(_, at)| *at)
    }

    /// Whether everything has been seen that is to be seen at these places.
    pub fn covers(&self, places: &Places) -> bool {
        let hub = places.gateway.is_none() || self.at.contains_key(&Credential::GatewayCertificate);
        self.looked && hub
    }

    /// How much is left until the first end.
    pub fn left(&self, now: Timestamp) -> Left {
        match self.first() {
            Some((_, at)) => Left::until(at, now),
            None if self.looked => Left::Long,
            None => Left::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_and_ninety_days_are_borders_and_the_first_end_counts() {
        let now: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
        let in_days = |days: i64| now + SignedDuration::from_hours(days * 24);
        let left = |days| Left::until(in_days(days), now);
        assert_eq!([left(-1), left(0)], [Left::Ended; 2]);
        assert_eq!([left(1), left(30)], [Left::Days30; 2]);
        assert_eq!([left(31), left(90)], [Left::Days90; 2]);
        assert_eq!(left(91), Left::Long);

        let mut ends = Ends::default();
        assert_eq!(ends.left(now), Left::Unknown);
        ends.looked = true;
        assert_eq!(ends.left(now), Left::Long, "a token without an end");
        ends.at.insert(Credential::CaCertificate, in_days(3000));
        ends.at.insert(Credential::TrustBundle, in_days(40));
        ends.at.insert(Credential::GatewayCertificate, in_days(80));
        assert_eq!(ends.first(), Some((Credential::TrustBundle, in_days(40))));
        assert_eq!(ends.left(now), Left::Days90);
    }

    #[test]
    fn names_are_keys_that_a_twin_takes() {
        for one in Credential::ALL {
            let name = one.as_str();
            assert!(
                name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'),
                "{name}"
            );
            assert!(!one.what().is_empty() && !one.fix().is_empty());
        }
    }
}
