//! Create, update, patch and delete on the store, with the checks that clients can trip over:
//! names taken, versions gone by, preconditions, finalizers, grace periods, terminating namespaces.

use std::sync::Arc;

use jiff::{Timestamp, ToSpan as _};
use rand::RngExt as _;
use serde_json::{Value, json};

use super::object;
use super::patch::PatchKind;
use super::resource::{NAMESPACES, PODS, Resource};
use super::status::ApiError;
use super::store::{ChangeKind, Store};
use super::strategy;

/// What a delete may insist on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// The object must have this uid.
    pub uid: Option<String>,
    /// The object must be at this version.
    pub resource_version: Option<String>,
    /// Seconds of grace; only pods have any, 30 by default.
    pub grace_seconds: Option<i64>,
}

impl DeleteOptions {
    /// Without grace: gone at once unless finalizers hold the object.
    #[must_use]
    pub fn now() -> Self {
        Self {
            grace_seconds: Some(0),
            ..Self::default()
        }
    }
}

/// Where a write goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) resource: &'static Resource,
    /// Empty for cluster-scoped resources.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// Whether the `status` subresource is written.
    pub(crate) status: bool,
    /// Check everything, write nothing.
    pub(crate) dry_run: bool,
}

impl Store {
    pub(crate) fn create(
        &mut self,
        at: Target<'_>,
        mut new: Value,
    ) -> Result<Arc<Value>, ApiError> {
        let resource = at.resource;
        identify(resource, at.namespace, &mut new)?;
        if object::name(&new).is_empty() {
            let prefix = object_str(&new, "generateName");
            if prefix.is_empty() {
                let why = "Required value: name or generateName is required";
                return Err(ApiError::invalid(resource, "", "metadata.name", why));
            }
            let name = format!("{}{}", cut(prefix, 58), suffix());
            object::set_meta(&mut new, "name", name);
        }
        let name = object::name(&new).to_owned();
        if !object::resource_version(&new).is_empty() {
            return Err(ApiError::bad_request(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        self.check_namespace(at, &name)?;
        for key in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            object::map(object::map_entry(&mut new, "metadata")).remove(key);
        }
        strategy::prepare_create(resource, &mut new, &mut self.ips);
        strategy::validate(resource, &new, None)?;
        if self.get(resource, at.namespace, &name).is_some() {
            return Err(ApiError::already_exists(resource, &name));
        }
        object::set_meta(&mut new, "uid", uuid::Uuid::new_v4().to_string());
        object::set_meta(
            &mut new,
            "creationTimestamp",
            object::time(Timestamp::now()),
        );
        if at.dry_run {
            return Ok(Arc::new(new));
        }
        Ok(self.commit(resource, ChangeKind::Added, new))
    }

    pub(crate) fn update(
        &mut self,
        at: Target<'_>,
        mut new: Value,
    ) -> Result<Arc<Value>, ApiError> {
        let resource = at.resource;
        let old = self.existing(at)?;
        identify(resource, at.namespace, &mut new)?;
        if object::name(&new) != at.name {
            return Err(ApiError::bad_request(
                "the name of the object does not match the name on the URL",
            ));
        }
        let version = object::resource_version(&new);
        if !version.is_empty() && version != object::resource_version(&old) {
            return Err(ApiError::modified(resource, at.name));
        }
        let uid = object::uid(&new);
        if !uid.is_empty() && uid != object::uid(&old) {
            let why = precondition("UID", uid, object::uid(&old));
            return Err(ApiError::conflict(resource, at.name, &why));
        }
        strategy::prepare_update(resource, &old, &mut new, at.status, &mut self.ips);
        strategy::validate(resource, &new, Some(&old))?;
        object::set_meta(&mut new, "resourceVersion", object::resource_version(&old));
        // A write that changes nothing makes no new version and wakes no watch.
        if *old == new || at.dry_run {
            return Ok(Arc::new(new));
        }
        let released = object::deleting(&new)
            && !object::has_finalizers(&new)
            && new["metadata"]["deletionGracePeriodSeconds"] == 0
            && !holds_contents(resource, &new);
        let kind = if released {
            ChangeKind::Deleted
        } else {
            ChangeKind::Modified
        };
        Ok(self.commit(resource, kind, new))
    }

    pub(crate) fn patch(
        &mut self,
        at: Target<'_>,
        kind: PatchKind,
        patch: &Value,
    ) -> Result<Arc<Value>, ApiError> {
        let old = self.existing(at)?;
        let new = kind.apply(&old, patch)?;
        self.update(at, new)
    }

    /// Deletes, or marks as being deleted. The flag says whether the object is gone.
    pub(crate) fn delete(
        &mut self,
        at: Target<'_>,
        options: &DeleteOptions,
    ) -> Result<(Arc<Value>, bool), ApiError> {
        let resource = at.resource;
        let old = self.existing(at)?;
        let checks = [
            ("UID", &options.uid, object::uid(&old)),
            (
                "ResourceVersion",
                &options.resource_version,
                object::resource_version(&old),
            ),
        ];
        for (what, want, have) in checks {
            if let Some(want) = want
                && want != have
            {
                let why = precondition(what, want, have);
                return Err(ApiError::precondition(resource, at.name, &why));
            }
        }
        let grace = grace_seconds(resource, &old, options);
        let held = object::has_finalizers(&old) || holds_contents(resource, &old);
        if at.dry_run {
            return Ok((old, grace == 0 && !held));
        }
        if grace == 0 && !held {
            let gone = self.commit(resource, ChangeKind::Deleted, (*old).clone());
            return Ok((gone, true));
        }
        let had = old["metadata"]["deletionGracePeriodSeconds"].as_i64();
        if object::deleting(&old) && had.is_some_and(|had| had <= grace) {
            return Ok((old, false));
        }
        let mut marked = (*old).clone();
        let due = Timestamp::now() + grace.seconds();
        object::set_meta(&mut marked, "deletionTimestamp", object::time(due));
        object::set_meta(&mut marked, "deletionGracePeriodSeconds", grace);
        if !object::deleting(&old) && object::generation(&old) > 0 {
            object::set_meta(&mut marked, "generation", object::generation(&old) + 1);
        }
        if resource == &NAMESPACES {
            object::map(&mut marked).insert("status".into(), json!({"phase": "Terminating"}));
        }
        Ok((self.commit(resource, ChangeKind::Modified, marked), false))
    }

    /// Removes an object whatever holds it: what a kubelet or the namespace controller ends with.
    pub(crate) fn remove(&mut self, resource: &'static Resource, ns: &str, name: &str) {
        if let Some(object) = self.get(resource, ns, name).cloned() {
            self.commit(resource, ChangeKind::Deleted, (*object).clone());
        }
    }

    fn existing(&self, at: Target<'_>) -> Result<Arc<Value>, ApiError> {
        self.get(at.resource, at.namespace, at.name)
            .cloned()
            .ok_or_else(|| ApiError::not_found(at.resource, at.name))
    }

    fn check_namespace(&self, at: Target<'_>, name: &str) -> Result<(), ApiError> {
        if !at.resource.namespaced {
            return Ok(());
        }
        let namespace = self
            .get(&NAMESPACES, "", at.namespace)
            .ok_or_else(|| ApiError::not_found(&NAMESPACES, at.namespace))?;
        if object::deleting(namespace) {
            let mut refusal = ApiError::forbidden(at.resource, "create", None, name, "");
            refusal.message = format!(
                "{} \"{name}\" is forbidden: unable to create new content in namespace {} because \
                 it is being terminated",
                at.resource.qualified, at.namespace
            );
            return Err(refusal);
        }
        Ok(())
    }
}

/// A namespace goes when its contents are gone; the garbage collector sees to that.
fn holds_contents(resource: &Resource, object: &Value) -> bool {
    resource == &NAMESPACES && !object::list(&object["spec"]["finalizers"]).is_empty()
}

/// Fills in apiVersion, kind and namespace, and refuses what contradicts the path.
fn identify(resource: &Resource, namespace: &str, new: &mut Value) -> Result<(), ApiError> {
    let api_version = resource.api_version();
    for (key, want) in [
        ("apiVersion", api_version.as_str()),
        ("kind", resource.kind),
    ] {
        let given = new[key].as_str().unwrap_or_default();
        if !given.is_empty() && given != want {
            return Err(ApiError::bad_request(format!(
                "the {key} in the data ({given}) does not match the expected {key} ({want})"
            )));
        }
        object::map(new).insert(key.into(), json!(want));
    }
    let given = object::namespace(new);
    if !given.is_empty() && given != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if resource.namespaced {
        object::set_meta(new, "namespace", namespace);
    }
    Ok(())
}

fn grace_seconds(resource: &Resource, object: &Value, options: &DeleteOptions) -> i64 {
    if resource != &PODS {
        return 0;
    }
    let spec = &object["spec"];
    let finished = matches!(
        object["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    );
    // Without a node no kubelet would ever confirm the end.
    if finished || spec["nodeName"].as_str().is_none_or(str::is_empty) {
        return 0;
    }
    options
        .grace_seconds
        .or_else(|| spec["terminationGracePeriodSeconds"].as_i64())
        .unwrap_or(30)
        .max(0)
}

fn precondition(what: &str, want: &str, have: &str) -> String {
    format!("Precondition failed: {what} in precondition: {want}, {what} in object meta: {have}")
}

fn object_str<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"][key].as_str().unwrap_or_default()
}

fn cut(text: &str, at: usize) -> &str {
    text.get(..at).unwrap_or(text)
}

/// Five characters as the API server appends them to `generateName`.
pub(crate) fn suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rng = rand::rng();
    (0..5)
        .map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]))
        .collect()
}
