//! The garbage collector and the namespace controller of the lab, in one task: objects whose owners
//! are all gone are deleted, and a terminating namespace is emptied and removed.
//!
//! It never looks at finalizers other than its own: an object that is held stays.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use super::object;
use super::resource::{NAMESPACES, Resource};
use super::shared::{Batch, Follower, Shared};
use super::store::ChangeKind;
use super::verbs::{DeleteOptions, Target};

/// Runs until the cluster is dropped; pauses while `enabled` is false.
pub(crate) async fn run(shared: Arc<Shared>, mut enabled: watch::Receiver<bool>) {
    let mut follower = Follower::new(&shared);
    sweep(&shared);
    loop {
        if !*enabled.borrow_and_update() {
            if enabled.changed().await.is_err() {
                return;
            }
            // What happened in the pause was not looked at one by one.
            follower = Follower::new(&shared);
            sweep(&shared);
            continue;
        }
        tokio::select! {
            changed = enabled.changed() => if changed.is_err() { return },
            batch = follower.next() => match batch {
                Batch::Relist => sweep(&shared),
                Batch::Changes(changes) => {
                    let ownership = changes.iter().any(|change| {
                        change.kind == ChangeKind::Deleted
                            || object::owners(&change.object).next().is_some()
                            || change.resource == &NAMESPACES
                    });
                    if ownership {
                        sweep(&shared);
                    }
                }
            },
        }
    }
}

/// One look at everything that has owners, and at every namespace.
fn sweep(shared: &Shared) {
    let orphans: Vec<Arc<Value>> = {
        let store = shared.store();
        store
            .everything()
            .filter(|candidate| {
                let mut owners = object::owners(candidate).peekable();
                owners.peek().is_some() && owners.all(|owner| !exists(&store, candidate, owner))
            })
            .cloned()
            .collect()
    };
    for orphan in orphans {
        delete(shared, &orphan, DeleteOptions::default());
    }
    let ending: Vec<Arc<Value>> = {
        let store = shared.store();
        let namespaces = store.list(&NAMESPACES, None);
        namespaces
            .filter(|ns| object::deleting(ns))
            .cloned()
            .collect()
    };
    for namespace in ending {
        empty(shared, object::name(&namespace));
    }
}

fn exists(store: &super::store::Store, dependent: &Value, owner: &Value) -> bool {
    let text = |key: &str| owner[key].as_str().unwrap_or_default();
    // An owner of a kind that is not served here cannot be judged: keep the dependent.
    let Some(resource) = Resource::of_kind(text("apiVersion"), text("kind")) else {
        return true;
    };
    let namespace = if resource.namespaced {
        object::namespace(dependent)
    } else {
        ""
    };
    store
        .get(resource, namespace, text("name"))
        .is_some_and(|found| object::uid(found) == text("uid"))
}

fn empty(shared: &Shared, namespace: &str) {
    let contents: Vec<Arc<Value>> = {
        let store = shared.store();
        store
            .everything()
            .filter(|found| object::namespace(found) == namespace)
            .cloned()
            .collect()
    };
    for content in &contents {
        delete(shared, content, DeleteOptions::now());
    }
    shared.write(|store| {
        let left = store
            .everything()
            .any(|found| object::namespace(found) == namespace);
        if !left {
            store.remove(&NAMESPACES, "", namespace);
        }
    });
}

fn delete(shared: &Shared, victim: &Value, options: DeleteOptions) {
    let Some(resource) = Resource::of(victim) else {
        return;
    };
    if object::deleting(victim) && options.grace_seconds != Some(0) {
        return;
    }
    let options = DeleteOptions {
        uid: Some(object::uid(victim).to_owned()),
        ..options
    };
    let target = Target {
        resource,
        namespace: object::namespace(victim),
        name: object::name(victim),
        status: false,
        dry_run: false,
    };
    // Refused means that somebody was faster; the next change brings the next look.
    let _ = shared.write(|store| store.delete(target, &options));
}
