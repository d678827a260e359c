//! One test per manager and per condition of the gate.

use super::*;
use crate::model::{
    CONTROLLER, Labels, MANAGED_BY, MIRRORING, OwnerReference, SERVICE_NAME, ServiceSpec,
};

struct Case {
    key: ServiceKey,
    service: Option<Service>,
    namespace: Option<Namespace>,
    slice: Option<Slice>,
    scope: Scope,
    delete_leftover: bool,
    load_balancers: LoadBalancers,
}

impl Case {
    fn right() -> Self {
        let meta = |name: &str, uid: &str| Meta {
            namespace: "line1".into(),
            name: name.into(),
            uid: uid.into(),
            resource_version: "7".into(),
            ..Meta::default()
        };
        let mut slice = Slice {
            meta: meta("model-x1", "slice-uid"),
            ..Slice::default()
        };
        slice.meta.labels = [(SERVICE_NAME, "model"), (MANAGED_BY, CONTROLLER)]
            .into_iter()
            .collect();
        slice.meta.owner_references = vec![owner("Service", "svc-uid")];
        Self {
            key: ServiceKey::new("line1", "model"),
            service: Some(Service::new(
                meta("model", "svc-uid"),
                ServiceSpec {
                    selector: Some([("app", "model")].into_iter().collect()),
                    ..ServiceSpec::default()
                },
            )),
            namespace: Some(Namespace::new(Meta {
                name: "line1".into(),
                ..Meta::default()
            })),
            slice: Some(slice),
            scope: Scope::default(),
            delete_leftover: false,
            load_balancers: LoadBalancers::Slow,
        }
    }

    fn both(&self) -> [Result<(), HoldReason>; 2] {
        let input = GateInput {
            key: &self.key,
            service: self.service.as_ref(),
            namespace: self.namespace.as_ref(),
            slice: self.slice.as_ref(),
            scope: &self.scope,
            delete_leftover: self.delete_leftover,
            load_balancers: self.load_balancers,
        };
        [refresh(&input), delete(&input)]
    }

    fn slice(mut self, change: impl FnOnce(&mut Slice)) -> Self {
        change(self.slice.as_mut().unwrap());
        self
    }

    fn service(mut self, change: impl FnOnce(&mut Service)) -> Self {
        change(self.service.as_mut().unwrap());
        self
    }

    fn managed_by(self, manager: Option<&str>) -> Self {
        self.slice(|s| {
            s.meta.labels = std::iter::once((SERVICE_NAME, "model"))
                .chain(manager.map(|m| (MANAGED_BY, m)))
                .collect();
        })
    }
}

fn owner(kind: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: kind.into(),
        name: "model".into(),
        uid: uid.into(),
        controller: true,
    }
}

#[track_caller]
fn held(case: &Case, reason: HoldReason) {
    assert_eq!(case.both(), [Err(reason), Err(reason)]);
}

#[test]
fn the_controllers_own_slice_of_a_living_service_passes() {
    assert_eq!(Case::right().both(), [Ok(()), Ok(())]);
}

#[test]
fn reasons_are_those_of_the_contract() {
    assert_eq!(HoldReason::ALL.len(), 22);
    for reason in HoldReason::ALL {
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
    }
}

#[test]
fn mirrored_slices_are_never_touched() {
    held(
        &Case::right().managed_by(Some(MIRRORING)),
        HoldReason::NotManaged,
    );
}

#[test]
fn slices_that_nobody_marks_are_never_touched() {
    held(&Case::right().managed_by(None), HoldReason::NotManaged);
    held(&Case::right().managed_by(Some("")), HoldReason::NotManaged);
}

#[test]
fn cilium_cluster_mesh_is_never_touched() {
    let case = Case::right().managed_by(Some("endpointslice-mesh-controller.cilium.io"));
    held(&case, HoldReason::NotManaged);
}

#[test]
fn submariner_is_never_touched() {
    held(
        &Case::right().managed_by(Some("lighthouse-agent.submariner.io")),
        HoldReason::NotManaged,
    );
}

#[test]
fn ovn_kubernetes_is_never_touched() {
    let case = Case::right().managed_by(Some("endpointslice-mirror-controller.k8s.ovn.org"));
    held(&case, HoldReason::NotManaged);
}

/// Knative, KubeVirt, Patroni and others write slices of Services without a selector, and
/// some own them as the controller does.
#[test]
fn slices_of_custom_writers_are_never_touched() {
    for manager in [
        "knative.dev",
        "kubevirt.io",
        "patroni",
        "endpointslice-controller.k8s.io.example.com",
        "Endpointslice-Controller.k8s.io",
    ] {
        let mut case = Case::right().managed_by(Some(manager));
        held(&case, HoldReason::NotManaged);
        case.delete_leftover = true;
        let without_selector = case.service(|s| s.spec.selector = None);
        held(&without_selector, HoldReason::NotManaged);
    }
}

#[test]
fn talos_is_never_touched() {
    let mut case = Case::right()
        .managed_by(None)
        .service(|s| s.spec.selector = None);
    case.key = ServiceKey::new("default", "talos");
    case = case
        .service(|s| {
            s.meta.namespace = "default".into();
            s.meta.name = "talos".into();
        })
        .slice(|s| {
            s.meta.namespace = "default".into();
            s.meta.name = "talos-ipv4".into();
            s.meta.owner_references.clear();
        });
    held(&case, HoldReason::NotManaged);
}

#[test]
fn kubelet_slices_of_the_prometheus_operator_are_never_touched() {
    let case = Case::right()
        .managed_by(Some("prometheus-operator"))
        .slice(|s| s.meta.owner_references.clear());
    held(&case, HoldReason::NotManaged);
}

#[test]
fn service_with_healthchecks_is_never_touched() {
    held(
        &Case::right().managed_by(Some("service-with-healthchecks")),
        HoldReason::NotManaged,
    );
}

#[test]
fn the_api_servers_own_slice_is_never_touched() {
    let mut case = Case::right()
        .service(|s| {
            s.meta.namespace = "default".into();
            s.meta.name = "kubernetes".into();
        })
        .slice(|s| s.meta.namespace = "default".into());
    case.key = ServiceKey::new("default", "kubernetes");
    held(&case, HoldReason::NotManaged);
}

#[test]
fn services_that_the_controller_does_not_look_at_are_left_alone() {
    held(
        &Case::right().service(|s| s.spec.selector = None),
        HoldReason::NotManaged,
    );
    held(
        &Case::right().service(|s| s.spec.selector = Some(Labels::default())),
        HoldReason::NotManaged,
    );
    held(
        &Case::right().service(|s| s.spec.service_type = ServiceType::ExternalName),
        HoldReason::NotManaged,
    );
}

#[test]
fn a_leftover_may_be_deleted_behind_its_setting_but_never_refreshed() {
    let mut case = Case::right().service(|s| s.spec.selector = None);
    case.delete_leftover = true;
    assert_eq!(case.both(), [Err(HoldReason::NotManaged), Ok(())]);
    let another = case.slice(|s| s.meta.owner_references = vec![owner("Service", "old-uid")]);
    held(&another, HoldReason::NotManaged);
}

#[test]
fn an_orphan_passes_while_a_service_of_that_name_lives() {
    let mut case =
        Case::right().slice(|s| s.meta.owner_references = vec![owner("Service", "old-uid")]);
    assert_eq!(case.both(), [Ok(()), Ok(())]);
    case.service = None;
    held(&case, HoldReason::NotManaged);
}

#[test]
fn an_owner_that_is_not_exactly_one_controlling_service_is_refused() {
    for owners in [
        vec![],
        vec![owner("Service", "svc-uid"), owner("Service", "svc-uid")],
        vec![owner("Endpoints", "svc-uid")],
        vec![OwnerReference {
            controller: false,
            ..owner("Service", "svc-uid")
        }],
        vec![OwnerReference {
            name: "other".into(),
            ..owner("Service", "svc-uid")
        }],
        vec![owner("Service", "")],
    ] {
        held(
            &Case::right().slice(|s| s.meta.owner_references = owners),
            HoldReason::NotManaged,
        );
    }
}

#[test]
fn a_slice_of_another_service_is_refused() {
    let case = Case::right().slice(|s| {
        s.meta.labels = [(SERVICE_NAME, "other"), (MANAGED_BY, CONTROLLER)]
            .into_iter()
            .collect();
    });
    held(&case, HoldReason::NotManaged);
}

#[test]
fn what_is_going_away_is_left_alone() {
    let at = Some(jiff::Timestamp::UNIX_EPOCH);
    held(
        &Case::right().slice(|s| s.meta.deletion_timestamp = at),
        HoldReason::Deleting,
    );
    held(
        &Case::right().service(|s| s.meta.deletion_timestamp = at),
        HoldReason::Deleting,
    );
    let mut case = Case::right();
    case.namespace.as_mut().unwrap().meta.deletion_timestamp = at;
    held(&case, HoldReason::Deleting);
}

#[test]
fn finalizers_hold() {
    held(
        &Case::right().slice(|s| s.meta.finalizers = vec!["example.com/keep".into()]),
        HoldReason::Finalizer,
    );
}

#[test]
fn the_annotation_opts_out_on_service_slice_and_namespace() {
    let ignore: Labels = [(IGNORE, "true")].into_iter().collect();
    held(
        &Case::right().slice(|s| s.meta.annotations = ignore.clone()),
        HoldReason::OptedOut,
    );
    held(
        &Case::right().service(|s| s.meta.annotations = ignore.clone()),
        HoldReason::OptedOut,
    );
    let mut case = Case::right();
    case.namespace.as_mut().unwrap().meta.annotations = ignore;
    held(&case, HoldReason::OptedOut);
    let other: Labels = [(IGNORE, "false")].into_iter().collect();
    let case = Case::right().service(|s| s.meta.annotations = other);
    assert_eq!(case.both(), [Ok(()), Ok(())]);
}

#[test]
fn scope_holds() {
    let mut case = Case::right();
    case.scope.exclude_namespaces = vec!["line1".into()];
    held(&case, HoldReason::NotInScope);
    case.scope = Scope {
        namespaces: vec!["line2".into()],
        ..Scope::default()
    };
    held(&case, HoldReason::NotInScope);
    case.scope = Scope {
        service_selector: vec![("heal".into(), "yes".into())],
        ..Scope::default()
    };
    held(&case, HoldReason::NotInScope);
    case.service.as_mut().unwrap().meta.labels = [("heal", "yes")].into_iter().collect();
    assert_eq!(case.both(), [Ok(()), Ok(())]);
}

#[test]
fn load_balancers_can_be_left_alone() {
    let mut case = Case::right().service(|s| s.spec.service_type = ServiceType::LoadBalancer);
    assert_eq!(case.both(), [Ok(()), Ok(())]);
    case.load_balancers = LoadBalancers::Skip;
    held(&case, HoldReason::LoadBalancer);
}

#[test]
fn something_missing_may_be_refreshed_but_there_is_nothing_to_delete() {
    let mut case = Case::right();
    case.slice = None;
    assert_eq!(case.both(), [Ok(()), Err(HoldReason::NotManaged)]);
}
