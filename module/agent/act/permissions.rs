//! Asks the API server what this account may do, so that a missing right is known by name at start
//! and not at the first heal.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::OWN_NAME;
use super::call::{Caller, Payload, Target};
use crate::client::Supply;

/// What would not work without a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// Nothing can be judged.
    Judge,
    /// Judging knows less.
    JudgeMore,
    /// Nothing can be refreshed.
    Refresh,
    /// Nothing can be deleted.
    Delete,
    /// Several modules cannot agree.
    Lease,
    /// Heals are not told on the Service.
    Events,
    /// `doctor` checks less.
    Doctor,
}

/// One right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// What may be done, such as `list`.
    pub verb: &'static str,
    /// API group; empty for the core group.
    pub group: &'static str,
    /// To what, such as `pods`.
    pub resource: &'static str,
    /// Where; everywhere without one.
    pub namespace: Option<&'static str>,
    /// Which one; any without one.
    pub name: Option<&'static str>,
    /// What for.
    pub need: Need,
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(name) = self.name {
            write!(f, " {name}")?;
        }
        match self.namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => Ok(()),
        }
    }
}

const SLICES: &str = "discovery.k8s.io";
const LEASES: &str = "coordination.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

const fn right(
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    need: Need,
) -> Right {
    Right {
        verb,
        group,
        resource,
        namespace: None,
        name: None,
        need,
    }
}

impl Right {
    const fn within(mut self, namespace: &'static str) -> Self {
        self.namespace = Some(namespace);
        self
    }

    const fn of(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }
}

/// Everything that slice-healer does, as `config/kubernetes` grants it.
pub const RIGHTS: [Right; 36] = {
    use Need::{Delete, Doctor, Events, Judge, JudgeMore, Lease, Refresh};
    [
        right("get", "", "services", Judge),
        right("list", "", "services", Judge),
        right("watch", "", "services", Judge),
        right("get", "", "pods", Judge),
        right("list", "", "pods", Judge),
        right("watch", "", "pods", Judge),
        right("get", "", "nodes", Judge),
        right("list", "", "nodes", Judge),
        right("watch", "", "nodes", Judge),
        right("get", SLICES, "endpointslices", Judge),
        right("list", SLICES, "endpointslices", Judge),
        right("watch", SLICES, "endpointslices", Judge),
        right("get", "", "endpoints", JudgeMore),
        right("list", "", "endpoints", JudgeMore),
        right("watch", "", "endpoints", JudgeMore),
        right("get", "", "namespaces", JudgeMore),
        right("list", "", "namespaces", JudgeMore),
        right("watch", "", "namespaces", JudgeMore),
        right("patch", "", "services", Refresh),
        right("delete", SLICES, "endpointslices", Delete),
        right("patch", SLICES, "endpointslices", Delete).within(OWN_NAME),
        right("get", LEASES, "leases", Lease)
            .within(OWN_NAME)
            .of(OWN_NAME),
        right("update", LEASES, "leases", Lease)
            .within(OWN_NAME)
            .of(OWN_NAME),
        right("create", LEASES, "leases", Lease).within(OWN_NAME),
        right("create", "events.k8s.io", "events", Events),
        right("get", LEASES, "leases", Doctor)
            .within("kube-system")
            .of("kube-controller-manager"),
        right("list", "events.k8s.io", "events", Doctor),
        right("list", "", "events", Doctor),
        right("get", "apps", "deployments", Doctor),
        right("list", "apps", "deployments", Doctor),
        right("get", "apps", "replicasets", Doctor),
        right("list", "apps", "replicasets", Doctor),
        right("get", "policy", "poddisruptionbudgets", Doctor),
        right("list", "policy", "poddisruptionbudgets", Doctor),
        right("get", ADMISSION, "validatingadmissionpolicies", Doctor).of(OWN_NAME),
        right(
            "get",
            ADMISSION,
            "validatingadmissionpolicybindings",
            Doctor,
        )
        .of(OWN_NAME),
    ]
};

/// The rights that this account lacks, in the order of [`RIGHTS`].
///
/// # Errors
/// When the API server cannot be asked, with the reason.
pub async fn missing(supply: &Supply, deadline: Duration) -> Result<Vec<Right>, String> {
    let client = supply.current().map_err(|reason| reason.to_string())?;
    let caller = Caller::new(client, Instant::now() + deadline);
    // Boxed: otherwise nobody can tell that the whole is Send.
    let asked: Vec<BoxFuture<'_, Result<(Right, bool), String>>> = RIGHTS
        .iter()
        .map(|right| {
            let caller = caller.clone();
            let asked = async move { Ok((*right, allowed(&caller, right).await?)) };
            asked.boxed()
        })
        .collect();
    let answers: Vec<(Right, bool)> = stream::iter(asked).buffered(4).try_collect().await?;
    Ok(answers
        .into_iter()
        .filter(|(_, allowed)| !allowed)
        .map(|(right, _)| right)
        .collect())
}

async fn allowed(caller: &Caller, right: &Right) -> Result<bool, String> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "verb": right.verb,
            "group": right.group,
            "resource": right.resource,
            "namespace": right.namespace.unwrap_or_default(),
            "name": right.name.unwrap_or_default(),
        }},
    });
    let target = Target::new("create", "selfsubjectaccessreviews");
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = caller
        .send(&target, &Method::POST, path, Payload::Json(&review))
        .await;
    let answer = answer.map_err(|failure| failure.to_string())?;
    let allowed = answer.body.get("status").and_then(|s| s.get("allowed"));
    allowed
        .and_then(Value::as_bool)
        .ok_or_else(|| format!("{target}: the answer says nothing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_can_be_asked_from_any_task() {
        fn sendable<T: Send>(_: impl FnOnce(&Supply) -> T) {}
        sendable(|supply| {
            let supply = supply.clone();
            async move { missing(&supply, Duration::from_secs(1)).await }
        });
    }

    #[test]
    fn a_right_is_named_as_people_grant_it() {
        let own = right("update", LEASES, "leases", Need::Lease)
            .within("edge")
            .of("healer");
        assert_eq!(
            own.to_string(),
            "update leases.coordination.k8s.io healer in edge"
        );
        assert_eq!(
            right("list", "", "pods", Need::Judge).to_string(),
            "list pods"
        );
    }
}
