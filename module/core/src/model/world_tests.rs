//! The index against a world that is built afresh: whatever happens in whatever order, both hold
//! the same, and a change names exactly the Services that it concerns.

use proptest::prelude::*;

use super::*;
use crate::model::{
    CONTROLLER, Endpoint, Labels, MANAGED_BY, Meta, PodIp, PodSpec, PodStatus, SERVICE_NAME,
    ServiceSpec, TargetRef,
};

fn meta(name: &str, version: u32) -> Meta {
    Meta {
        namespace: "a".into(),
        name: name.into(),
        uid: format!("uid-{name}").into(),
        resource_version: version.to_string().into(),
        ..Meta::default()
    }
}

fn labels(entries: &[(&str, &str)]) -> Labels {
    entries.iter().copied().collect()
}

fn service(name: &str, selector: &[(&str, &str)], version: u32) -> Service {
    Service::new(
        meta(name, version),
        ServiceSpec {
            selector: Some(labels(selector)),
            ..ServiceSpec::default()
        },
    )
}

fn pod(name: &str, own: &[(&str, &str)], node: &str, ip: &str, version: u32) -> Pod {
    let mut meta = meta(name, version);
    meta.labels = labels(own);
    Pod::new(
        meta,
        PodSpec {
            node_name: Some(node.into()),
            ..PodSpec::default()
        },
        PodStatus {
            pod_ips: vec![PodIp { ip: ip.into() }],
            ..PodStatus::default()
        },
    )
}

fn slice(name: &str, of: &str, pods: &[&str], version: u32) -> Slice {
    let mut meta = meta(name, version);
    meta.labels = labels(&[(SERVICE_NAME, of), (MANAGED_BY, CONTROLLER)]);
    let endpoints = pods
        .iter()
        .map(|pod| Endpoint {
            target_ref: Some(TargetRef {
                kind: "Pod".into(),
                namespace: "a".into(),
                name: (*pod).into(),
                ..TargetRef::default()
            }),
            ..Endpoint::default()
        })
        .collect();
    Slice {
        meta,
        endpoints,
        ..Slice::default()
    }
}

fn node(name: &str, zone: &str, version: u32) -> Node {
    let mut meta = meta(name, version);
    meta.namespace = "".into();
    meta.labels = labels(&[("topology.kubernetes.io/zone", zone)]);
    Node {
        meta,
        ..Node::default()
    }
}

fn names(touched: &Touched) -> Vec<String> {
    touched.iter().map(|k| k.name.to_string()).collect()
}

fn two_services() -> World {
    let mut world = World::default();
    world.apply(service("web", &[("app", "web")], 1));
    world.apply(service("db", &[("app", "db"), ("tier", "back")], 1));
    world
}

#[test]
fn a_pod_touches_the_services_that_select_it_before_or_after() {
    let mut world = two_services();
    let touched = world.apply(pod("p", &[("app", "web")], "n1", "10.0.0.1", 1));
    assert_eq!(names(&touched), ["web"]);
    let touched = world.apply(pod(
        "p",
        &[("app", "db"), ("tier", "back")],
        "n1",
        "10.0.0.1",
        2,
    ));
    assert_eq!(names(&touched), ["db", "web"]);
    let touched = world.apply(pod("p", &[("app", "db")], "n1", "10.0.0.1", 3));
    assert_eq!(names(&touched), ["db"], "half a selector selects nothing");
    let gone = ObjectRef {
        kind: Kind::Pod,
        namespace: Some("a".into()),
        name: "p".into(),
    };
    assert!(world.delete(&gone).is_empty());
}

#[test]
fn a_pod_touches_the_services_whose_slices_name_it_even_before_it_exists() {
    let mut world = two_services();
    world.apply(slice("web-1", "web", &["p"], 1));
    assert_eq!(
        names(&world.apply(pod("p", &[], "n1", "10.0.0.1", 1))),
        ["web"]
    );
    world.apply(slice("web-1", "web", &[], 2));
    assert!(world.apply(pod("p", &[], "n1", "10.0.0.1", 2)).is_empty());
}

#[test]
fn a_node_touches_only_when_what_is_judged_changes() {
    let mut world = two_services();
    world.apply(pod("p", &[("app", "web")], "n1", "10.0.0.1", 1));
    assert_eq!(names(&world.apply(node("n1", "z1", 1))), ["web"]);
    assert!(world.apply(node("n1", "z1", 2)).is_empty(), "a heartbeat");
    assert_eq!(names(&world.apply(node("n1", "z2", 3))), ["web"]);
    assert!(world.apply(node("n2", "z1", 1)).is_empty());
}

#[test]
fn any_node_matters_to_a_service_that_keeps_traffic_local() {
    let mut world = two_services();
    let mut local = service("web", &[("app", "web")], 2);
    local.spec.internal_traffic_policy = crate::model::TrafficPolicy::Local;
    world.apply(local);
    assert_eq!(names(&world.apply(node("n9", "z1", 1))), ["web"]);
    world.apply(service("web", &[("app", "web")], 3));
    assert!(world.apply(node("n8", "z1", 1)).is_empty());
}

#[test]
fn pods_on_one_address_touch_each_others_services() {
    let mut world = two_services();
    world.apply(pod("p", &[("app", "web")], "n1", "10.0.0.1", 1));
    let touched = world.apply(pod(
        "q",
        &[("app", "db"), ("tier", "back")],
        "n1",
        "10.0.0.1",
        1,
    ));
    assert_eq!(names(&touched), ["db", "web"]);
}

#[test]
fn a_reset_finds_what_vanished_and_leaves_the_unchanged_alone() {
    let mut world = two_services();
    world.set_seen(Kind::Pod, true);
    world.apply(pod("p", &[("app", "web")], "n1", "10.0.0.1", 1));
    world.apply(pod(
        "q",
        &[("app", "db"), ("tier", "back")],
        "n1",
        "10.0.0.2",
        1,
    ));
    let list = vec![pod("q", &[("app", "db"), ("tier", "back")], "n1", "10.0.0.2", 1).into()];
    assert_eq!(names(&world.reset(Kind::Pod, list)), ["web"]);
    assert_eq!(world.counts().pods, 1);
}

#[test]
fn the_fingerprint_moves_with_what_is_judged_and_only_with_that() {
    let key = ServiceKey::new("a", "web");
    let mut world = two_services();
    world.apply(slice("web-1", "web", &["p"], 1));
    world.apply(pod("p", &[("app", "web")], "n1", "10.0.0.1", 1));
    world.apply(node("n1", "z1", 1));
    let print = |world: &World| world.view(&key).fingerprint();
    let before = print(&world);
    world.apply(pod("x", &[("app", "db")], "n1", "10.0.0.9", 1));
    world.apply(node("n1", "z1", 2));
    assert_eq!(print(&world), before);
    world.apply(node("n1", "z2", 3));
    let moved = print(&world);
    assert_ne!(moved, before);
    world.apply(slice("web-1", "web", &["p"], 2));
    assert_ne!(print(&world), moved);
}

#[test]
fn a_slice_is_seen_by_the_service_that_it_names_and_by_the_one_that_owns_it() {
    let mut world = two_services();
    let mut stray = slice("web-1", "db", &[], 1);
    stray.meta.owner_references = vec![crate::model::OwnerReference {
        kind: "Service".into(),
        name: "web".into(),
        controller: true,
        ..Default::default()
    }];
    assert_eq!(names(&world.apply(stray)), ["db", "web"]);
    let view = world.view(&ServiceKey::new("a", "web"));
    assert_eq!((view.slices().count(), view.strays().count()), (0, 1));
    let view = world.view(&ServiceKey::new("a", "db"));
    assert_eq!((view.slices().count(), view.strays().count()), (1, 0));
}

#[derive(Clone, Debug)]
enum Step {
    Service(u8, u8, bool),
    Pod(u8, u8, u8),
    Slice(u8, u8, u8),
    Node(u8, u8),
    Delete(u8, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let small = 0_u8..4;
    let step = prop_oneof![
        (small.clone(), small.clone(), any::<bool>()).prop_map(|(a, b, c)| Step::Service(a, b, c)),
        (small.clone(), small.clone(), small.clone()).prop_map(|(a, b, c)| Step::Pod(a, b, c)),
        (small.clone(), small.clone(), small.clone()).prop_map(|(a, b, c)| Step::Slice(a, b, c)),
        (small.clone(), small.clone()).prop_map(|(a, b)| Step::Node(a, b)),
        (small.clone(), small).prop_map(|(a, b)| Step::Delete(a, b)),
    ];
    proptest::collection::vec(step, 0..60)
}

fn object(step: &Step, version: u32) -> Option<Object> {
    let app = |n: &u8| format!("app-{n}");
    Some(match step {
        Step::Service(name, selects, more) => {
            let app = app(selects);
            let mut selector = vec![("app", app.as_str())];
            if *more {
                selector.push(("tier", "back"));
            }
            service(&format!("s{name}"), &selector, version).into()
        }
        Step::Pod(name, is, address) => {
            let own = [
                ("app", app(is)),
                ("tier", if is % 2 == 0 { "back" } else { "front" }.into()),
            ];
            let own: Vec<(&str, &str)> = own.iter().map(|(k, v)| (*k, v.as_str())).collect();
            pod(
                &format!("p{name}"),
                &own,
                &format!("n{address}"),
                &format!("10.0.0.{address}"),
                version,
            )
            .into()
        }
        Step::Slice(name, of, pod) => slice(
            &format!("e{name}"),
            &format!("s{of}"),
            &[&format!("p{pod}")],
            version,
        )
        .into(),
        Step::Node(name, zone) => node(&format!("n{name}"), &format!("z{zone}"), version).into(),
        Step::Delete(..) => return None,
    })
}

fn target(kind: u8, name: u8) -> ObjectRef {
    let (kind, letter) = match kind {
        0 => (Kind::Service, "s"),
        1 => (Kind::Pod, "p"),
        2 => (Kind::EndpointSlice, "e"),
        _ => (Kind::Node, "n"),
    };
    ObjectRef {
        kind,
        namespace: kind.is_namespaced().then(|| "a".to_owned()),
        name: format!("{letter}{name}"),
    }
}

proptest! {
    /// What is indexed step by step is what would be indexed at once, and no step changes a
    /// Service's fingerprint or findings without touching it (but for the hints in a message, such as
    /// the nearest labels, which may name pods that are not the Service's).
    #[test]
    fn changes_add_up_and_touch_what_they_concern(steps in steps()) {
        let mut world = World::default();
        for kind in Kind::ALL {
            world.set_seen(kind, true);
        }
        let mut left: std::collections::BTreeMap<ObjectRef, Object> = Default::default();
        let ctx = crate::judge::JudgeContext::at(jiff::Timestamp::UNIX_EPOCH);
        let keys: Vec<ServiceKey> =
            (0..4).map(|n| ServiceKey::new("a", format!("s{n}"))).collect();
        for (version, step) in steps.iter().enumerate() {
            let judged = |world: &World| -> Vec<_> {
                keys.iter()
                    .map(|k| {
                        let view = world.view(k);
                        (
                            view.fingerprint(),
                            crate::judge::judge_service(&view, &ctx)
                                .into_iter()
                                .map(|f| (f.id(), f.severity, f.remedy))
                                .collect::<Vec<_>>(),
                        )
                    })
                    .collect()
            };
            let before = judged(&world);
            let touched = match (object(step, u32::try_from(version).unwrap()), step) {
                (Some(object), _) => {
                    left.insert(object.reference(), object.clone());
                    world.apply(object)
                }
                (None, Step::Delete(kind, name)) => {
                    left.remove(&target(*kind, *name));
                    world.delete(&target(*kind, *name))
                }
                (None, _) => unreachable!(),
            };
            for ((key, before), after) in keys.iter().zip(before).zip(judged(&world)) {
                prop_assert!(before == after || touched.contains(key), "{key} changed untouched");
            }
        }
        let mut fresh = World::default();
        for kind in Kind::ALL {
            fresh.reset(kind, left.values().filter(|o| o.kind() == kind).cloned().collect());
        }
        prop_assert_eq!(world.counts(), fresh.counts());
        let all: Vec<ServiceKey> = world.services().collect();
        prop_assert_eq!(&all, &fresh.services().collect::<Vec<_>>());
        for key in &all {
            prop_assert_eq!(world.view(key).fingerprint(), fresh.view(key).fingerprint());
        }
        prop_assert_eq!(
            crate::judge::judge_world(&world, &ctx),
            crate::judge::judge_world(&fresh, &ctx)
        );
    }
}
