//! What in the user's own objects makes staleness likely or worse: rollouts that can leave a Service
//! without endpoints, no PodDisruptionBudget, selectors that name a version, no readiness probe.
//! Judges objects that were read; asks for at most 500 of a kind.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::{Check, Look};
use crate::client::explain;

/// Objects of a kind that are looked at.
const MOST: u32 = 500;

/// Names that are told; the rest is counted.
const SHOWN: usize = 5;

/// Labels that change with each release.
const VERSION_LABELS: [&str; 4] = [
    "version",
    "app.kubernetes.io/version",
    "release",
    "pod-template-hash",
];

const IDS: [&str; 4] = [
    "rollout-strategy",
    "disruption-budgets",
    "version-selectors",
    "readiness-probes",
];

pub(super) async fn checks(look: &Look) -> Vec<Check> {
    let Ok(client) = &look.client else {
        return IDS.map(|id| Check::skipped(id, "needs the API")).to_vec();
    };
    let (services, deployments) = match (
        all::<Service>(client).await,
        all::<Deployment>(client).await,
    ) {
        (Ok(services), Ok(deployments)) => (services, deployments),
        (Err(error), _) | (_, Err(error)) => {
            let reason = format!("cannot be read: {}", explain(&error));
            return IDS.map(|id| Check::skipped(id, reason.clone())).to_vec();
        }
    };
    let budgets = all::<PodDisruptionBudget>(client).await;
    let excluded = look.settings.scope.exclude_namespaces.as_slice();
    let services: Vec<Service> = services
        .into_iter()
        .filter(|service| !excluded.contains(&namespace(&service.metadata)))
        .collect();
    judge(&services, &deployments, budgets.as_deref().map_err(explain))
}

async fn all<K>(client: &Client) -> Result<Vec<K>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    Ok(Api::<K>::all(client.clone())
        .list(&ListParams::default().limit(MOST))
        .await?
        .items)
}

fn judge(
    services: &[Service],
    deployments: &[Deployment],
    budgets: Result<&[PodDisruptionBudget], String>,
) -> Vec<Check> {
    let behind: Vec<&Deployment> = deployments
        .iter()
        .filter(|deployment| services.iter().any(|service| selects(service, deployment)))
        .collect();
    let names = |wrong: &dyn Fn(&Deployment) -> bool| -> Vec<String> {
        behind
            .iter()
            .filter(|deployment| wrong(deployment))
            .map(|deployment| name(&deployment.metadata))
            .collect()
    };
    let mut checks = vec![told(
        IDS[0],
        names(&can_be_empty),
        "a redeployment can take every endpoint away at once",
        "strategy RollingUpdate with maxUnavailable below the replicas, and two replicas or maxSurge",
    )];
    checks.push(match budgets {
        Ok(budgets) => told(
            IDS[1],
            names(&|deployment| {
                replicas(deployment) > 1 && !budgets.iter().any(|budget| guards(budget, deployment))
            }),
            "no PodDisruptionBudget: a drained node may take all endpoints at once",
            "a PodDisruptionBudget with minAvailable 1",
        ),
        Err(reason) => Check::skipped(IDS[1], format!("cannot be read: {reason}")),
    });
    let versioned = services
        .iter()
        .filter(|service| {
            let selector = service
                .spec
                .as_ref()
                .and_then(|spec| spec.selector.as_ref());
            selector.is_some_and(|selector| {
                VERSION_LABELS
                    .iter()
                    .any(|label| selector.contains_key(*label))
            })
        })
        .map(|service| name(&service.metadata))
        .collect();
    checks.push(told(
        IDS[2],
        versioned,
        "the selector names a version: after a redeployment it selects nothing until it is changed as well",
        "select by a label that stays, such as app",
    ));
    checks.push(told(
        IDS[3],
        names(&|deployment| !has_readiness(deployment)),
        "no readiness probe: an endpoint is ready before the model is loaded",
        "a readinessProbe that answers once the model is loaded",
    ));
    checks
}

fn told(id: &'static str, names: Vec<String>, message: &str, fix: &str) -> Check {
    if names.is_empty() {
        return Check::ok(id, "nothing to see");
    }
    let mut shown = names
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > SHOWN {
        shown = format!("{shown} and {} more", names.len() - SHOWN);
    }
    Check::warn(id, format!("{shown}: {message}"), fix)
}

fn namespace(meta: &ObjectMeta) -> String {
    meta.namespace.clone().unwrap_or_default()
}

fn name(meta: &ObjectMeta) -> String {
    format!(
        "{}/{}",
        namespace(meta),
        meta.name.as_deref().unwrap_or_default()
    )
}

fn template_labels(deployment: &Deployment) -> Option<&BTreeMap<String, String>> {
    deployment.spec.template.metadata.as_ref()?.labels.as_ref()
}

fn carries(labels: Option<&BTreeMap<String, String>>, wanted: &BTreeMap<String, String>) -> bool {
    labels.is_some_and(|labels| {
        wanted
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
    })
}

fn selects(service: &Service, deployment: &Deployment) -> bool {
    let selector = service
        .spec
        .as_ref()
        .and_then(|spec| spec.selector.as_ref());
    selector.is_some_and(|selector| {
        !selector.is_empty()
            && service.metadata.namespace == deployment.metadata.namespace
            && carries(template_labels(deployment), selector)
    })
}

fn guards(budget: &PodDisruptionBudget, deployment: &Deployment) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    budget.metadata.namespace == deployment.metadata.namespace
        && selector.is_some_and(|selector| {
            // Expressions are taken as fitting: a warning that is wrong costs more than one less.
            selector
                .match_expressions
                .as_ref()
                .is_some_and(|all| !all.is_empty())
                || selector
                    .match_labels
                    .as_ref()
                    .is_none_or(|labels| carries(template_labels(deployment), labels))
        })
}

fn replicas(deployment: &Deployment) -> i32 {
    deployment.spec.replicas.unwrap_or(1)
}

/// Whether a rollout may bring the available pods to none (defaults: 25 % down, 25 % up, each
/// rounded to the safe side).
fn can_be_empty(deployment: &Deployment) -> bool {
    let replicas = replicas(deployment);
    let strategy = deployment.spec.strategy.as_ref();
    if replicas < 1 {
        return false;
    }
    if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate") {
        return true;
    }
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let unavailable = match rolling.and_then(|rolling| rolling.max_unavailable.as_ref()) {
        Some(IntOrString::Int(count)) => *count,
        Some(IntOrString::String(text)) => {
            let percent: i32 = text.trim_end_matches('%').parse().unwrap_or(25);
            replicas.saturating_mul(percent) / 100
        }
        None => replicas / 4,
    };
    unavailable >= replicas
}

fn has_readiness(deployment: &Deployment) -> bool {
    let spec = deployment.spec.template.spec.as_ref();
    spec.is_some_and(|spec| {
        spec.containers
            .iter()
            .any(|container| container.readiness_probe.is_some())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Status;
    use super::*;

    fn deployment(name: &str, spec: Value) -> Deployment {
        let mut whole = json!({
            "metadata": {"name": name, "namespace": "line1"},
            "spec": {
                "replicas": 3,
                "selector": {},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "c", "readinessProbe": {"httpGet": {"port": 80}}}]},
                },
            },
        });
        for (key, value) in spec.as_object().unwrap() {
            whole["spec"][key] = value.clone();
        }
        serde_json::from_value(whole).unwrap()
    }

    fn service(selector: Value) -> Service {
        serde_json::from_value(json!({
            "metadata": {"name": "model", "namespace": "line1"},
            "spec": {"selector": selector},
        }))
        .unwrap()
    }

    #[test]
    fn a_rollout_that_can_empty_a_service_is_seen() {
        for (spec, empty) in [
            (json!({}), false),
            (json!({"strategy": {"type": "Recreate"}}), true),
            (
                json!({"strategy": {"rollingUpdate": {"maxUnavailable": "100%"}}}),
                true,
            ),
            (
                json!({"strategy": {"rollingUpdate": {"maxUnavailable": 2}}}),
                false,
            ),
            (
                json!({"replicas": 1, "strategy": {"rollingUpdate": {"maxUnavailable": 1}}}),
                true,
            ),
            (json!({"replicas": 1}), false),
            (
                json!({"replicas": 0, "strategy": {"type": "Recreate"}}),
                false,
            ),
        ] {
            assert_eq!(
                can_be_empty(&deployment("m", spec.clone())),
                empty,
                "{spec}"
            );
        }
    }

    #[test]
    fn only_what_is_behind_a_service_counts() {
        let bad = deployment(
            "model",
            json!({"strategy": {"type": "Recreate"}, "template": {"metadata": {"labels": {"app": "model"}}, "spec": {"containers": [{"name": "c"}]}}}),
        );
        let status = |services: &[Service], budgets: &[PodDisruptionBudget]| -> Vec<Status> {
            judge(services, std::slice::from_ref(&bad), Ok(budgets))
                .iter()
                .map(|check| check.status)
                .collect()
        };
        let (ok, warn) = (Status::Ok, Status::Warn);
        assert_eq!(status(&[], &[]), [ok, ok, ok, ok]);
        assert_eq!(
            status(&[service(json!({"app": "other"}))], &[]),
            [ok, ok, ok, ok]
        );
        assert_eq!(
            status(&[service(json!({"app": "model"}))], &[]),
            [warn, warn, ok, warn]
        );
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"name": "b", "namespace": "line1"},
            "spec": {"selector": {"matchLabels": {"app": "model"}}},
        }))
        .unwrap();
        assert_eq!(
            status(&[service(json!({"app": "model"}))], &[budget]),
            [warn, ok, ok, warn]
        );
        assert_eq!(
            status(&[service(json!({"app": "model", "version": "v2"}))], &[])[2],
            warn
        );
    }
}
