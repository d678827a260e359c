//! Measures the judge far beyond an edge: 1,000 Services with 100 endpoints each. Prints how long
//! the first judgement of everything and that of one changed pod take, and the memory held.
//!
//! `cargo run --release -p slice-core --example scale`; with the name of a file it measures nothing
//! and writes the same cluster there as `kubectl get -o json` would print it.

use std::fs;
use std::io::Write as _;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use slice_core::judge::{JudgeContext, judge_service, judge_world};
use slice_core::model::{Kind, Node, Object, Pod, Service, Slice, World};

const SERVICES: usize = 1_000;
const PODS: usize = 100;
const NAMESPACES: usize = 20;
const NODES: usize = 100;
const CHANGES: usize = 1_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(file) = std::env::args_os().nth(1) {
        let mut file = std::io::BufWriter::new(fs::File::create(file)?);
        dump(&mut file)?;
        return Ok(file.flush()?);
    }
    let mut out = std::io::stdout().lock();
    let before = resident()?;
    let begun = Instant::now();
    let world = build()?;
    let counts = world.counts();
    writeln!(
        out,
        "{} services, {} pods, {} endpoints decoded and indexed in {:.2?}, {} MB resident",
        counts.services,
        counts.pods,
        counts.endpoints,
        begun.elapsed(),
        (resident()? - before) / 1024
    )?;
    let ctx = JudgeContext::at(Timestamp::now());
    let begun = Instant::now();
    let findings = judge_world(&world, &ctx);
    writeln!(
        out,
        "first judgement of everything: {:.2?}, {} findings, {} MB resident",
        begun.elapsed(),
        findings.len(),
        (resident()? - before) / 1024
    )?;
    change_pods(world, &ctx, &mut out)
}

fn change_pods(
    mut world: World,
    ctx: &JudgeContext,
    out: &mut impl std::io::Write,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut times = Vec::with_capacity(CHANGES);
    let mut undisturbed = Vec::with_capacity(CHANGES);
    let mut touched_all = 0;
    for n in 0..CHANGES {
        let mut changed = pod(n % SERVICES, n % PODS);
        changed["metadata"]["resourceVersion"] = json!("2");
        changed["status"]["conditions"][0]["status"] = json!("False");
        let changed: Pod = serde_json::from_value(changed)?;
        let switches = context_switches()?;
        let begun = Instant::now();
        let touched = world.apply(changed);
        for key in &touched {
            std::hint::black_box(judge_service(&world.view(key), ctx));
        }
        let took = begun.elapsed();
        times.push(took);
        if context_switches()? == switches {
            undisturbed.push(took);
        }
        touched_all += touched.len();
    }
    writeln!(
        out,
        "one changed pod: {}, {:.1} services judged each",
        quantiles(times),
        touched_all as f64 / CHANGES as f64
    )?;
    // A machine with other work takes the processor away for milliseconds; that is not ours.
    writeln!(
        out,
        "  the {} of {CHANGES} that kept the processor: {}",
        undisturbed.len(),
        quantiles(undisturbed)
    )?;
    Ok(())
}

fn quantiles(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |part: usize| {
        let index = times.len().saturating_sub(1) * part / 100;
        times.get(index).copied().unwrap_or(Duration::ZERO)
    };
    format!(
        "median {:.0?}, 99th percentile {:.0?}, worst {:.0?}",
        at(50),
        at(99),
        at(100)
    )
}

fn build() -> Result<World, serde_json::Error> {
    let mut world = World::default();
    for kind in Kind::ALL {
        world.set_seen(kind, true);
    }
    for n in 0..NODES {
        world.apply(serde_json::from_value::<Node>(node(n))?);
    }
    for service in 0..SERVICES {
        let pods: Vec<Value> = (0..PODS).map(|n| pod(service, n)).collect();
        let slice: Slice = serde_json::from_value(slice(service, &pods))?;
        let object: Service = serde_json::from_value(service_object(service))?;
        world.apply(object);
        for pod in pods {
            let pod: Object = serde_json::from_value::<Pod>(pod)?.into();
            world.apply(pod);
        }
        world.apply(slice);
    }
    Ok(world)
}

/// Writes everything as one List, each object whole and indented as kubectl does it.
fn dump(out: &mut impl std::io::Write) -> Result<(), Box<dyn std::error::Error>> {
    out.write_all(b"{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [\n")?;
    let mut first = true;
    let mut put = |version: &str, kind: &str, mut object: Value| {
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        if !std::mem::take(&mut first) {
            out.write_all(b",\n")?;
        }
        serde_json::to_writer_pretty(&mut *out, &object).map_err(std::io::Error::from)
    };
    for n in 0..NODES {
        put("v1", "Node", node(n))?;
    }
    for service in 0..SERVICES {
        let pods: Vec<Value> = (0..PODS).map(|n| pod(service, n)).collect();
        put("v1", "Service", service_object(service))?;
        put(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            slice(service, &pods),
        )?;
        for pod in pods {
            put("v1", "Pod", pod)?;
        }
    }
    out.write_all(b"]}\n")?;
    Ok(())
}

fn node(n: usize) -> Value {
    json!({
        "metadata": {"name": format!("node-{n}"), "uid": format!("node-uid-{n}")},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn uid(service: usize) -> String {
    format!("6a5f0000-0000-4000-8000-{service:012}")
}

fn slice(service: usize, pods: &[Value]) -> Value {
    let endpoints: Vec<Value> = pods
        .iter()
        .map(|pod| {
            json!({
                "addresses": [pod["status"]["podIP"]],
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "nodeName": pod["spec"]["nodeName"],
                "targetRef": {"kind": "Pod", "namespace": pod["metadata"]["namespace"],
                    "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]},
            })
        })
        .collect();
    let name = format!("service-{service}");
    json!({
        "metadata": {"name": format!("{name}-x1"), "namespace": namespace(service),
            "uid": format!("s-{}", uid(service)), "resourceVersion": "1",
            "labels": {"kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": name,
                "uid": uid(service), "controller": true}]},
        "addressType": "IPv4", "endpoints": endpoints,
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    })
}

fn service_object(service: usize) -> Value {
    json!({
        "metadata": {"name": format!("service-{service}"), "namespace": namespace(service),
            "uid": uid(service)},
        "spec": {"selector": {"app": format!("app-{service}"), "tier": "back"},
            "clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"],
            "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}]},
    })
}

fn namespace(service: usize) -> String {
    format!("space-{}", service % NAMESPACES)
}

fn pod(service: usize, n: usize) -> Value {
    let number = service * PODS + n;
    let ip = format!(
        "10.{}.{}.{}",
        number >> 16,
        (number >> 8) & 255,
        number & 255
    );
    json!({
        "metadata": {
            "name": format!("service-{service}-7d9f8c6b5d-{n:05}"), "namespace": namespace(service),
            "uid": format!("0b7c0000-51aa-4c1e-9d3e-{number:012}"), "resourceVersion": "1",
            "creationTimestamp": "2026-11-30T08:00:00Z",
            "labels": {"app": format!("app-{service}"), "tier": "back",
                "pod-template-hash": "7d9f8c6b5d", "app.kubernetes.io/version": "2.1"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet",
                "name": format!("service-{service}-7d9f8c6b5d"), "uid": format!("rs-{service:032}"),
                "controller": true}],
        },
        "spec": {
            "nodeName": format!("node-{}", number % 100),
            "containers": [{"name": "main", "image": "registry.invalid/model:2.1",
                "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]}],
        },
        "status": {
            "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-30T08:00:10Z"},
                {"type": "ContainersReady", "status": "True",
                    "lastTransitionTime": "2026-11-30T08:00:10Z"},
                {"type": "PodScheduled", "status": "True"},
                {"type": "Initialized", "status": "True"},
            ],
            "containerStatuses": [{"name": "main", "ready": true, "state": {"running": {}}}],
        },
    })
}

/// Resident memory of this process, in kB.
fn resident() -> Result<usize, Box<dyn std::error::Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let text = line
        .and_then(|l| l.split_whitespace().next())
        .ok_or("no VmRSS")?;
    Ok(text.parse()?)
}

/// How often this thread has given up the processor or lost it.
fn context_switches() -> Result<u64, Box<dyn std::error::Error>> {
    let status = fs::read_to_string("/proc/thread-self/status")?;
    let mut all = 0;
    for line in status.lines().filter(|l| l.contains("ctxt_switches:")) {
        let number = line.split_whitespace().next_back().ok_or("no number")?;
        all += number.parse::<u64>()?;
    }
    Ok(all)
}
