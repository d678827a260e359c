//! What `config/kubernetes` puts into a cluster, applied as kubectl would.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use slice_healer::client::{Access, connect};

use super::controlplane::ControlPlane;
use super::wait::{Look, eventually};

/// Namespace and account of the product.
pub const NAME: &str = "slice-healer";
/// How long the API server may take to notice a policy.
const NOTICED: Duration = Duration::from_secs(60);

/// The objects of `config/kubernetes`, in the order of its kustomization.
///
/// # Errors
/// When a file is missing or not valid.
pub fn manifests() -> Result<Vec<DynamicObject>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config/kubernetes");
    let list = std::fs::read_to_string(folder.join("kustomization.yaml"))?;
    let list: serde_json::Value = serde_saphyr::from_str(&list)?;
    let files = list["resources"].as_array().context("no resources")?;
    let mut objects = Vec::new();
    for file in files.iter().filter_map(|f| f.as_str()) {
        let text = std::fs::read_to_string(folder.join(file)).context(file.to_owned())?;
        let all: Vec<DynamicObject> =
            serde_saphyr::from_multiple(&text).with_context(|| file.to_owned())?;
        objects.extend(all);
    }
    Ok(objects)
}

/// Applies `config/kubernetes` and returns a kubeconfig of the product's account. May be done again
/// by every test that wants it.
///
/// # Errors
/// When the API server refuses, or the policy is not in force within a minute.
pub async fn install(plane: &ControlPlane) -> Result<PathBuf> {
    let client = plane.client().await?;
    for object in manifests()? {
        apply(&client, &object)
            .await
            .with_context(|| format!("{:?} {}", object.types, object.name_any()))?;
    }
    let kubeconfig = plane.service_account_kubeconfig(NAME, NAME).await?;
    await_policy(plane).await?;
    Ok(kubeconfig)
}

/// Applies `config/kubernetes` and returns the product's own client under its own account.
///
/// # Errors
/// As [`install`].
pub async fn account(plane: &ControlPlane) -> Result<Client> {
    let kubeconfig = Some(install(plane).await?);
    let access = Access {
        kubeconfig,
        ..Access::default()
    };
    Ok(connect(&access).await?)
}

async fn apply(client: &Client, object: &DynamicObject) -> Result<()> {
    let types = object.types.as_ref().context("no kind")?;
    let kind = GroupVersionKind::try_from(types)?;
    let (resource, capabilities) = pinned_kind(client, &kind).await?;
    let api: Api<DynamicObject> = match (capabilities.scope, object.namespace()) {
        (Scope::Namespaced, Some(space)) => Api::namespaced_with(client.clone(), &space, &resource),
        _ => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply("tests").force();
    api.patch(&object.name_any(), &params, &Patch::Apply(object))
        .await?;
    Ok(())
}

/// Asks as the product, without writing, until what is forbidden is refused by the policy.
async fn await_policy(plane: &ControlPlane) -> Result<()> {
    let user = format!("system:serviceaccount:{NAME}:{NAME}");
    let client = plane.client_as(Some(&user)).await?;
    let api: Api<Service> = Api::namespaced(client, NAME);
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"metadata": {"labels": {"probe": "policy"}}}));
    eventually("the product's policy takes effect", NOTICED, async || {
        Ok(match api.patch(NAME, &params, &patch).await {
            Err(kube::Error::Api(s)) if s.message.contains("ValidatingAdmissionPolicy") => {
                Look::Done(())
            }
            Err(error) => Look::NotYet(error.to_string()),
            Ok(_) => Look::NotYet("the label was accepted".to_owned()),
        })
    })
    .await?;
    Ok(())
}
