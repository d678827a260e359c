//! What a difference of one endpoint reads like, in words and as evidence.

use serde_json::{Value, json};

use super::bench::{Bench, endpoint_json, texts};
use super::diff::{Diff, Why, sorted_ports};
use super::expect::{Expectation, Expected};
use crate::model::EndpointPort;

pub(super) fn message(
    bench: &Bench<'_>,
    diff: &Diff<'_>,
    expected: Option<&Expected<'_>>,
) -> String {
    let slice = &diff.slice.meta.name;
    let addresses = texts(diff.endpoint).join(", ");
    let pod = diff.endpoint.pod().map_or("", |t| t.name.as_ref());
    let effect = if bench.is_routed(diff.slice, diff.endpoint) {
        "Traffic is sent there."
    } else {
        "No traffic is sent there."
    };
    match &diff.why {
        Why::PodGone => {
            format!(
                "Slice {slice} lists {addresses} for pod {pod}, which no longer exists. {effect}"
            )
        }
        Why::OtherUid { same_address: true } => format!(
            "Slice {slice} lists {addresses} for an earlier pod {pod}; the one that has the name \
             now answers there, but who looks at the pod's identity is misled."
        ),
        Why::OtherUid {
            same_address: false,
        } => format!(
            "Slice {slice} lists {addresses} for an earlier pod {pod}; that pod is gone, another \
             one has its name. {effect}"
        ),
        Why::NoReference => {
            format!(
                "Slice {slice} lists {addresses}, which belongs to no pod of the Service. {effect}"
            )
        }
        Why::NotSelected => format!(
            "Slice {slice} lists {addresses} of pod {pod}, which the Service no longer selects. {effect}"
        ),
        Why::NodeGone(node) => format!(
            "Slice {slice} lists {addresses} of pod {pod}, whose node {node} does not exist. {effect}"
        ),
        Why::Finished => {
            format!("Slice {slice} lists {addresses} of pod {pod}, which has finished. {effect}")
        }
        Why::Address => {
            format!(
                "Slice {slice} lists pod {pod} under {addresses}, which is not its address. {effect}"
            )
        }
        Why::Conditions => match expected {
            Some(e) if e.ready && !diff.endpoint.conditions.is_ready() => {
                format!("Slice {slice} says pod {pod} is not ready, but it is. It gets no traffic.")
            }
            Some(e) if !e.ready && diff.endpoint.conditions.is_ready() => format!(
                "Slice {slice} says pod {pod} is ready, but it is not. Traffic is sent there."
            ),
            _ => format!(
                "Slice {slice} has serving or terminating of pod {pod} wrong; that matters only \
                 while no pod is ready."
            ),
        },
        Why::Ports => format!(
            "Slice {slice} gives pod {pod} other ports than Service and pod do. Traffic to a port \
             that is wrong or missing fails."
        ),
        Why::Twice => format!(
            "Slice {slice} lists pod {pod} at {addresses} a second time. Proxies take it once."
        ),
        Why::Fields(fields) => format!(
            "Slice {slice} is wrong about pod {pod}: {} differs. Who gets traffic does not change, \
             but preferences and names may.",
            fields.join(", ")
        ),
    }
}

pub(super) fn evidence(
    expect: &Expectation<'_>,
    diff: &Diff<'_>,
    expected: Option<&Expected<'_>>,
) -> (Value, Value) {
    let endpoint = diff.endpoint;
    let Some(e) = expected.filter(|_| diff.why != Why::PodGone) else {
        return (Value::Null, endpoint_json(endpoint));
    };
    let addresses: Vec<String> = e.addresses.iter().map(ToString::to_string).collect();
    match &diff.why {
        Why::Conditions => (
            json!({"ready": e.ready, "serving": e.serving, "terminating": e.terminating}),
            json!({
                "ready": endpoint.conditions.ready,
                "serving": endpoint.conditions.serving,
                "terminating": endpoint.conditions.terminating
            }),
        ),
        Why::Ports => (
            ports_json(expect.ports(e.ports)),
            ports_json(&sorted_ports(diff.slice)),
        ),
        Why::Fields(_) => (
            json!({
                "hostname": e.hostname, "nodeName": e.pod.spec.node_name, "zone": e.zone,
                "uid": &*e.pod.meta.uid
            }),
            json!({
                "hostname": endpoint.hostname, "nodeName": endpoint.node_name,
                "zone": endpoint.zone, "uid": endpoint.target_ref.as_ref().map(|t| &*t.uid)
            }),
        ),
        _ => (
            json!({"addresses": addresses, "ready": e.ready, "uid": &*e.pod.meta.uid}),
            endpoint_json(endpoint),
        ),
    }
}

fn ports_json(ports: &[EndpointPort]) -> Value {
    let all: Vec<Value> = ports
        .iter()
        .map(|p| {
            json!({"name": &*p.name, "protocol": p.protocol.to_string(), "port": p.port,
                   "appProtocol": p.app_protocol})
        })
        .collect();
    json!({"ports": all})
}
