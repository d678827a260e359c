//! Who wrote what, as the API server itself has logged it.
//!
//! The audit log holds every write with its answer, and no reads. It is written before the answer
//! goes out, so a write that was answered is in it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::ControlPlane;

/// One request that would change something, and what became of it.
#[derive(Debug, Clone)]
pub struct Write {
    /// Who asked.
    pub user: String,
    /// `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// The resource in plural, with its subresource behind a slash.
    pub resource: String,
    /// Where.
    pub namespace: String,
    /// What; empty for a create whose name the server chose.
    pub name: String,
    /// The status code of the answer.
    pub code: u16,
    /// When it came in.
    pub at: Timestamp,
}

impl Write {
    /// Whether the API server did it.
    pub fn done(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Whether it is about a Service or a slice: what a healer does to the cluster.
    pub fn is_heal(&self) -> bool {
        matches!(self.resource.as_str(), "services" | "endpointslices")
    }
}

impl ControlPlane {
    /// All writes so far, dry runs left out, oldest first.
    ///
    /// # Errors
    /// When the log cannot be read, or holds what is no audit event.
    pub fn writes(&self) -> Result<Vec<Write>> {
        let path = log(&self.folders.logs);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        // The last line may be half written.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mut found = Vec::new();
        for line in whole.lines() {
            let event: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            let dry = event["requestURI"].as_str().unwrap_or_default();
            if !dry.contains("dryRun=") {
                found.push(decode(&event).with_context(|| line.to_owned())?);
            }
        }
        found.sort_by_key(|write| write.at);
        Ok(found)
    }

    /// The writes of `user` in `namespace` from `since` on.
    ///
    /// # Errors
    /// As [`Self::writes`].
    pub fn writes_of(&self, user: &str, namespace: &str, since: Timestamp) -> Result<Vec<Write>> {
        let mut all = self.writes()?;
        all.retain(|w| w.user == user && w.namespace == namespace && w.at >= since);
        Ok(all)
    }
}

fn decode(event: &Value) -> Result<Write> {
    let of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &event["objectRef"];
    let mut resource = of(&object["resource"]);
    if let Some(sub) = object["subresource"].as_str() {
        resource = format!("{resource}/{sub}");
    }
    // Who acts for another is told apart from the one acted for.
    let user = match &event["impersonatedUser"]["username"] {
        Value::String(user) => user.clone(),
        _ => of(&event["user"]["username"]),
    };
    Ok(Write {
        user,
        verb: of(&event["verb"]),
        resource,
        namespace: of(&object["namespace"]),
        name: of(&object["name"]),
        code: u16::try_from(event["responseStatus"]["code"].as_u64().unwrap_or_default())?,
        at: of(&event["requestReceivedTimestamp"]).parse()?,
    })
}

pub(super) fn policy(folder: &Path) -> PathBuf {
    folder.join("audit-policy.json")
}

pub(super) fn log(folder: &Path) -> PathBuf {
    folder.join("audit.log")
}

/// Writes the API server's audit policy: writes only, each once, without their bodies.
pub(super) fn write_policy(folder: &Path) -> Result<()> {
    let path = policy(folder);
    let text = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [
            {"level": "None", "verbs": ["get", "list", "watch"]},
            {"level": "None", "nonResourceURLs": ["*"]},
            {"level": "Metadata"},
        ],
    });
    fs::write(&path, text.to_string()).with_context(|| path.display().to_string())
}
