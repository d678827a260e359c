//! The way to the cluster: kubeconfig, API, version, rights, admission policy.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use slice_core::heal::policy::Mode;
use slice_core::model::ServerVersion;

use super::certificates::Credentials;
use super::{Check, Look};
use crate::client::explain;

/// The namespace, Lease and canary of our own (contract: cluster objects).
const OWN: &str = "slice-healer";

/// A verb that is needed: group, resource, verb, namespace (empty: all).
type Right = (&'static str, &'static str, &'static str, &'static str);

const READS: [(&str, &str); 6] = [
    ("", "services"),
    ("", "pods"),
    ("", "nodes"),
    ("", "endpoints"),
    ("", "namespaces"),
    ("discovery.k8s.io", "endpointslices"),
];

const WRITES: [Right; 7] = [
    ("", "services", "patch", ""),
    ("discovery.k8s.io", "endpointslices", "delete", ""),
    ("discovery.k8s.io", "endpointslices", "patch", OWN),
    ("coordination.k8s.io", "leases", "get", OWN),
    ("coordination.k8s.io", "leases", "create", OWN),
    ("coordination.k8s.io", "leases", "update", OWN),
    ("events.k8s.io", "events", "create", ""),
];

const FIX_RIGHTS: &str = "kubectl apply -k config/kubernetes grants what is needed, and a kubeconfig of that account uses it";

pub(super) async fn checks(look: &Look) -> Vec<Check> {
    let mut checks = vec![kubeconfig(look)];
    let client = match &look.client {
        Ok(client) => client,
        Err(_) => {
            for id in ["api", "api-version", "rights", "admission-policy"] {
                checks.push(Check::skipped(id, "needs a kubeconfig"));
            }
            return checks;
        }
    };
    let version = match client.apiserver_version().await {
        Ok(version) => version,
        Err(error) => {
            checks.push(Check::fail(
                "api",
                explain(&error),
                "the module goes on and heals once the API answers",
            ));
            for id in ["api-version", "rights", "admission-policy"] {
                checks.push(Check::skipped(id, "needs the API"));
            }
            return checks;
        }
    };
    checks.push(Check::ok("api", "the API server answers"));
    let known = ServerVersion::parse(&version.git_version);
    checks.push(match &known {
        Some(seen) if !seen.is_at_least(1, 21) => Check::fail(
            "api-version",
            format!("{} has no discovery.k8s.io/v1", version.git_version),
            "Kubernetes 1.21 or newer is needed",
        ),
        Some(_) => Check::ok("api-version", version.git_version.clone()),
        None => Check::warn(
            "api-version",
            format!("`{}` is no version", version.git_version),
            "newer rules are assumed",
        ),
    });
    checks.push(rights(client, look.settings.mode).await);
    checks.push(admission_policy(client, known.as_ref()).await);
    checks
}

fn kubeconfig(look: &Look) -> Check {
    let id = "kubeconfig";
    if let Err(reason) = &look.client {
        return Check::fail(
            id,
            reason.clone(),
            "config/kubernetes makes the account; set cluster.kubeconfig to its file",
        );
    }
    let credentials = match Credentials::read(&look.access) {
        Ok(Some(credentials)) => credentials,
        Ok(None) => return Check::ok(id, "the account of the pod is used"),
        Err(reason) => {
            return Check::fail(id, reason, "set cluster.kubeconfig and cluster.context");
        }
    };
    let server = look.access.server.clone().unwrap_or(credentials.server);
    if look.in_container && is_loopback(&server) {
        return Check::fail(
            id,
            format!("its server is {server}, which inside this container is the container itself"),
            "set cluster.server to an address of the host, and cluster.tls_server_name to a name in the certificate such as kubernetes",
        );
    }
    Check::ok(id, format!("its server is {server}"))
}

pub(super) fn is_loopback(server: &str) -> bool {
    let host = server.split("://").last().unwrap_or(server);
    host.starts_with("127.") || host.starts_with("localhost") || host.starts_with("[::1]")
}

async fn rights(client: &Client, mode: Mode) -> Check {
    let id = "rights";
    let reads = READS.iter().flat_map(|(group, resource)| {
        ["get", "list", "watch"].map(|verb| (*group, *resource, verb, ""))
    });
    let (mut no_read, mut no_write) = (Vec::new(), Vec::new());
    for (right, missing) in reads
        .map(|right| (right, true))
        .chain(WRITES.map(|right| (right, false)))
    {
        match allowed(client, right).await {
            Ok(true) => {}
            Ok(false) if missing => no_read.push(shown(right)),
            Ok(false) => no_write.push(shown(right)),
            Err(error) => {
                return Check::warn(
                    id,
                    format!("cannot be asked: {}", explain(&error)),
                    FIX_RIGHTS,
                );
            }
        }
    }
    if !no_read.is_empty() {
        return Check::fail(id, format!("may not {}", no_read.join(", ")), FIX_RIGHTS);
    }
    if !no_write.is_empty() {
        let message = format!("may not {}", no_write.join(", "));
        return match mode {
            Mode::Heal => Check::fail(id, message, FIX_RIGHTS),
            Mode::Observe => Check::warn(
                id,
                format!("{message}; mode observe does not need it"),
                FIX_RIGHTS,
            ),
        };
    }
    Check::ok(id, "every verb that is needed is granted")
}

fn shown((_, resource, verb, namespace): Right) -> String {
    if namespace.is_empty() {
        format!("{verb} {resource}")
    } else {
        format!("{verb} {resource} in {namespace}")
    }
}

async fn allowed(
    client: &Client,
    (group, resource, verb, namespace): Right,
) -> Result<bool, kube::Error> {
    let text = |value: &str| (!value.is_empty()).then(|| value.to_owned());
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                verb: Some(verb.to_owned()),
                namespace: text(namespace),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let answer = Api::<SelfSubjectAccessReview>::all(client.clone())
        .create(&PostParams::default(), &review)
        .await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

async fn admission_policy(client: &Client, version: Option<&ServerVersion>) -> Check {
    let id = "admission-policy";
    if version.is_some_and(|version| !version.is_at_least(1, 30)) {
        return Check::warn(
            id,
            "ValidatingAdmissionPolicy v1 came with Kubernetes 1.30",
            "the module's own gate holds; guard the account's token, which can do more than the module does",
        );
    }
    match Api::<ValidatingAdmissionPolicy>::all(client.clone())
        .get_opt(OWN)
        .await
    {
        Ok(Some(_)) => Check::ok(id, "the API server itself limits what the module may write"),
        Ok(None) => Check::warn(
            id,
            format!("there is no policy {OWN}"),
            "kubectl apply -k config/kubernetes",
        ),
        Err(error) => Check::skipped(id, format!("cannot be read: {}", explain(&error))),
    }
}
