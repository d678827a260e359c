//! Two views of one Event: core/v1 and events.k8s.io/v1 store the same object under other names.

use serde_json::Value;

use super::object;

/// Name in core/v1, name in events.k8s.io/v1.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// To the stored form (core/v1) from events.k8s.io/v1.
pub(crate) fn to_core(event: &mut Value) {
    rename(event, "v1", |(core, new)| (new, core));
}

/// To events.k8s.io/v1 from the stored form.
pub(crate) fn from_core(event: &mut Value) {
    rename(event, "events.k8s.io/v1", |(core, new)| (core, new));
}

fn rename(
    event: &mut Value,
    api_version: &str,
    order: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let event = object::map(event);
    if event.contains_key("apiVersion") {
        event.insert("apiVersion".into(), api_version.into());
    }
    for names in NAMES {
        let (from, to) = order(*names);
        if let Some(value) = event.remove(from) {
            event.insert(to.into(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn there_and_back() {
        let new = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "n",
            "regarding": {"kind": "Service"}, "reportingController": "c", "reason": "R"});
        let mut event = new.clone();
        to_core(&mut event);
        assert_eq!(event["apiVersion"], "v1");
        assert_eq!(event["message"], "n");
        assert_eq!(event["involvedObject"]["kind"], "Service");
        from_core(&mut event);
        assert_eq!(event, new);
    }
}
