//! A cluster on paper for the engine: objects, and a slice controller with a character. It carries
//! out the engine's actions at once and moves a clock of its own.

mod objects;
mod restart;
mod rollout;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use slice_core::engine::Engine;
use slice_core::event::{
    Act, CanaryAnswer, ClusterInput, Command, CommandId, Event, EventType, HealOutcome, Input,
    LeaseAnswer, Link, Now, Outcome, Output, Reply, Request, Snapshot,
};
use slice_core::heal::clues::Clues;
use slice_core::heal::policy::{Mode, Policy};
use slice_core::heal::record::{History, Record};
use slice_core::model::{Kind, Object, ObjectRef, ServiceKey};

pub(crate) use objects::slice_name;
pub(crate) use restart::Kill;

use objects::{decode, endpoint};

/// How the slice controller answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Character {
    /// A refresh makes it write the slices anew.
    Right,
    /// It takes its cache for right; only a slice that is gone is written anew, upon a refresh.
    CacheHit,
    /// It does nothing at all.
    Deaf,
}

/// The engine, a cluster, and what happened.
pub(crate) struct Rig {
    pub(crate) engine: Engine,
    pub(crate) now: Now,
    pub(crate) controller: Character,
    pub(crate) canary: CanaryAnswer,
    pub(crate) lease: LeaseAnswer,
    /// When the process is to be killed.
    pub(crate) kill: Option<Kill>,
    /// It was killed; nothing reaches it any more.
    pub(crate) dead: bool,
    /// What a diagnosis reads.
    pub(crate) clues: Clues,
    /// The outcome that the next write gets instead of being carried out.
    pub(crate) fail_next_write: Option<Outcome>,
    pub(crate) acts: Vec<Act>,
    pub(crate) events: Vec<Event>,
    pub(crate) records: Vec<Record>,
    pub(crate) replies: Vec<Reply>,
    objects: BTreeMap<(Kind, String), Value>,
    version: u64,
    uids: u64,
    boots: u32,
}

pub(crate) const NS: &str = "line1";
pub(crate) const SVC: &str = "model-endpoint";

pub(crate) fn key() -> ServiceKey {
    ServiceKey::new(NS, SVC)
}

/// A moment of wall-clock time.
pub(crate) fn at(text: &str) -> jiff::Timestamp {
    text.parse().expect("a time")
}

impl Rig {
    /// Three pods of one model behind one Service, all right, all synced, mode heal.
    pub(crate) fn new(controller: Character) -> Self {
        let policy = Policy {
            mode: Mode::Heal,
            ..Policy::default()
        };
        let mut rig = Self::empty(controller, policy, &History::default());
        rig.service(SVC);
        for i in 1..=3 {
            rig.pod(&format!("model-{i}"), &format!("10.244.1.{i}"));
        }
        rig.write_slices();
        rig.sync();
        rig
    }

    pub(crate) fn empty(controller: Character, policy: Policy, history: &History) -> Self {
        let mut rig = Self {
            engine: Engine::new(policy, history, "t"),
            now: Now {
                mono: Duration::from_secs(1),
                wall: "2026-12-01T08:00:00Z".parse().unwrap(),
            },
            controller,
            canary: CanaryAnswer::Answered,
            lease: LeaseAnswer::Taken,
            kill: None,
            dead: false,
            boots: 0,
            clues: Clues::default(),
            fail_next_write: None,
            acts: Vec::new(),
            events: Vec::new(),
            records: Vec::new(),
            replies: Vec::new(),
            objects: BTreeMap::new(),
            version: 100,
            uids: 0,
        };
        rig.put(
            Kind::Node,
            json!({"kind": "Node", "metadata": {"name": "edge-7"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        );
        rig.put(
            Kind::Namespace,
            json!({"kind": "Namespace", "metadata": {"name": NS}}),
        );
        rig
    }

    pub(crate) fn service(&mut self, name: &str) {
        self.put(Kind::Service, json!({"kind": "Service",
            "metadata": {"name": name, "namespace": NS, "creationTimestamp": "2026-12-01T07:00:00Z"},
            "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.10", "ipFamilies": ["IPv4"],
                "selector": {"app": name},
                "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}]}}));
    }

    pub(crate) fn pod(&mut self, name: &str, ip: &str) {
        self.pod_of(SVC, name, ip);
    }

    pub(crate) fn pod_of(&mut self, app: &str, name: &str, ip: &str) {
        self.put(
            Kind::Pod,
            json!({"kind": "Pod",
            "metadata": {"name": name, "namespace": NS, "labels": {"app": app}},
            "spec": {"nodeName": "edge-7", "containers": [{"name": "m", "image": "model:v2"}]},
            "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
                "conditions": [{"type": "Ready", "status": "True"}]}}),
        );
    }

    pub(crate) fn delete_pod(&mut self, name: &str) {
        self.remove(Kind::Pod, name);
    }

    pub(crate) fn write_slice_of(&mut self, service: &str) {
        let owner = self.objects[&(Kind::Service, service.to_owned())]["metadata"]["uid"].clone();
        let endpoints: Vec<Value> = self
            .objects
            .iter()
            .filter(|((k, _), o)| *k == Kind::Pod && o["metadata"]["labels"]["app"] == service)
            .map(|(_, pod)| endpoint(pod))
            .collect();
        let slice = json!({"kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": slice_name(service), "namespace": NS,
                "generateName": format!("{service}-"),
                "labels": {"kubernetes.io/service-name": service,
                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": service,
                    "uid": owner, "controller": true, "blockOwnerDeletion": true}]},
            "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
            "endpoints": endpoints});
        self.put(Kind::EndpointSlice, slice);
    }

    pub(crate) fn edit(&mut self, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.objects[&(kind, name.to_owned())].clone();
        change(&mut object);
        self.put(kind, object);
    }

    pub(crate) fn put(&mut self, kind: Kind, mut object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.version += 1;
        if object["metadata"]["uid"].is_null() {
            self.uids += 1;
            object["metadata"]["uid"] = format!("uid-{}", self.uids).into();
        }
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.objects.insert((kind, name), object.clone());
        self.feed(Input::Cluster(ClusterInput::Apply(decode(kind, object))));
    }

    pub(crate) fn remove(&mut self, kind: Kind, name: &str) {
        self.objects
            .remove(&(kind, name.to_owned()))
            .expect("there is such an object");
        let namespace = kind.is_namespaced().then(|| NS.to_owned());
        let object = ObjectRef {
            kind,
            namespace,
            name: name.to_owned(),
        };
        self.feed(Input::Cluster(ClusterInput::Deleted(object)));
    }

    pub(crate) fn names(&self, kind: Kind) -> Vec<String> {
        self.objects
            .keys()
            .filter(|(k, _)| *k == kind)
            .map(|(_, n)| n.clone())
            .collect()
    }

    /// The uid of a Service.
    pub(crate) fn uid_of(&self, service: &str) -> String {
        let object = &self.objects[&(Kind::Service, service.to_owned())];
        object["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    pub(crate) fn sync(&mut self) {
        for kind in Kind::ALL {
            let objects = self.all(kind);
            self.feed(Input::Cluster(ClusterInput::Reset(kind, objects)));
        }
        self.link(Link::Synced);
    }

    pub(crate) fn link(&mut self, link: Link) {
        for kind in Kind::ALL {
            self.feed(Input::Cluster(ClusterInput::Link(kind, link.clone())));
        }
    }

    /// Lets so much time pass, waking the engine whenever it asks for it.
    pub(crate) fn pass(&mut self, seconds: f64) {
        let end = self.now.mono + Duration::from_secs_f64(seconds);
        while self.now.mono < end {
            let sleep = self.engine.sleep(self.now).max(Duration::from_millis(10));
            self.advance(sleep.min(end - self.now.mono));
            self.feed(Input::Tick);
        }
    }

    pub(crate) fn heal_by_hand(&mut self, dry_run: bool) -> Reply {
        self.ask_heal(key(), dry_run)
    }

    pub(crate) fn heal_of(&mut self, service: &ServiceKey) -> Reply {
        self.ask_heal(service.clone(), false)
    }

    fn ask_heal(&mut self, service: ServiceKey, dry_run: bool) -> Reply {
        let request = Request::Heal {
            service,
            action: None,
            dry_run,
        };
        self.feed(Input::Command(Command {
            id: CommandId(1),
            request,
        }));
        self.replies.pop().expect("a reply")
    }

    /// Every write that a heal by hand would make.
    pub(crate) fn dry_run(&mut self) -> Vec<String> {
        match self.heal_by_hand(true) {
            Reply::WouldAct { writes, .. } => writes,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn mode(&mut self, mode: Mode) {
        let policy = Policy {
            mode,
            ..Policy::default()
        };
        self.feed(Input::Policy(Box::new(policy)));
    }

    pub(crate) fn feed(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            if self.dead {
                return;
            }
            for output in self.engine.step(input, self.now) {
                match output {
                    Output::Act(action) => {
                        if let Some(kill) = self.dies_at(&action.act) {
                            if kill.done {
                                self.acts.push(action.act.clone());
                                self.carry_out(&action.act);
                            }
                            return;
                        }
                        self.acts.push(action.act.clone());
                        let outcome = self.carry_out(&action.act);
                        inputs.insert(
                            0,
                            Input::Done {
                                id: action.id,
                                outcome,
                            },
                        );
                    }
                    Output::Emit(event) => self.events.push(event),
                    Output::Persist(record) => self.records.push(record),
                    Output::Reply { reply, .. } => self.replies.push(reply),
                }
            }
        }
    }

    /// The writes so far, in words.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.acts
            .iter()
            .filter_map(|a| match a {
                Act::Refresh { service, .. } => Some(format!("refresh {}", service.name)),
                Act::Delete { slice, .. } => Some(format!("delete {slice}")),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn outcomes(&self) -> Vec<HealOutcome> {
        let heals = self.events.iter().filter(|e| e.kind == EventType::Heal);
        heals.filter_map(|e| e.heal.as_ref()?.outcome).collect()
    }

    pub(crate) fn holds(&self) -> Vec<String> {
        let heals = self.events.iter().filter(|e| e.kind == EventType::Heal);
        heals
            .filter_map(|e| e.heal.as_ref())
            .filter(|h| h.outcome.is_none())
            .filter_map(|h| Some(h.held()?.as_str().to_owned()))
            .collect()
    }

    fn advance(&mut self, by: Duration) {
        self.now.mono += by;
        self.now.wall += jiff::SignedDuration::try_from(by).unwrap();
    }

    fn carry_out(&mut self, act: &Act) -> Outcome {
        let write = matches!(act, Act::Refresh { .. } | Act::Delete { .. });
        if write && let Some(outcome) = self.fail_next_write.take() {
            return outcome;
        }
        match act {
            Act::Read { service } => Outcome::Snapshot(Box::new(self.snapshot(service))),
            Act::Refresh {
                service,
                uid,
                value,
            } => {
                let name = service.name.to_string();
                let Some(found) = self.objects.get(&(Kind::Service, name.clone())) else {
                    return Outcome::Gone;
                };
                if found["metadata"]["uid"] != uid.as_str() {
                    return Outcome::Conflict("another uid".to_owned());
                }
                let value = value.clone();
                // The watch tells of it after the write was answered.
                self.version += 1;
                let version = self.version.to_string();
                let object = self
                    .objects
                    .get_mut(&(Kind::Service, name.clone()))
                    .unwrap();
                object["metadata"]["annotations"]["slice-healer.io/refresh"] = value.into();
                object["metadata"]["resourceVersion"] = version.into();
                self.controller_sees_refresh(&name);
                Outcome::Written
            }
            Act::Delete {
                slice,
                uid,
                resource_version,
                ..
            } => {
                let Some(found) = self.objects.get(&(Kind::EndpointSlice, slice.clone())) else {
                    return Outcome::Gone;
                };
                let meta = &found["metadata"];
                if meta["uid"] != uid.as_str()
                    || meta["resourceVersion"] != resource_version.as_str()
                {
                    return Outcome::Conflict("another version".to_owned());
                }
                self.objects.remove(&(Kind::EndpointSlice, slice.clone()));
                self.pending_delete(slice);
                Outcome::Written
            }
            Act::Diagnose { .. } => Outcome::Clues(Box::new(self.clues.clone())),
            Act::Canary => Outcome::Canary(self.canary.clone()),
            Act::TakeLease => Outcome::Lease(self.lease.clone()),
            Act::ReleaseLease => Outcome::Written,
        }
    }

    fn pending_delete(&mut self, slice: &str) {
        let object = ObjectRef {
            kind: Kind::EndpointSlice,
            namespace: Some(NS.to_owned()),
            name: slice.to_owned(),
        };
        // Told by the watch, not by the answer; here both come in one moment.
        for output in self
            .engine
            .step(Input::Cluster(ClusterInput::Deleted(object)), self.now)
        {
            match output {
                Output::Emit(event) => self.events.push(event),
                Output::Persist(record) => self.records.push(record),
                other => panic!("not expected while an action is under way: {other:?}"),
            }
        }
    }

    fn controller_sees_refresh(&mut self, service: &str) {
        let gone = !self
            .objects
            .contains_key(&(Kind::EndpointSlice, slice_name(service)));
        let writes = match self.controller {
            Character::Right => true,
            Character::CacheHit => gone,
            Character::Deaf => false,
        };
        if writes {
            self.write_slice_of(service);
        }
    }

    fn snapshot(&self, service: &ServiceKey) -> Snapshot {
        fn pick<T>(objects: Vec<Object>, f: fn(Object) -> Option<T>) -> Vec<T> {
            objects.into_iter().filter_map(f).collect()
        }
        let of = |o: &Object| o.meta().name == service.name;
        Snapshot {
            service: pick(
                self.all(Kind::Service).into_iter().filter(of).collect(),
                |o| match o {
                    Object::Service(s) => Some(s),
                    _ => None,
                },
            )
            .pop(),
            namespace: pick(self.all(Kind::Namespace), |o| match o {
                Object::Namespace(n) => Some(n),
                _ => None,
            })
            .pop(),
            slices: pick(self.all(Kind::EndpointSlice), |o| match o {
                Object::Slice(s) => Some(s),
                _ => None,
            })
            .into_iter()
            .filter(|s| s.service_name() == Some(&*service.name))
            .collect(),
            pods: pick(self.all(Kind::Pod), |o| match o {
                Object::Pod(p) => Some(p),
                _ => None,
            }),
            nodes: pick(self.all(Kind::Node), |o| match o {
                Object::Node(n) => Some(n),
                _ => None,
            }),
            endpoints: None,
            raw_slices: self
                .objects
                .iter()
                .filter(|((k, _), _)| *k == Kind::EndpointSlice)
                .map(|((_, n), o)| (n.clone(), o.clone()))
                .collect(),
        }
    }

    fn all(&self, kind: Kind) -> Vec<Object> {
        let of_kind = self.objects.iter().filter(|((k, _), _)| *k == kind);
        of_kind.map(|(_, o)| decode(kind, o.clone())).collect()
    }
}
