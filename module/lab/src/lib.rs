//! The outside world of slice-healer, in one process: a Kubernetes API with an endpoint controller
//! that can misbehave, an edgeHub with its workload API and cloud, a journal writer, and the
//! scenarios that play on them. Wire formats only: nothing here knows a type of the product.

pub mod edge;
pub mod journal;
pub mod kube;
pub mod scenario;
pub mod traffic;
