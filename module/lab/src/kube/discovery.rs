//! `/version`, `/api`, `/apis` and below: enough for kube-rs and kubectl to find every resource.

use serde_json::{Value, json};

use super::resource::{ALL, Resource};
use super::status::ApiError;

/// Answers a path that names no objects.
pub(crate) fn answer(path: &str, server_version: &str) -> Result<Value, ApiError> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [] => Ok(json!({"paths": ["/api", "/api/v1", "/apis", "/version"]})),
        ["version"] => Ok(version(server_version)),
        ["api"] => Ok(json!({"kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": []})),
        ["apis"] => {
            let mut groups: Vec<Value> = Vec::new();
            for resource in ALL.iter().filter(|r| !r.group.is_empty()) {
                if groups.iter().all(|g| g["name"] != resource.group) {
                    groups.push(group(resource));
                }
            }
            Ok(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["api", "v1"] => Ok(resources("", "v1")),
        ["apis", name] => ALL
            .iter()
            .find(|r| r.group == *name)
            .map(|r| {
                let mut group = group(r);
                group["kind"] = json!("APIGroup");
                group["apiVersion"] = json!("v1");
                group
            })
            .ok_or_else(ApiError::no_route),
        ["apis", group, version]
            if ALL
                .iter()
                .any(|r| r.group == *group && r.version == *version) =>
        {
            Ok(resources(group, version))
        }
        _ => Err(ApiError::no_route()),
    }
}

fn version(git_version: &str) -> Value {
    let mut numbers = git_version.trim_start_matches('v').split('.');
    let major = numbers.next().unwrap_or_default();
    let minor = numbers.next().unwrap_or_default();
    json!({
        "major": major, "minor": minor, "gitVersion": git_version, "gitCommit": "",
        "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "",
        "compiler": "rustc", "platform": "linux/amd64",
    })
}

fn group(resource: &Resource) -> Value {
    let version = json!({
        "groupVersion": resource.api_version(),
        "version": resource.version,
    });
    json!({"name": resource.group, "versions": [version], "preferredVersion": version})
}

fn resources(group: &str, version: &str) -> Value {
    let served = ALL
        .iter()
        .filter(|r| r.group == group && r.version == version);
    let mut list = Vec::new();
    let mut group_version = String::new();
    for resource in served {
        group_version = resource.api_version();
        let review = *resource == &super::resource::ACCESS_REVIEWS;
        let verbs: &[&str] = if review {
            &["create"]
        } else {
            &[
                "create",
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "update",
                "watch",
            ]
        };
        list.push(json!({
            "name": resource.plural, "singularName": resource.singular, "kind": resource.kind,
            "namespaced": resource.namespaced, "verbs": verbs, "shortNames": resource.short,
        }));
        if resource.status {
            list.push(json!({
                "name": format!("{}/status", resource.plural), "singularName": "",
                "kind": resource.kind, "namespaced": resource.namespaced,
                "verbs": ["get", "patch", "update"],
            }));
        }
    }
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": list})
}
