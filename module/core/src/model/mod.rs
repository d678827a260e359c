//! Slim types of the objects that are judged, decoded straight from Kubernetes JSON, and the world
//! that they make up. What is not judged is not kept.

mod decode;
mod endpoints;
mod key;
mod labels;
mod meta;
mod namespace;
mod node;
mod object;
mod pod;
mod relist;
mod service;
mod share;
mod slice;
mod space;
mod version;
mod view;
mod world;

pub use endpoints::{EndpointAddress, Endpoints, EndpointsBody, Subset};
pub use key::{Kind, ObjectRef, ServiceKey};
pub use labels::Labels;
pub use meta::{Meta, OwnerReference};
pub use namespace::Namespace;
pub use node::{Node, NodeAddress, NodeInfo, NodeSpec, NodeStatus};
pub use object::Object;
pub use pod::{
    Condition, Container, ContainerPort, ContainerState, ContainerStatus, Containers, Phase, Pod,
    PodIp, PodSpec, PodStatus, ReadinessGate, StateReason, Truth, parse_address,
};
pub use service::{
    IpFamily, Protocol, Service, ServicePort, ServiceSpec, ServiceType, TargetPort, TrafficPolicy,
};
pub use slice::{
    AddressType, CONTROLLER, Conditions, Endpoint, EndpointPort, HEADLESS, Hint, Hints, MANAGED_BY,
    MIRRORING, Manager, SERVICE_NAME, Slice, SliceBody, TargetRef,
};
pub use version::ServerVersion;
pub use view::ServiceView;
pub use world::{Counts, Touched, World};
