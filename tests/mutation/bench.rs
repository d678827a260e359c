//! A dump that is about to be corrupted: finds targets in it and says what traffic does, from the
//! rules of the proxies and not from the judge.

use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use slice_core::judge::{Finding, FindingKind, RemedyAction, Severity};

pub(super) const NODES: usize = 0;
pub(super) const SERVICES: usize = 1;
pub(super) const PODS: usize = 2;
pub(super) const ENDPOINTS: usize = 3;
pub(super) const SLICES: usize = 4;
pub(super) const MANAGER: &str = "endpointslice.kubernetes.io/managed-by";
pub(super) const NAME: &str = "kubernetes.io/service-name";
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";
pub(super) const CONTROLLER: &str = "endpointslice-controller.k8s.io";
pub(super) const MIRRORING: &str = "endpointslicemirroring-controller.k8s.io";

/// One finding that must be made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    pub(super) kind: FindingKind,
    pub(super) service: String,
    pub(super) slice: Option<String>,
    pub(super) severity: Severity,
    pub(super) remedy: RemedyAction,
}

impl Due {
    pub(super) fn of(finding: &Finding) -> Self {
        Self {
            kind: finding.kind,
            service: finding.service.clone().unwrap_or_default(),
            slice: finding.slice.clone(),
            severity: finding.severity,
            remedy: finding.remedy.action,
        }
    }
}

/// The dump, a source of chance, and what a corruption may ask of them.
pub(super) struct Bench {
    pub(super) lists: Vec<Value>,
    pub(super) rng: StdRng,
}

/// Where an endpoint is: index of its slice, its own index.
#[derive(Clone, Copy)]
pub(super) struct At(pub(super) usize, pub(super) usize);

impl Bench {
    pub(super) fn items(&self, list: usize) -> &[Value] {
        self.lists[list]["items"]
            .as_array()
            .map_or(&[], Vec::as_slice)
    }

    #[expect(clippy::expect_used, reason = "a dump is made of lists")]
    pub(super) fn items_mut(&mut self, list: usize) -> &mut Vec<Value> {
        self.lists[list]["items"].as_array_mut().expect("a list")
    }

    pub(super) fn slice(&mut self, at: usize) -> &mut Value {
        &mut self.items_mut(SLICES)[at]
    }

    pub(super) fn endpoint(&mut self, at: At) -> &mut Value {
        &mut self.slice(at.0)["endpoints"][at.1]
    }

    pub(super) fn any<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.rng.random_range(0..from.len())])
    }

    pub(super) fn service_of(&self, slice: &Value) -> &Value {
        let name = &slice["metadata"]["labels"][NAME];
        let found = self
            .items(SERVICES)
            .iter()
            .find(|s| s["metadata"]["name"] == *name);
        found.unwrap_or(&Value::Null)
    }

    /// Whether proxies or DNS use a slice at all.
    pub(super) fn is_used(&self, slice: &Value) -> bool {
        is_headless(self.service_of(slice))
            || slice["ports"].as_array().is_some_and(|p| !p.is_empty())
    }

    /// Some slice of the controller that fits.
    pub(super) fn some_slice(&mut self, fits: impl Fn(&Self, &Value) -> bool) -> Option<usize> {
        let all: Vec<usize> = (0..self.items(SLICES).len())
            .filter(|n| {
                let slice = &self.items(SLICES)[*n];
                slice["metadata"]["labels"][MANAGER] == CONTROLLER && fits(self, slice)
            })
            .collect();
        self.any(&all)
    }

    /// Some endpoint of the controller's slices that fits.
    pub(super) fn some_endpoint(
        &mut self,
        fits: impl Fn(&Self, &Value, &Value) -> bool,
    ) -> Option<At> {
        let mut all = Vec::new();
        for (n, slice) in self.items(SLICES).iter().enumerate() {
            if slice["metadata"]["labels"][MANAGER] != CONTROLLER {
                continue;
            }
            for (m, endpoint) in endpoints(slice).iter().enumerate() {
                if fits(self, slice, endpoint) {
                    all.push(At(n, m));
                }
            }
        }
        self.any(&all)
    }

    /// Used ready endpoints of a slice's Service and family.
    pub(super) fn served(&self, like: &Value) -> usize {
        self.items(SLICES)
            .iter()
            .filter(|s| {
                s["metadata"]["labels"][NAME] == like["metadata"]["labels"][NAME]
                    && s["addressType"] == like["addressType"]
                    && self.is_used(s)
            })
            .flat_map(endpoints)
            .filter(|e| is_ready(e))
            .count()
    }

    /// Whether traffic reaches an endpoint: it is ready, or it serves while it terminates and the
    /// proxies have nothing ready for one of its slice's ports.
    pub(super) fn is_routed(&self, like: &Value, endpoint: &Value) -> bool {
        let ports = |s: &Value| -> Vec<(Value, Value)> {
            let all = s["ports"].as_array().map_or(&[][..], Vec::as_slice);
            let all = all.iter().filter(|p| !p["port"].is_null());
            all.map(|p| (p["name"].clone(), p["protocol"].clone()))
                .collect()
        };
        let proxied = |s: &&Value| {
            s["metadata"]["labels"][NAME] == like["metadata"]["labels"][NAME]
                && s["addressType"] == like["addressType"]
                && endpoints(s).iter().any(is_ready)
        };
        let served: Vec<_> = self
            .items(SLICES)
            .iter()
            .filter(proxied)
            .flat_map(ports)
            .collect();
        let ends = |e: &Value| {
            e["conditions"]["serving"] == true && e["conditions"]["terminating"] == true
        };
        let falls_back = !is_headless(self.service_of(like))
            && ports(like).iter().any(|port| !served.contains(port));
        self.is_used(like) && (is_ready(endpoint) || (ends(endpoint) && falls_back))
    }

    /// Whether a node of this name exists.
    pub(super) fn has_node(&self, name: &Value) -> bool {
        self.items(NODES)
            .iter()
            .any(|n| n["metadata"]["name"] == *name)
    }

    pub(super) fn due(&self, kind: FindingKind, slice: usize, severity: Severity) -> Due {
        let slice = &self.items(SLICES)[slice];
        Due {
            kind,
            service: text(&slice["metadata"]["labels"][NAME]),
            slice: Some(text(&slice["metadata"]["name"])),
            severity,
            remedy: RemedyAction::RefreshService,
        }
    }

    pub(super) fn address(&self, slice: usize) -> Value {
        let v6 = self.items(SLICES)[slice]["addressType"] == "IPv6";
        json!(if v6 { "2001:db8::77" } else { "192.0.2.77" })
    }

    /// Adds a slice like another one.
    pub(super) fn add(&mut self, mut slice: Value) -> usize {
        slice["metadata"]["name"] = json!("added");
        slice["metadata"]["uid"] = json!("added-uid");
        self.items_mut(SLICES).push(slice);
        self.items(SLICES).len() - 1
    }
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn endpoints(slice: &Value) -> &[Value] {
    slice["endpoints"].as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn is_ready(endpoint: &Value) -> bool {
    endpoint["conditions"]["ready"] == true
}

pub(super) fn is_headless(service: &Value) -> bool {
    service["spec"]["clusterIP"] == "None"
}
