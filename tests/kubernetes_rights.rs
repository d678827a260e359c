//! What the account of `config/kubernetes` may do on the real API server: everything that the product
//! needs, and nothing else.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use http::{Method, Request};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, PostParams};
use kube::config::Kubeconfig;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use slice_core::event::{Act, Action, ActionId, Outcome};
use slice_core::model::ServiceKey;
use slice_healer::act::{Actor, Options, permissions};
use slice_healer::client::{Access, Supply, connect};

use crate::support::controlplane::ControlPlane;
use crate::support::module::Setup;
use crate::support::product::{self, NAME, account};
use crate::support::stale::{self, SERVICE};
use crate::support::{objects, wait::Look, wait::eventually};

const DEADLINE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn no_right_is_missing() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let supply = Supply::fixed(account(plane).await?);
    let missing = permissions::missing(&supply, DEADLINE)
        .await
        .map_err(anyhow::Error::msg)?;
    ensure!(missing.is_empty(), "missing: {missing:?}");
    Ok(())
}

/// The kubeconfig that `config/kubernetes/make-kubeconfig.sh` prints; only kubectl is not the real one.
#[tokio::test]
async fn the_kubeconfig_of_the_script_works() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let made = Kubeconfig::read_from(product::install(plane).await?)?;
    let made = serde_json::to_value(made)?;
    let token = made["users"][0]["user"]["token"].as_str();
    let ca = serde_json::to_value(ByteString(plane.ca_pem().as_bytes().to_vec()))?;
    let token = serde_json::to_value(ByteString(token.context("no token")?.into()))?;
    let printed = crate::kubeconfig::run(
        token.as_str().context("not base64")?,
        ca.as_str().context("not base64")?,
        &[&plane.url(), "localhost"],
    )?;
    ensure!(printed.status.success(), "{printed:?}");
    let text = printed.stdout;
    let folder = tempfile::tempdir()?;
    let kubeconfig = Some(folder.path().join("slice-healer.kubeconfig"));
    std::fs::write(folder.path().join("slice-healer.kubeconfig"), text)?;
    let client = connect(&Access {
        kubeconfig,
        ..Access::default()
    })
    .await?;
    let missing = permissions::missing(&Supply::fixed(client), DEADLINE).await;
    ensure!(missing.as_ref().is_ok_and(Vec::is_empty), "{missing:?}");
    Ok(())
}

#[tokio::test]
async fn an_account_without_rights_is_told_which_by_name() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let space = plane.namespace("rights-none").await?;
    let kubeconfig = Some(plane.service_account_kubeconfig(&space, "nobody").await?);
    let client = connect(&Access {
        kubeconfig,
        ..Access::default()
    })
    .await?;
    let supply = Supply::fixed(client);
    let missing = permissions::missing(&supply, DEADLINE)
        .await
        .map_err(anyhow::Error::msg)?;
    ensure!(missing == permissions::RIGHTS, "{missing:?}");

    let actor = Actor::new(supply, Options::new("nobody"));
    let service = ServiceKey::new(space.as_str(), "web");
    let refused = actor
        .run(Action {
            id: ActionId(1),
            deadline: DEADLINE,
            act: Act::Read { service },
        })
        .await;
    let Outcome::Forbidden(text) = refused else {
        bail!("{refused:?}")
    };
    // Several are asked at once; the first refusal is told, whichever it is.
    ensure!(text.contains(&space) && text.contains("403"), "{text}");
    ensure!(
        text.starts_with("get ") || text.starts_with("list "),
        "{text}"
    );
    Ok(())
}

/// One write that the account must not get through.
struct Attempt {
    method: Method,
    path: String,
    body: Value,
}

fn patch(path: impl Into<String>, body: Value) -> Attempt {
    Attempt {
        method: Method::PATCH,
        path: path.into(),
        body,
    }
}

fn delete(path: impl Into<String>) -> Attempt {
    Attempt {
        method: Method::DELETE,
        path: path.into(),
        body: Value::Null,
    }
}

async fn refusal(client: &Client, attempt: &Attempt) -> Result<String> {
    let mut request = Request::builder()
        .method(&attempt.method)
        .uri(&attempt.path);
    let kind = match attempt.method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    request = request.header(http::header::CONTENT_TYPE, kind);
    let body = if attempt.body.is_null() {
        Vec::new()
    } else {
        attempt.body.to_string().into()
    };
    match client.request_text(request.body(body)?).await {
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(status.message.clone()),
        other => bail!(
            "{} {} {}: {other:?}",
            attempt.method,
            attempt.path,
            attempt.body
        ),
    }
}

/// The name of a slice that the mirroring controller has made.
async fn mirrored_slice(client: &Client, space: &str) -> Result<String> {
    let services: Api<Service> = Api::namespaced(client.clone(), space);
    let service = json!({"metadata": {"name": "mirrored"}, "spec": {"ports": [{"port": 80}]}});
    services
        .create(&PostParams::default(), &serde_json::from_value(service)?)
        .await?;
    let endpoints: Api<Endpoints> = Api::namespaced(client.clone(), space);
    let object = json!({
        "metadata": {"name": "mirrored"},
        "subsets": [{"addresses": [{"ip": "10.9.9.8"}], "ports": [{"port": 80}]}],
    });
    endpoints
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?;
    let look = async || {
        let found = objects::slices(client, space, "mirrored").await?;
        Ok(match found.first() {
            Some(slice) => Look::Done(slice.name_any()),
            None => Look::NotYet("none".into()),
        })
    };
    Ok(eventually("the slice is mirrored", DEADLINE, look).await?.0)
}

#[tokio::test]
async fn the_policy_refuses_what_rbac_cannot_tell_apart() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let state = stale::healthy(plane, "rights-policy").await?;
    let client = account(plane).await?;
    let space = &state.namespace;
    let slices =
        |space: &str| format!("/apis/discovery.k8s.io/v1/namespaces/{space}/endpointslices");
    let admin: Api<EndpointSlice> = Api::namespaced(state.client.clone(), space);
    let own_made = json!({
        "metadata": {"name": "own-made", "labels": {"kubernetes.io/service-name": "foreign"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.9.9.9"]}],
    });
    admin
        .create(&PostParams::default(), &serde_json::from_value(own_made)?)
        .await?;
    let mirrored = mirrored_slice(&state.client, space).await?;
    let own: Api<EndpointSlice> = Api::namespaced(state.client.clone(), NAME);
    let (canary, _) = eventually("the canary has a slice", DEADLINE, async || {
        let found = own.list(&Default::default()).await?.items;
        Ok(match found.first() {
            Some(slice) => Look::Done(slice.name_any()),
            None => Look::NotYet("none".into()),
        })
    })
    .await?;
    let service = format!("/api/v1/namespaces/{space}/services/{SERVICE}");
    let canary = format!("{}/{canary}", slices(NAME));
    let refresh = json!({"slice-healer.io/refresh": "x"});
    let attempts = [
        patch(&service, json!({"metadata": {"labels": {"a": "b"}}})),
        patch(&service, json!({"metadata": {"labels": {"app": null}}})),
        patch(&service, json!({"metadata": {"annotations": {"a": "b"}}})),
        patch(
            &service,
            json!({"metadata": {"annotations": refresh}, "spec": {"selector": {"app": "x"}}}),
        ),
        patch(
            &service,
            json!({"metadata": {"annotations": {"slice-healer.io/refresh": "x".repeat(300)}}}),
        ),
        patch(
            &service,
            json!({"metadata": {"finalizers": ["slice-healer.io/x"]}}),
        ),
        patch(
            &service,
            json!({"spec": {"publishNotReadyAddresses": true}}),
        ),
        delete(format!("{}/own-made", slices(space))),
        delete(format!("{}/{mirrored}", slices(space))),
        delete(format!("{}/kubernetes", slices("default"))),
        patch(&canary, json!({"endpoints": [{"addresses": ["10.9.9.9"]}]})),
        patch(&canary, json!({"ports": [{"port": 80}]})),
        patch(&canary, json!({"metadata": {"labels": {"a": "b"}}})),
        patch(
            &canary,
            json!({"metadata": {"labels": {"endpointslice.kubernetes.io/managed-by": "me"}}}),
        ),
        patch(&canary, json!({"metadata": {"annotations": {"a": "b"}}})),
        patch(&canary, json!({"metadata": {"ownerReferences": null}})),
        Attempt {
            method: Method::POST,
            path: format!("/apis/coordination.k8s.io/v1/namespaces/{NAME}/leases"),
            body: json!({"metadata": {"name": "another"}}),
        },
    ];
    for attempt in &attempts {
        let told = refusal(&client, attempt).await?;
        ensure!(
            told.contains("slice-healer may only") || told.contains("longer than"),
            "{told}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn rbac_refuses_everything_else() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let state = stale::healthy(plane, "rights-rbac").await?;
    let client = account(plane).await?;
    let space = &state.namespace;
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{space}/endpointslices");
    let found = objects::slices(&state.client, space, SERVICE).await?;
    let slice = format!("{slices}/{}", found[0].name_any());
    let core = format!("/api/v1/namespaces/{space}");
    let post = |path: String, body: Value| Attempt {
        method: Method::POST,
        path,
        body,
    };
    let get = |path: &str| Attempt {
        method: Method::GET,
        path: path.into(),
        body: Value::Null,
    };
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let attempts = [
        patch(
            &slice,
            json!({"metadata": {"labels": {"slice-healer.io/canary": "x"}}}),
        ),
        patch(&slice, json!({"endpoints": []})),
        delete(&slices),
        post(
            slices.clone(),
            json!({"metadata": {"name": "x"}, "addressType": "IPv4", "endpoints": []}),
        ),
        delete(format!("{core}/services/{SERVICE}")),
        patch(
            format!("{core}/services/{SERVICE}/status"),
            json!({"status": {"conditions": []}}),
        ),
        patch(format!("{core}/pods/model-2-0-0"), label.clone()),
        delete(format!("{core}/pods/model-2-0-0")),
        patch(format!("/api/v1/nodes/{}", state.node), label.clone()),
        patch(format!("/api/v1/namespaces/{space}"), label.clone()),
        patch(format!("{core}/endpoints/{SERVICE}"), label),
        get(&format!("{core}/secrets")),
        get(&format!(
            "/api/v1/namespaces/{NAME}/secrets/slice-healer-token"
        )),
        get(&format!("{core}/configmaps")),
        get(&format!("{core}/pods/model-2-0-0/log")),
        get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"),
        post(
            format!("/apis/coordination.k8s.io/v1/namespaces/{space}/leases"),
            json!({"metadata": {"name": "slice-healer"}}),
        ),
        delete(
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/slice-healer",
        ),
        post(
            format!("/api/v1/namespaces/{NAME}/serviceaccounts/{NAME}/token"),
            json!({"spec": {}}),
        ),
    ];
    for attempt in &attempts {
        let told = refusal(&client, attempt).await?;
        ensure!(told.contains("cannot"), "refused by RBAC: {told}");
    }
    Ok(())
}

/// An account that may do all but delete: the module says so by name when it starts, and heals by
/// refreshes all the same.
#[tokio::test]
async fn a_missing_verb_is_named_at_the_start_and_the_rest_works_on() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    product::install(plane).await?;
    let mut state = stale::healthy(plane, "rights-lesser").await?;
    let space = state.namespace.clone();
    let kubeconfig = plane.service_account_kubeconfig(&space, "lesser").await?;
    let name = format!("lesser-{space}");
    let roles: Api<ClusterRole> = Api::all(state.client.clone());
    let bindings: Api<ClusterRoleBinding> = Api::all(state.client.clone());
    let role = json!({"metadata": {"name": name}, "rules": [
        {"apiGroups": [""], "resources": ["services"], "verbs": ["patch"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
    ]});
    let params = PostParams::default();
    roles
        .create(&params, &serde_json::from_value(role)?)
        .await?;
    for (binding, role) in [
        (name.clone(), name.as_str()),
        (format!("{name}-read"), "slice-healer-read"),
    ] {
        let binding = json!({"metadata": {"name": binding},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "lesser", "namespace": space}]});
        bindings
            .create(&params, &serde_json::from_value(binding)?)
            .await?;
    }
    let mut module = Setup::new(&kubeconfig)
        .set("SCOPE__NAMESPACES", &space)
        .set("SCOPE__LOCALITY", "cluster")
        .start()?;
    let named = "delete endpointslices.discovery.k8s.io";
    let line = module
        .await_line(&["rights are missing", named], DEADLINE)
        .await?;
    ensure!(
        !line.contains("patch services"),
        "what is granted is not missing: {line}"
    );
    plane.await_manager().await?;
    state.finish_pod(0).await?;
    // Its Lease may not be taken either; without it the heal goes on.
    module
        .await_line(
            &["kind=heal", "outcome=healed", "refresh-service"],
            DEADLINE * 3,
        )
        .await?;
    state.await_right(DEADLINE).await?;
    Ok(())
}
