//! Desired properties: one document that is known to be right, kept so by versions.
//!
//! A GET decides, whatever its version. Patches count only within one connection and only without a
//! gap. An answer without a version means "the hub does not know now" and never "all deleted":
//! edgeHub says so while it is offline. The last good document outlives connections.

use serde_json::Value;

use super::merge::{merge, strip_hub_keys};

/// Patches that are kept while a GET is under way; beyond this the next GET will bring it all.
const HELD_PATCHES: usize = 32;

/// What a message changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DesiredChange {
    /// There is a new document or a new version to hand out.
    Updated,
    /// Nothing new.
    Nothing,
    /// The hub must be asked for the whole twin.
    AskAgain,
}

/// The desired section.
#[derive(Debug, Default)]
pub(crate) struct Desired {
    /// Last good version and document, from this connection or one before it.
    known: Option<(u64, Value)>,
    /// Version up to which this connection's messages have been applied; `None` before a good GET.
    epoch_version: Option<u64>,
    get_under_way: bool,
    held: Vec<(u64, Value)>,
}

impl Desired {
    /// A new connection: what it says is compared with nothing that came before.
    pub(crate) fn begin_epoch(&mut self) {
        self.epoch_version = None;
        self.get_under_way = false;
        self.held.clear();
    }

    /// The last good version and document.
    pub(crate) fn known(&self) -> Option<(u64, &Value)> {
        self.known
            .as_ref()
            .map(|(version, document)| (*version, document))
    }

    /// Whether a GET of this connection brought a good document.
    pub(crate) fn is_synced(&self) -> bool {
        self.epoch_version.is_some()
    }

    /// A GET was sent. Its answer may be older than patches that arrive before it.
    pub(crate) fn get_sent(&mut self) {
        self.get_under_way = true;
    }

    /// The GET failed or timed out; what was held cannot be placed.
    pub(crate) fn get_failed(&mut self) {
        self.get_under_way = false;
        if self.epoch_version.is_none() {
            self.held.clear();
        }
    }

    /// The desired section of a GET's answer.
    pub(crate) fn on_get(&mut self, section: &Value) -> DesiredChange {
        self.get_under_way = false;
        let held = std::mem::take(&mut self.held);
        let Some(version) = section.get("$version").and_then(Value::as_u64) else {
            return DesiredChange::AskAgain;
        };
        let mut document = section.clone();
        strip_hub_keys(&mut document);
        let mut change = self.replace(version, document);
        for (held_version, patch) in held {
            match self.apply(held_version, &patch) {
                DesiredChange::Nothing => {}
                other => change = other,
            }
        }
        change
    }

    /// A patch that the hub pushed. `version` is the topic's; the body may have it as well.
    pub(crate) fn on_patch(&mut self, version: Option<u64>, patch: &Value) -> DesiredChange {
        if !patch.is_object() {
            return DesiredChange::AskAgain;
        }
        let Some(version) = version.or_else(|| patch.get("$version").and_then(Value::as_u64))
        else {
            return DesiredChange::AskAgain;
        };
        if self.get_under_way {
            // Kept as well as applied: the answer may be older than this patch and replaces all.
            if self.held.len() < HELD_PATCHES {
                self.held.push((version, patch.clone()));
            }
            if self.epoch_version.is_none() {
                return DesiredChange::Nothing;
            }
        }
        self.apply(version, patch)
    }

    fn apply(&mut self, version: u64, patch: &Value) -> DesiredChange {
        let (Some(seen), Some((_, document))) = (self.epoch_version, self.known.as_ref()) else {
            return DesiredChange::AskAgain;
        };
        if version <= seen {
            return DesiredChange::Nothing;
        }
        if version != seen + 1 {
            return DesiredChange::AskAgain;
        }
        let mut document = document.clone();
        merge(&mut document, patch);
        // A computed patch may hold `$metadata`.
        strip_hub_keys(&mut document);
        self.replace(version, document)
    }

    fn replace(&mut self, version: u64, document: Value) -> DesiredChange {
        self.epoch_version = Some(version);
        let same = self
            .known
            .as_ref()
            .is_some_and(|(v, d)| *v == version && *d == document);
        if same {
            return DesiredChange::Nothing;
        }
        self.known = Some((version, document));
        DesiredChange::Updated
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn synced(version: u64, document: &Value) -> Desired {
        let mut desired = Desired::default();
        desired.begin_epoch();
        desired.get_sent();
        let mut section = document.clone();
        section["$version"] = json!(version);
        assert_eq!(desired.on_get(&section), DesiredChange::Updated);
        desired
    }

    #[test]
    fn contiguous_patches_apply_and_null_deletes() {
        let mut desired = synced(3, &json!({"a": {"x": 1}, "b": 2}));
        let patch = json!({"a": {"x": null, "y": 5}, "$version": 4, "$metadata": {"a": {}}});
        assert_eq!(desired.on_patch(Some(4), &patch), DesiredChange::Updated);
        assert_eq!(desired.known(), Some((4, &json!({"a": {"y": 5}, "b": 2}))));
        assert_eq!(desired.on_patch(Some(4), &patch), DesiredChange::Nothing);
        assert_eq!(
            desired.on_patch(None, &json!({"$version": 3, "b": 9})),
            DesiredChange::Nothing
        );
    }

    #[test]
    fn a_gap_changes_nothing_and_asks() {
        let mut desired = synced(3, &json!({"a": 1}));
        assert_eq!(
            desired.on_patch(Some(6), &json!({"a": 2})),
            DesiredChange::AskAgain
        );
        assert_eq!(desired.known(), Some((3, &json!({"a": 1}))));
    }

    #[test]
    fn an_empty_answer_keeps_the_last_good_document() {
        let mut desired = synced(3, &json!({"a": 1}));
        desired.begin_epoch();
        assert!(!desired.is_synced());
        desired.get_sent();
        assert_eq!(desired.on_get(&json!({})), DesiredChange::AskAgain);
        assert_eq!(desired.known(), Some((3, &json!({"a": 1}))));
        assert!(!desired.is_synced());
        // Nothing of this connection can be placed before a good answer.
        assert_eq!(
            desired.on_patch(Some(4), &json!({"a": 2})),
            DesiredChange::AskAgain
        );
        assert_eq!(desired.known(), Some((3, &json!({"a": 1}))));
    }

    #[test]
    fn a_get_decides_even_when_the_version_went_back() {
        let mut desired = synced(30, &json!({"a": 1}));
        desired.begin_epoch();
        assert_eq!(
            desired.on_get(&json!({"b": 1, "$version": 1})),
            DesiredChange::Updated
        );
        assert_eq!(desired.known(), Some((1, &json!({"b": 1}))));
        assert_eq!(
            desired.on_patch(Some(2), &json!({"b": 2})),
            DesiredChange::Updated
        );
    }

    #[test]
    fn patches_that_overtake_the_answer_are_not_lost() {
        let mut desired = Desired::default();
        desired.begin_epoch();
        desired.get_sent();
        assert_eq!(
            desired.on_patch(Some(8), &json!({"a": 8})),
            DesiredChange::Nothing
        );
        assert_eq!(
            desired.on_get(&json!({"a": 7, "$version": 7})),
            DesiredChange::Updated
        );
        assert_eq!(desired.known(), Some((8, &json!({"a": 8}))));

        // The same with a GET in the middle of a connection.
        desired.get_sent();
        assert_eq!(
            desired.on_patch(Some(9), &json!({"a": 9})),
            DesiredChange::Updated
        );
        desired.on_get(&json!({"a": 8, "$version": 8}));
        assert_eq!(desired.known(), Some((9, &json!({"a": 9}))));
    }

    #[test]
    fn a_failed_get_leaves_a_synced_connection_synced() {
        let mut desired = synced(3, &json!({"a": 1}));
        desired.get_sent();
        desired.get_failed();
        assert!(desired.is_synced());
        assert_eq!(
            desired.on_patch(Some(4), &json!({"a": 4})),
            DesiredChange::Updated
        );
    }

    #[test]
    fn a_patch_that_is_no_object_never_replaces_the_document() {
        let mut desired = synced(3, &json!({"a": 1}));
        for body in [json!(null), json!(7), json!([])] {
            assert_eq!(desired.on_patch(Some(4), &body), DesiredChange::AskAgain);
        }
        assert_eq!(desired.known(), Some((3, &json!({"a": 1}))));
    }

    proptest! {
        /// Whatever of a run of patches gets lost or doubled: the document is that of the version
        /// that we claim to have, and after a GET it is the newest.
        #[test]
        fn document_and_version_always_belong_together(
            values in proptest::collection::vec(0_i32..100, 1..30),
            fate in proptest::collection::vec(0_u8..4, 30),
        ) {
            let mut desired = synced(1, &json!({"n": -1}));
            let mut history = vec![json!({}), json!({"n": -1})];
            for (index, value) in values.iter().enumerate() {
                let version = index as u64 + 2;
                history.push(json!({"n": value}));
                let patch = json!({"n": value});
                for _ in 0..fate[index].min(2) {
                    desired.on_patch(Some(version), &patch);
                }
                let (have, document) = desired.known().unwrap();
                prop_assert_eq!(document, &history[have as usize]);
            }
            let newest = history.len() as u64 - 1;
            let mut section = history[newest as usize].clone();
            section["$version"] = json!(newest);
            desired.get_sent();
            desired.on_get(&section);
            prop_assert_eq!(desired.known().unwrap(), (newest, &history[newest as usize]));
        }
    }
}
