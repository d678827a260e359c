//! A Kubernetes API server in memory, and an endpoint controller that can misbehave.
