//! What makes slices or the node's rules lag, as far as it can be read: flags of the controller
//! manager, kube-proxy's sync period. Where the control plane is one process (k3s) there is nothing
//! to read, and that is said.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::ListParams;
use kube::{Api, Client};

use super::{Check, Look};
use crate::client::explain;

/// Flags of kube-controller-manager that delay endpoints, and the value from which on they do.
const BATCH: &str = "--endpointslice-updates-batch-period";

pub(super) async fn checks(look: &Look) -> Vec<Check> {
    let Ok(client) = &look.client else {
        return vec![
            Check::skipped("controller-flags", "needs the API"),
            Check::skipped("kube-proxy", "needs the API"),
        ];
    };
    vec![controller(client).await, proxy(client).await]
}

async fn controller(client: &Client) -> Check {
    let id = "controller-flags";
    let pods = Api::<Pod>::namespaced(client.clone(), "kube-system");
    let params = ListParams::default()
        .labels("component=kube-controller-manager")
        .limit(10);
    let pods = match pods.list(&params).await {
        Ok(pods) => pods.items,
        Err(error) => {
            return Check::skipped(id, format!("pods cannot be read: {}", explain(&error)));
        }
    };
    let arguments: Vec<String> = pods.iter().flat_map(arguments).collect();
    if arguments.is_empty() {
        return Check::skipped(
            id,
            "the controller manager is no pod here (k3s and MicroK8s run it in one process)",
        );
    }
    match flag(&arguments, BATCH) {
        Some(value) if !is_zero(value) => Check::warn(
            id,
            format!(
                "{BATCH}={value}: each change of a pod waits that long before its slice is written"
            ),
            "take the flag off, or lengthen grace.refresh by as much",
        ),
        _ => Check::ok(id, "no flag of the controller manager delays slices"),
    }
}

fn arguments(pod: &Pod) -> Vec<String> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers
        .flat_map(|container| {
            container
                .command
                .iter()
                .chain(&container.args)
                .flatten()
                .cloned()
        })
        .collect()
}

fn flag<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    arguments
        .iter()
        .find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
}

fn is_zero(value: &str) -> bool {
    value
        .trim_end_matches(|c: char| c.is_ascii_alphabetic())
        .parse::<f64>()
        == Ok(0.0)
}

async fn proxy(client: &Client) -> Check {
    let id = "kube-proxy";
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "kube-system");
    let map = match maps.get_opt("kube-proxy").await {
        Ok(Some(map)) => map,
        Ok(None) => {
            return Check::skipped(
                id,
                "it has no ConfigMap here (k3s runs it in one process; Cilium replaces it)",
            );
        }
        Err(error) => {
            return Check::skipped(
                id,
                format!("its settings cannot be read: {}", explain(&error)),
            );
        }
    };
    let text = map
        .data
        .unwrap_or_default()
        .remove("config.conf")
        .unwrap_or_default();
    match min_sync_period(&text) {
        Some(seconds) if seconds > 10.0 => Check::warn(
            id,
            format!(
                "minSyncPeriod is {seconds} s: rules of the node follow slices that much later"
            ),
            "lower it, or expect wrong answers for that long after a right slice",
        ),
        Some(seconds) => Check::ok(id, format!("minSyncPeriod is {seconds} s")),
        None => Check::ok(id, "minSyncPeriod is the default"),
    }
}

/// The largest `minSyncPeriod` that is set, in seconds.
fn min_sync_period(config: &str) -> Option<f64> {
    config
        .lines()
        .filter_map(|line| line.trim().strip_prefix("minSyncPeriod:"))
        .filter_map(|value| {
            value
                .trim()
                .trim_matches('"')
                .parse::<jiff::SignedDuration>()
                .ok()
        })
        .map(|duration| duration.as_secs_f64())
        .filter(|seconds| *seconds > 0.0)
        .fold(None, |most, seconds| {
            Some(most.map_or(seconds, |most: f64| most.max(seconds)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_periods_are_read() {
        let arguments: Vec<String> = [
            "kube-controller-manager",
            "--leader-elect=true",
            "--endpointslice-updates-batch-period=500ms",
        ]
        .map(str::to_owned)
        .to_vec();
        assert_eq!(flag(&arguments, BATCH), Some("500ms"));
        assert_eq!(flag(&arguments, "--endpointslice"), None);
        assert!(is_zero("0s") && is_zero("0") && !is_zero("500ms"));
        let config = "iptables:\n  minSyncPeriod: 1s\nipvs:\n  minSyncPeriod: 0s\nnftables:\n  minSyncPeriod: 30s\n";
        assert_eq!(min_sync_period(config), Some(30.0));
        assert_eq!(min_sync_period("mode: nftables\n"), None);
    }
}
