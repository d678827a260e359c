//! What a delete of a slice would take away for a moment, against what it cures.

use super::bench::Bench;
use super::context::JudgeContext;
use super::diff::{Why, compare};
use super::finding::FindingKind;
use crate::model::ServiceView;

/// What a delete of one slice takes away, against what it cures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Endpoints that are as they should be and take traffic: lost until the slice is back.
    pub correct_ready: usize,
    /// Endpoints that traffic reaches and should not.
    pub stale_routed: usize,
}

/// Counts the endpoints of one slice. A slice of another owner is stale as far as the Service does
/// not expect its endpoints; where pods were not seen nothing is stale.
pub fn balance(view: &ServiceView<'_>, slice_name: &str, ctx: &JudgeContext) -> Balance {
    let bench = Bench::new(view, ctx);
    let mut count = Balance::default();
    let Some(slice) = view.slice(slice_name) else {
        return count;
    };
    let routed = || slice.endpoints.iter().filter(|e| bench.is_routed(slice, e));
    let Some(expect) = &bench.expect else {
        count.correct_ready = routed().count();
        return count;
    };
    if !bench.is_right(slice) || slice.meta.is_deleting() {
        for endpoint in routed() {
            let found = slice
                .family()
                .zip(super::diff::sorted_addresses(endpoint))
                .and_then(|(family, addresses)| expect.at(family, addresses))
                .and_then(|index| expect.endpoints.get(index));
            match found {
                Some(e) if e.ready => count.correct_ready += 1,
                _ => count.stale_routed += 1,
            }
        }
        return count;
    }
    let compared = compare(&bench, expect);
    let harmless = |kind: FindingKind, why: &Why| {
        matches!(
            kind,
            FindingKind::MetadataDrift | FindingKind::DuplicateEndpoint
        ) || matches!(why, Why::OtherUid { same_address: true })
    };
    let ready = |index: usize| expect.endpoints.get(index).is_some_and(|e| e.ready);
    let own = |name: &str| name == slice_name;
    count.correct_ready += compared
        .right
        .iter()
        .filter(|(s, index)| own(&s.meta.name) && ready(*index))
        .count();
    for diff in compared.diffs.iter().filter(|d| own(&d.slice.meta.name)) {
        if !bench.is_routed(diff.slice, diff.endpoint) {
            continue;
        }
        if harmless(diff.kind, &diff.why) {
            count.correct_ready += usize::from(diff.expected.is_some_and(ready));
        } else {
            count.stale_routed += 1;
        }
    }
    count
}
