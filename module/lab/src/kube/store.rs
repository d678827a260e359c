//! The objects, their revision and the history that watches read.
//!
//! A revision counts writes across all resources, as etcd does, and every write is one change, so
//! that a list at an old revision can be rebuilt by undoing changes. Semantics of the verbs are in
//! `verbs`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::object;
use super::resource::Resource;
use super::status::ApiError;
use super::strategy::ClusterIps;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It has other content.
    Modified,
    /// It is gone.
    Deleted,
}

/// One write.
#[derive(Debug, Clone)]
pub struct Change {
    /// Revision of the store after the write.
    pub revision: u64,
    /// Resource of the object.
    pub resource: &'static Resource,
    /// What happened.
    pub kind: ChangeKind,
    /// The object after the write; for a deletion its last state at the deletion's revision.
    pub object: Arc<Value>,
    /// The object before the write.
    pub previous: Option<Arc<Value>>,
}

/// Namespace (empty for cluster-scoped objects) and name.
pub(crate) type Key = (String, String);
type Table = BTreeMap<Key, Arc<Value>>;

/// The whole state of the cluster.
#[derive(Debug)]
pub(crate) struct Store {
    tables: HashMap<&'static str, Table>,
    revision: u64,
    /// Revisions below this one can no longer be read or watched from.
    compacted: u64,
    history: VecDeque<Arc<Change>>,
    history_limit: usize,
    pub(super) ips: ClusterIps,
}

impl Store {
    pub(crate) fn new(history_limit: usize) -> Self {
        Self {
            tables: HashMap::new(),
            revision: 1,
            compacted: 1,
            history: VecDeque::new(),
            history_limit,
            ips: ClusterIps::default(),
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn get(&self, resource: &Resource, ns: &str, name: &str) -> Option<&Arc<Value>> {
        self.tables
            .get(resource.qualified)?
            .get(&(ns.to_owned(), name.to_owned()))
    }

    /// Objects of a resource by namespace and name, of one namespace or of all.
    pub(crate) fn list<'a>(
        &'a self,
        resource: &Resource,
        ns: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Value>> + 'a {
        let start = (ns.unwrap_or_default().to_owned(), String::new());
        self.tables
            .get(resource.qualified)
            .into_iter()
            .flat_map(move |table| table.range(start.clone()..))
            .take_while(move |((namespace, _), _)| ns.is_none_or(|ns| ns == namespace))
            .map(|(_, object)| object)
    }

    /// All objects of all resources that have a table.
    pub(crate) fn everything(&self) -> impl Iterator<Item = &Arc<Value>> {
        self.tables.values().flat_map(BTreeMap::values)
    }

    /// The table of a resource as it was at `revision`.
    ///
    /// # Errors
    /// 410 where that was compacted away.
    pub(crate) fn snapshot(&self, resource: &Resource, revision: u64) -> Result<Table, ApiError> {
        let mut table = self
            .tables
            .get(resource.qualified)
            .cloned()
            .unwrap_or_default();
        let later: Vec<_> = self.since(revision)?.collect();
        for change in later.into_iter().rev() {
            if change.resource.qualified != resource.qualified {
                continue;
            }
            let key = key_of(&change.object);
            match &change.previous {
                Some(previous) => table.insert(key, Arc::clone(previous)),
                None => table.remove(&key),
            };
        }
        Ok(table)
    }

    /// Changes after `revision`, oldest first.
    ///
    /// # Errors
    /// 410 where some of them are compacted away.
    pub(crate) fn since(
        &self,
        revision: u64,
    ) -> Result<impl Iterator<Item = &Arc<Change>>, ApiError> {
        if revision < self.compacted {
            return Err(ApiError::expired(revision, self.compacted));
        }
        let first = self
            .history
            .front()
            .map_or(self.revision + 1, |c| c.revision);
        let skip = usize::try_from((revision + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        Ok(self.history.range(skip.min(self.history.len())..))
    }

    /// Forgets the history: every version read before is too old from now on.
    pub(crate) fn compact(&mut self) {
        // A write elsewhere, so that even the newest version that clients hold is older.
        self.revision += 1;
        self.compacted = self.revision;
        self.history.clear();
    }

    /// Stores a write, gives the object its resourceVersion and returns it.
    pub(crate) fn commit(
        &mut self,
        resource: &'static Resource,
        kind: ChangeKind,
        mut object: Value,
    ) -> Arc<Value> {
        self.revision += 1;
        object::set_meta(&mut object, "resourceVersion", self.revision.to_string());
        let object = Arc::new(object);
        let key = key_of(&object);
        let table = self.tables.entry(resource.qualified).or_default();
        let previous = match kind {
            ChangeKind::Deleted => table.remove(&key),
            ChangeKind::Added | ChangeKind::Modified => table.insert(key, Arc::clone(&object)),
        };
        if self.history.len() >= self.history_limit
            && let Some(oldest) = self.history.pop_front()
        {
            self.compacted = oldest.revision;
        }
        self.history.push_back(Arc::new(Change {
            revision: self.revision,
            resource,
            kind,
            object: Arc::clone(&object),
            previous,
        }));
        object
    }
}

fn key_of(object: &Value) -> Key {
    (
        object::namespace(object).to_owned(),
        object::name(object).to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::resource::{PODS, SERVICES};
    use super::*;

    fn pod(name: &str, n: u32) -> Value {
        json!({"metadata": {"namespace": "x", "name": name}, "n": n})
    }

    #[test]
    fn an_old_list_is_rebuilt_and_a_compacted_one_refused() {
        let mut store = Store::new(100);
        store.commit(&PODS, ChangeKind::Added, pod("a", 1));
        store.commit(&SERVICES, ChangeKind::Added, pod("s", 1));
        store.commit(&PODS, ChangeKind::Added, pod("b", 1));
        let then = store.revision();
        store.commit(&PODS, ChangeKind::Modified, pod("a", 2));
        store.commit(&PODS, ChangeKind::Deleted, pod("b", 1));
        store.commit(&PODS, ChangeKind::Added, pod("c", 1));

        let old = store.snapshot(&PODS, then).unwrap();
        let seen: Vec<_> = old
            .values()
            .map(|p| (object::name(p), p["n"].as_u64().unwrap()))
            .collect();
        assert_eq!(seen, [("a", 1), ("b", 1)]);
        assert_eq!(store.since(then).unwrap().count(), 3);

        store.compact();
        assert_eq!(store.snapshot(&PODS, then).unwrap_err().code, 410);
        assert_eq!(store.list(&PODS, Some("x")).count(), 2);
        assert_eq!(store.list(&PODS, Some("w")).count(), 0);
    }

    #[test]
    fn a_full_history_moves_the_oldest_readable_revision() {
        let mut store = Store::new(2);
        for n in 0..5 {
            store.commit(&PODS, ChangeKind::Added, pod("a", n));
        }
        let newest = store.revision();
        assert_eq!(store.since(newest - 2).unwrap().count(), 2);
        assert_eq!(store.since(newest).unwrap().count(), 0);
        assert!(store.since(newest - 3).is_err());
    }
}
