//! Corrupts one thing at a time in the dump of a settled cluster and expects exactly the findings
//! that follow from it: kind, Service, slice, severity by the effect on traffic, and remedy.
//! The severity is worked out here a second time, from the rule and not from the judge.

mod bench;
mod causes;
mod score;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use slice_core::judge::{Finding, FindingKind, RemedyAction, Severity};

use super::differential::{judge, on_slices};
use bench::*;
use score::Score;

use FindingKind::*;
use RemedyAction::None as NoHeal;
use Severity::{Critical, Info, Warning};

type Corruption = fn(&mut Bench) -> Option<Vec<Due>>;

const CORRUPTIONS: [(&str, Corruption); 24] = [
    ("an endpoint of nobody", ghost),
    ("an endpoint of an earlier pod", other_uid),
    ("an address edited", address),
    ("a pod finished", finished),
    ("ready switched off", not_ready),
    ("ready switched on", ready),
    ("an endpoint removed", removed),
    ("a family's slices removed", no_slice),
    ("a port edited", port),
    ("an endpoint doubled", doubled),
    ("a zone edited", zone),
    ("a node edited", node),
    ("a hostname edited", hostname),
    ("hints edited", hints),
    ("a slice's label edited", label),
    ("a slice hidden", hidden),
    ("a slice of an earlier Service", orphan),
    ("a selector removed", leftover),
    ("a mirror beside a selector", mirror_conflict),
    ("a mirrored address edited", mirror_drift),
    ("an Endpoints address removed", endpoints_drift),
    ("a custom slice of a gone pod", foreign),
    ("a slice stuck", stuck),
    ("a manager label removed", wedged),
];

/// Tries every corruption on a settled dump; prints recall and precision by kind.
pub(crate) fn every_corruption_is_found(lists: &[Value], version: &str, seed: u64) -> Result<()> {
    let mut score = Score::default();
    score.corrupt(&CORRUPTIONS, lists, seed, |lists| {
        Ok(dues(&on_slices(judge(lists, version)?)))
    })?;
    // Random pods have causes already: what counts is what a corruption adds and takes away.
    let mut settled = lists.to_vec();
    causes::prepare(&mut settled);
    let before = dues(&judge(&settled, version)?);
    score.corrupt(&causes::CORRUPTIONS, &settled, seed, |lists| {
        let mut after = dues(&judge(lists, version)?);
        for one in &before {
            let at = after.iter().position(|other| other == one);
            after.remove(at.with_context(|| format!("gone without reason: {one:?}"))?);
        }
        Ok(after)
    })?;
    score.tell()
}

fn dues(findings: &[Finding]) -> Vec<Due> {
    findings.iter().map(Due::of).collect()
}

fn ghost(b: &mut Bench) -> Option<Vec<Due>> {
    let at = b.some_endpoint(|_, _, e| is_ready(e))?;
    let mut ghost = b.endpoint(at).clone();
    ghost["addresses"] = json!([b.address(at.0)]);
    ghost["targetRef"]["name"] = json!("gone");
    ghost["targetRef"]["uid"] = json!("gone-uid");
    b.slice(at.0)["endpoints"].as_array_mut()?.push(ghost);
    let used = b.is_used(&b.items(SLICES)[at.0]);
    Some(vec![b.due(
        GhostEndpoint,
        at.0,
        if used { Critical } else { Info },
    )])
}

fn other_uid(b: &mut Bench) -> Option<Vec<Due>> {
    let at = b.some_endpoint(|_, _, _| true)?;
    b.endpoint(at)["targetRef"]["uid"] = json!("earlier");
    Some(vec![b.due(GhostEndpoint, at.0, Warning)])
}

fn address(b: &mut Bench) -> Option<Vec<Due>> {
    let at = b.some_endpoint(|b, s, e| is_ready(e) && b.is_used(s))?;
    b.endpoint(at)["addresses"] = json!([b.address(at.0)]);
    Some(vec![b.due(WrongAddress, at.0, Critical)])
}

fn finished(b: &mut Bench) -> Option<Vec<Due>> {
    // The legacy Endpoints objects list pods of lost nodes as well, which no slice does.
    let at = b.some_endpoint(|b, _, e| {
        is_ready(e) && e["conditions"]["terminating"] == false && b.has_node(&e["nodeName"])
    })?;
    let uid = b.endpoint(at)["targetRef"]["uid"].clone();
    let pod = b
        .items_mut(PODS)
        .iter_mut()
        .find(|p| p["metadata"]["uid"] == uid)?;
    pod["status"]["phase"] = json!("Failed");
    let mut due = Vec::new();
    for (n, slice) in b.items(SLICES).iter().enumerate() {
        for endpoint in endpoints(slice)
            .iter()
            .filter(|e| e["targetRef"]["uid"] == uid)
        {
            let routed = is_ready(endpoint) && b.is_used(slice);
            due.push(b.due(TerminalPod, n, if routed { Critical } else { Info }));
        }
    }
    Some(due)
}

fn not_ready(b: &mut Bench) -> Option<Vec<Due>> {
    let at = b.some_endpoint(|_, _, e| is_ready(e) && e["conditions"]["terminating"] == false)?;
    b.endpoint(at)["conditions"]["ready"] = json!(false);
    let slice = &b.items(SLICES)[at.0];
    let severity = match (b.is_used(slice), b.served(slice)) {
        (false, _) => Info,
        (true, 0) => Critical,
        (true, _) => Warning,
    };
    Some(vec![b.due(ConditionDrift, at.0, severity)])
}

fn ready(b: &mut Bench) -> Option<Vec<Due>> {
    let at = b.some_endpoint(|_, _, e| !is_ready(e))?;
    b.endpoint(at)["conditions"]["ready"] = json!(true);
    let used = b.is_used(&b.items(SLICES)[at.0]);
    Some(vec![b.due(
        ConditionDrift,
        at.0,
        if used { Critical } else { Info },
    )])
}

fn removed(b: &mut Bench) -> Option<Vec<Due>> {
    let at = b.some_endpoint(|_, _, _| true)?;
    let gone = b.slice(at.0)["endpoints"].as_array_mut()?.remove(at.1);
    let slice = &b.items(SLICES)[at.0];
    let severity = match (is_ready(&gone) && b.is_used(slice), b.served(slice)) {
        (false, _) => Info,
        (true, 0) => Critical,
        (true, _) => Warning,
    };
    Some(vec![Due {
        slice: None,
        ..b.due(MissingEndpoint, at.0, severity)
    }])
}

fn no_slice(b: &mut Bench) -> Option<Vec<Due>> {
    let at = b.some_slice(|_, _| true)?;
    let like = b.slice(at).clone();
    let severity = if b.served(&like) > 0 { Critical } else { Info };
    let due = Due {
        slice: None,
        ..b.due(MissingSlice, at, severity)
    };
    b.items_mut(SLICES).retain(|s| {
        s["metadata"]["labels"][NAME] != like["metadata"]["labels"][NAME]
            || s["addressType"] != like["addressType"]
    });
    Some(vec![due])
}

fn port(b: &mut Bench) -> Option<Vec<Due>> {
    let at = b.some_slice(|_, s| {
        s["ports"].as_array().is_some_and(|p| !p.is_empty())
            && endpoints(s)
                .iter()
                .all(|e| is_ready(e) || e["conditions"]["terminating"] == false)
            && !endpoints(s).is_empty()
    })?;
    let number = b.slice(at)["ports"][0]["port"].as_i64()?;
    b.slice(at)["ports"][0]["port"] = json!(number + 1000);
    let all = endpoints(&b.items(SLICES)[at]).to_vec();
    let severity = |e: &Value| if is_ready(e) { Critical } else { Info };
    Some(
        all.iter()
            .map(|e| b.due(PortDrift, at, severity(e)))
            .collect(),
    )
}

fn doubled(b: &mut Bench) -> Option<Vec<Due>> {
    let at = b.some_endpoint(|_, _, _| true)?;
    let copy = b.endpoint(at).clone();
    b.slice(at.0)["endpoints"].as_array_mut()?.push(copy);
    Some(vec![b.due(DuplicateEndpoint, at.0, Info)])
}

fn field(b: &mut Bench, name: &str, severity: Severity) -> Option<Vec<Due>> {
    let at = b.some_endpoint(|_, _, _| true)?;
    b.endpoint(at)[name] = json!("elsewhere");
    Some(vec![b.due(MetadataDrift, at.0, severity)])
}

fn zone(b: &mut Bench) -> Option<Vec<Due>> {
    field(b, "zone", Info)
}

fn node(b: &mut Bench) -> Option<Vec<Due>> {
    field(b, "nodeName", Info)
}

fn hostname(b: &mut Bench) -> Option<Vec<Due>> {
    field(b, "hostname", Warning)
}

fn hints(b: &mut Bench) -> Option<Vec<Due>> {
    let at = b.some_endpoint(|b, s, e| {
        is_ready(e) && b.service_of(s)["metadata"].get("annotations").is_none()
    })?;
    b.endpoint(at)["hints"] = json!({"forZones": [{"name": "elsewhere"}]});
    Some(vec![b.due(MetadataDrift, at.0, Info)])
}

fn label(b: &mut Bench) -> Option<Vec<Due>> {
    let at = b.some_slice(|_, _| true)?;
    b.slice(at)["metadata"]["labels"]["team"] = json!("edited");
    Some(vec![b.due(MetadataDrift, at, Info)])
}

fn hidden(b: &mut Bench) -> Option<Vec<Due>> {
    let at = b.some_slice(|b, s| {
        !is_headless(b.service_of(s)) && b.is_used(s) && endpoints(s).iter().any(is_ready)
    })?;
    let like = b.slice(at).clone();
    let own = endpoints(&like).iter().filter(|e| is_ready(e)).count();
    // Another family may still be routed, but its Service's clients of this one are lost.
    let left = b.served(&like) - own;
    b.slice(at)["metadata"]["labels"][HEADLESS] = json!("");
    Some(vec![b.due(
        MetadataDrift,
        at,
        if left > 0 { Warning } else { Critical },
    )])
}

fn orphan(b: &mut Bench) -> Option<Vec<Due>> {
    let at = b.some_slice(|_, s| {
        !endpoints(s)
            .iter()
            .any(|e| e["conditions"]["terminating"] == true)
    })?;
    let mut copy = b.slice(at).clone();
    copy["metadata"]["ownerReferences"][0]["uid"] = json!("earlier");
    let at = b.add(copy);
    let slice = &b.items(SLICES)[at];
    let routed = b.is_used(slice) && endpoints(slice).iter().any(is_ready);
    Some(vec![b.due(
        OrphanSlice,
        at,
        if routed { Warning } else { Info },
    )])
}

fn leftover(b: &mut Bench) -> Option<Vec<Due>> {
    let at = b.some_slice(|_, s| {
        !endpoints(s)
            .iter()
            .any(|e| e["conditions"]["terminating"] == true)
    })?;
    let name = b.slice(at)["metadata"]["labels"][NAME].clone();
    b.items_mut(ENDPOINTS)
        .retain(|e| e["metadata"]["name"] != name);
    for service in b.items_mut(SERVICES) {
        if service["metadata"]["name"] == name {
            service["spec"].as_object_mut()?.remove("selector");
        }
    }
    let mut due = Vec::new();
    for n in 0..b.items(SLICES).len() {
        let slice = &b.items(SLICES)[n];
        if slice["metadata"]["labels"][NAME] == name {
            let all = endpoints(slice);
            let routed = all.iter().any(|e| b.is_routed(slice, e));
            let severity = if routed { Warning } else { Info };
            due.push(Due {
                remedy: NoHeal,
                ..b.due(LeftoverSlice, n, severity)
            });
        }
    }
    Some(due)
}

fn mirror_conflict(b: &mut Bench) -> Option<Vec<Due>> {
    let at = b.some_slice(|_, s| s["addressType"] == "IPv4")?;
    let mut slice = b.slice(at).clone();
    slice["metadata"]["labels"] =
        json!({NAME: slice["metadata"]["labels"][NAME], MANAGER: MIRRORING});
    slice["metadata"]["ownerReferences"][0]["kind"] = json!("Endpoints");
    slice["endpoints"] = json!([{"addresses": ["192.0.2.77"], "conditions": {"ready": true}}]);
    slice["ports"] = json!([{"name": "p0", "port": 8080, "protocol": "TCP"}]);
    let at = b.add(slice);
    Some(vec![Due {
        remedy: NoHeal,
        ..b.due(MirrorConflict, at, Critical)
    }])
}

fn mirror_drift(b: &mut Bench) -> Option<Vec<Due>> {
    let all: Vec<usize> = (0..b.items(SLICES).len())
        .filter(|n| b.items(SLICES)[*n]["metadata"]["labels"][MANAGER] == MIRRORING)
        .collect();
    let at = b.any(&all)?;
    let first = endpoints(&b.items(SLICES)[at]).iter().position(is_ready)?;
    b.endpoint(At(at, first))["addresses"] = json!(["192.0.2.77"]);
    Some(vec![Due {
        remedy: NoHeal,
        ..b.due(MirrorDrift, at, Critical)
    }])
}

fn endpoints_drift(b: &mut Bench) -> Option<Vec<Due>> {
    let selects = |b: &Bench, name: &Value| {
        let all = b.items(SERVICES);
        all.iter()
            .any(|s| s["metadata"]["name"] == *name && s["spec"].get("selector").is_some())
    };
    let all: Vec<usize> = (0..b.items(ENDPOINTS).len())
        .filter(|n| {
            let object = &b.items(ENDPOINTS)[*n];
            selects(b, &object["metadata"]["name"])
                && object["subsets"][0]["addresses"][0]["ip"].is_string()
        })
        .collect();
    let at = b.any(&all)?;
    let object = &mut b.items_mut(ENDPOINTS)[at];
    let ip = object["subsets"][0]["addresses"][0]["ip"].clone();
    for subset in object["subsets"].as_array_mut()? {
        for list in ["addresses", "notReadyAddresses"] {
            if let Some(addresses) = subset[list].as_array_mut() {
                addresses.retain(|a| a["ip"] != ip);
            }
        }
    }
    let service = text(&object["metadata"]["name"]);
    Some(vec![Due {
        kind: EndpointsDrift,
        service,
        slice: None,
        severity: Warning,
        remedy: RemedyAction::RefreshService,
    }])
}

fn foreign(b: &mut Bench) -> Option<Vec<Due>> {
    let at = b.some_slice(|_, s| s["addressType"] == "IPv4")?;
    let mut slice = b.slice(at).clone();
    slice["metadata"]["labels"][MANAGER] = json!("example.com/writer");
    slice["metadata"]["ownerReferences"] = json!([]);
    slice["endpoints"] = json!([{"addresses": ["192.0.2.77"], "conditions": {"ready": true},
        "targetRef": {"kind": "Pod", "name": "gone", "uid": "gone-uid",
                      "namespace": slice["metadata"]["namespace"]}}]);
    slice["ports"] = json!([{"name": "p0", "port": 8080, "protocol": "TCP"}]);
    let at = b.add(slice);
    Some(vec![Due {
        remedy: NoHeal,
        ..b.due(ForeignStale, at, Critical)
    }])
}

fn stuck(b: &mut Bench) -> Option<Vec<Due>> {
    let at = b.some_slice(|_, _| true)?;
    let meta = &mut b.slice(at)["metadata"];
    meta["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    meta["finalizers"] = json!(["example.com/keep"]);
    Some(vec![Due {
        remedy: NoHeal,
        ..b.due(StuckDeleting, at, Warning)
    }])
}

fn wedged(b: &mut Bench) -> Option<Vec<Due>> {
    // With ready endpoints in it, the Service would have none as far as the controller can tell.
    let at = b.some_slice(|b, s| {
        let own = endpoints(s).iter().filter(|e| is_ready(e)).count();
        own > 0 && b.is_used(s) && b.served(s) == own
    })?;
    let labels = b.slice(at)["metadata"]["labels"].as_object_mut()?;
    labels.remove(MANAGER);
    Some(vec![Due {
        remedy: NoHeal,
        ..b.due(ControllerWedged, at, Critical)
    }])
}
