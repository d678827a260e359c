//! A real way to make a real controller fail: an admission policy that denies its writes.
//!
//! Only the slice controller and only one namespace are concerned, so tests that share a control
//! plane do not meet each other's bans.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use super::controlplane::{ControlPlane, SLICE_CONTROLLER};
use super::wait::{Look, eventually};

/// How long the API server may take to notice a policy; it is a matter of a second.
const NOTICED: Duration = Duration::from_secs(60);

/// A policy in force. It stays until it is lifted.
#[derive(Debug)]
pub struct WriteBan<'a> {
    plane: &'a ControlPlane,
    namespace: String,
}

impl<'a> WriteBan<'a> {
    /// Denies the slice controller's writes to the slices of `namespace`; in force on return.
    ///
    /// # Errors
    /// When the API server refuses, or has not noticed the policy after a minute.
    pub async fn impose(plane: &'a ControlPlane, namespace: &str) -> Result<Self> {
        let client = plane.client().await?;
        let name = format!("ban-{namespace}");
        let policy: ValidatingAdmissionPolicy = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                    "resourceRules": [{
                        "apiGroups": ["discovery.k8s.io"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE", "DELETE"],
                        "resources": ["endpointslices"],
                    }],
                },
                "matchConditions": [{
                    "name": "slice-controller",
                    "expression": format!("request.userInfo.username == '{SLICE_CONTROLLER}'"),
                }],
                "validations": [{"expression": "false", "message": "slices are frozen by a test"}],
            },
        }))?;
        let binding: ValidatingAdmissionPolicyBinding = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }))?;
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client);
        policies.create(&PostParams::default(), &policy).await?;
        bindings.create(&PostParams::default(), &binding).await?;
        let ban = Self {
            plane,
            namespace: namespace.to_owned(),
        };
        ban.await_effect(true).await?;
        Ok(ban)
    }

    /// Allows the writes again; the controller finds out when it tries next.
    ///
    /// # Errors
    /// When the API server refuses, or has not noticed after a minute.
    pub async fn lift(self) -> Result<()> {
        let client = self.plane.client().await?;
        let name = format!("ban-{}", self.namespace);
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client);
        bindings.delete(&name, &DeleteParams::default()).await?;
        policies.delete(&name, &DeleteParams::default()).await?;
        self.await_effect(false).await
    }

    /// Asks, as the controller and without writing, until the answer is the awaited one.
    async fn await_effect(&self, banned: bool) -> Result<()> {
        let client: Client = self.plane.client_as(Some(SLICE_CONTROLLER)).await?;
        let api: Api<EndpointSlice> = Api::namespaced(client, &self.namespace);
        let probe: EndpointSlice = serde_json::from_value(json!({
            "metadata": {"name": "ban-probe"}, "addressType": "IPv4", "endpoints": [],
        }))?;
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        eventually("the admission policy takes effect", NOTICED, async || {
            let denied = match api.create(&dry, &probe).await {
                Ok(_) => false,
                Err(kube::Error::Api(status)) if status.message.contains("frozen by a test") => {
                    true
                }
                Err(error) => return Err(error.into()),
            };
            let seen = format!("denied: {denied}");
            Ok(if denied == banned {
                Look::Done(())
            } else {
                Look::NotYet(seen)
            })
        })
        .await?;
        Ok(())
    }
}
