//! What the slice controller should write for one Service: a function of the Service, its pods,
//! their nodes and the server version. Follows the controller's own rules (kubernetes/endpointslice
//! `utils.go` and `reconciler.go`, kubernetes `endpointslice_controller.go`).

use std::cell::OnceCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::context::JudgeContext;
use crate::model::{
    EndpointPort, IpFamily, Kind, Pod, Service, ServicePort, ServiceView, TargetPort, parse_address,
};

/// What the slices of one Service should say.
#[derive(Debug)]
pub(super) struct Expectation<'a> {
    /// Families that need at least one slice, in the Service's order.
    pub(super) families: Vec<IpFamily>,
    /// Endpoints, by family and pod name.
    pub(super) endpoints: Vec<Expected<'a>>,
    /// Port sets that endpoints refer to.
    pub(super) ports: Vec<Vec<EndpointPort>>,
    /// Whether a pod was left out because its node does not exist.
    pub(super) lost_node: bool,
    by_address: OnceCell<HashMap<(IpFamily, Vec<IpAddr>), usize>>,
}

/// One endpoint that should be there.
#[derive(Debug)]
pub(super) struct Expected<'a> {
    pub(super) family: IpFamily,
    pub(super) pod: &'a Pod,
    /// Of this family, in order.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) hostname: Option<&'a str>,
    pub(super) zone: Option<&'a str>,
    pub(super) ready: bool,
    pub(super) serving: bool,
    pub(super) terminating: bool,
    /// Index of its port set.
    pub(super) ports: usize,
    /// Index of the port set that servers before 1.33 write: without the ports of sidecars.
    pub(super) old_ports: usize,
}

impl<'a> Expectation<'a> {
    pub(super) fn new(
        service: &'a Service,
        pods: &[&'a Pod],
        view: &ServiceView<'a>,
        ctx: &JudgeContext,
    ) -> Self {
        let families = families(service);
        let mut sets = PortSets::new(service);
        let mut endpoints = Vec::with_capacity(pods.len() * families.len());
        let mut lost_node = false;
        for pod in pods
            .iter()
            .copied()
            .filter(|p| !p.is_terminal() && p.has_address())
        {
            let node = pod.spec.node_name.as_deref().filter(|n| !n.is_empty());
            let found = node.and_then(|n| view.node(n));
            let publish = service.spec.publish_not_ready_addresses;
            if found.is_none() && !publish && (view.seen(Kind::Node) || node.is_none()) {
                lost_node = true;
                continue;
            }
            let addresses: Vec<IpAddr> = pod.addresses().collect();
            let (ports, old_ports) = sets.of(pod, ctx);
            let serving = pod.is_ready();
            let terminating = pod.meta.is_deleting();
            for family in &families {
                let mut own: Vec<IpAddr> = addresses
                    .iter()
                    .copied()
                    .filter(|a| family_of(*a) == *family)
                    .collect();
                if own.is_empty() {
                    continue;
                }
                own.sort_unstable();
                endpoints.push(Expected {
                    family: *family,
                    pod,
                    addresses: own,
                    hostname: hostname(pod, service),
                    zone: found.and_then(crate::model::Node::zone),
                    ready: publish || (serving && !terminating),
                    serving,
                    terminating,
                    ports,
                    old_ports,
                });
            }
        }
        Self {
            families,
            endpoints,
            ports: sets.sets,
            lost_node,
            by_address: OnceCell::new(),
        }
    }

    /// The endpoints of a pod in a family.
    pub(super) fn of_pod(&self, family: IpFamily, pod: &str) -> Option<(usize, &Expected<'a>)> {
        // Pods come in order of name, so the endpoints do.
        let start = self
            .endpoints
            .partition_point(|e| e.pod.meta.name.as_ref() < pod);
        self.endpoints
            .iter()
            .enumerate()
            .skip(start)
            .take_while(|(_, e)| e.pod.meta.name.as_ref() == pod)
            .find(|(_, e)| e.family == family)
    }

    /// An endpoint with exactly these addresses, a ready one if there is one.
    pub(super) fn at(&self, family: IpFamily, addresses: Vec<IpAddr>) -> Option<usize> {
        let index = self.by_address.get_or_init(|| {
            let order = |ready| {
                self.endpoints
                    .iter()
                    .enumerate()
                    .filter(move |(_, e)| e.ready == ready)
            };
            // The later insert wins.
            order(false)
                .chain(order(true))
                .map(|(index, e)| ((e.family, e.addresses.clone()), index))
                .collect()
        });
        index.get(&(family, addresses)).copied()
    }

    /// Whether traffic should reach it: ready, and with a port that a proxy can send it to.
    pub(super) fn is_usable(&self, expected: &Expected<'_>, service: &Service) -> bool {
        expected.ready && (service.is_headless() || !self.ports(expected.ports).is_empty())
    }

    /// A port set.
    pub(super) fn ports(&self, index: usize) -> &[EndpointPort] {
        self.ports.get(index).map_or(&[], Vec::as_slice)
    }
}

/// The family of an address.
pub(super) fn family_of(address: IpAddr) -> IpFamily {
    if address.is_ipv4() {
        IpFamily::IPv4
    } else {
        IpFamily::IPv6
    }
}

/// The families that a Service has slices of. A Service from before dual-stack has none noted.
pub(super) fn families(service: &Service) -> Vec<IpFamily> {
    let mut families = service.spec.ip_families.clone();
    if families.is_empty() {
        match service.spec.cluster_ip.as_deref().and_then(parse_address) {
            Some(address) => families.push(family_of(address)),
            None => families.extend([IpFamily::IPv4, IpFamily::IPv6]),
        }
    }
    families.dedup();
    families
}

fn hostname<'a>(pod: &'a Pod, service: &Service) -> Option<&'a str> {
    pod.spec.hostname.as_deref().filter(|h| {
        !h.is_empty() && pod.spec.subdomain.as_deref() == Some(service.meta.name.as_ref())
    })
}

/// The port sets of a Service's pods. Pods of one workload share their containers, so most sets are
/// found by the pointer.
struct PortSets<'a> {
    service: &'a Service,
    sets: Vec<Vec<EndpointPort>>,
    by_set: HashMap<Vec<EndpointPort>, usize>,
    by_containers: HashMap<(usize, usize), (usize, usize)>,
    /// Without named target ports the pod does not matter.
    same_for_all: Option<(usize, usize)>,
}

impl<'a> PortSets<'a> {
    fn new(service: &'a Service) -> Self {
        Self {
            service,
            sets: Vec::new(),
            by_set: HashMap::new(),
            by_containers: HashMap::new(),
            same_for_all: None,
        }
    }

    fn of(&mut self, pod: &Pod, ctx: &JudgeContext) -> (usize, usize) {
        if let Some(all) = self.same_for_all {
            return all;
        }
        let pointer = (
            Arc::as_ptr(&pod.spec.containers).cast::<()>().addr(),
            Arc::as_ptr(&pod.spec.init_containers).cast::<()>().addr(),
        );
        if let Some(found) = self.by_containers.get(&pointer) {
            return *found;
        }
        let new = self.index(ports(self.service, pod, true));
        let is_new_for_sure = ctx.server.is_some() && ctx.is_at_least(33);
        let old = if is_new_for_sure {
            new
        } else {
            self.index(ports(self.service, pod, false))
        };
        let named = |p: &ServicePort| matches!(p.target_port, Some(TargetPort::Name(_)));
        if !self.service.spec.ports.iter().any(named) {
            self.same_for_all = Some((new, old));
        }
        self.by_containers.insert(pointer, (new, old));
        (new, old)
    }

    fn index(&mut self, set: Vec<EndpointPort>) -> usize {
        if let Some(index) = self.by_set.get(&set) {
            return *index;
        }
        self.sets.push(set.clone());
        self.by_set.insert(set, self.sets.len() - 1);
        self.sets.len() - 1
    }
}

/// The ports of a pod behind a Service, sorted. A named port that the pod lacks is left out.
fn ports(service: &Service, pod: &Pod, sidecars: bool) -> Vec<EndpointPort> {
    let mut all: Vec<EndpointPort> = service
        .spec
        .ports
        .iter()
        .filter_map(|port| {
            Some(EndpointPort {
                name: port.name.clone(),
                protocol: port.protocol,
                port: Some(resolve(port, pod, sidecars)?),
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect();
    all.sort_unstable();
    all
}

/// The number behind a Service's port in a pod.
pub(super) fn resolve(port: &ServicePort, pod: &Pod, sidecars: bool) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(TargetPort::Number(number)) => return Some(*number),
        Some(TargetPort::Name(name)) => name,
    };
    let extra = pod
        .spec
        .init_containers
        .iter()
        .filter(|c| sidecars && c.is_sidecar());
    pod.spec
        .containers
        .iter()
        .chain(extra)
        .flat_map(|c| &c.ports)
        .find(|p| p.name == *name && p.protocol == port.protocol)
        .map(|p| p.container_port)
}
