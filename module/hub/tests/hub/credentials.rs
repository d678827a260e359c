//! Tokens, clocks, certificates, the workload socket.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use slice_hub::{Config, DisconnectReason, Event, Secret, State, WallClock};
use slice_lab::edge::{BundleFault, Edge, EdgeOptions, WorkloadFault};

use crate::harness::{MODULE, Rig, ids, message, timings};

#[tokio::test]
async fn kind_04_tokens_are_renewed_by_plan_without_losing_a_message() {
    let mut rig = Rig::start(|c| {
        c.timings.token_ttl = Duration::from_secs(2);
        c.timings.renewal_permille = (300, 400);
    })
    .await;
    rig.until_up().await;
    let mut sent = Vec::new();
    while rig.client.handle.status().counters.renewals < 3 {
        let id = format!("m{}", sent.len());
        rig.deliver(&id).await;
        sent.push(id);
        tokio::task::yield_now().await;
    }
    rig.device(|v| v.stored_messages() == 0 && v.telemetry().len() >= sent.len())
        .await;
    let mut seen = rig.edge.look(ids);
    seen.dedup();
    assert_eq!(seen, sent);
    let (mut renewed, mut bad) = (0, Vec::new());
    while let Ok(event) = rig.client.events.try_recv() {
        match event {
            Event::Renewed => renewed += 1,
            Event::Disconnected { reason, .. } if reason != DisconnectReason::Renewal => {
                bad.push(reason);
            }
            _ => {}
        }
    }
    assert!(renewed >= 3 && bad.is_empty(), "{renewed} {bad:?}");
    assert_eq!(rig.edge.counters().token_expired, 0);
}

#[tokio::test]
async fn kind_05_a_failing_sign_call_keeps_the_link_and_is_never_final() {
    let mut rig = Rig::start(|c| {
        c.timings.token_ttl = Duration::from_secs(1);
        c.timings.renewal_permille = (500, 500);
    })
    .await;
    rig.until_up().await;
    rig.edge.faults(|f| f.workload = WorkloadFault::Status(500));
    let failed = rig.edge.counters().workload_failed;
    rig.device(|v| v.counters().workload_failed >= failed + 3)
        .await;
    rig.deliver("meanwhile").await;
    assert!(rig.client.handle.status().state.is_connected());
    let renewals = rig.client.handle.status().counters.renewals;
    // The hub drops us at last: then there is no link, and still no giving up.
    rig.edge.drop_connections();
    rig.status(|s| s.state == State::WaitWorkload).await;
    rig.edge.faults(|f| f.workload = WorkloadFault::None);
    rig.until_up().await;
    rig.status(|s| s.counters.renewals > renewals).await;
}

#[tokio::test]
async fn kind_06_a_clock_from_1970_heals_when_the_clock_does() {
    let right = Arc::new(AtomicBool::new(false));
    let clock = Arc::clone(&right);
    let mut rig = Rig::start(|c| {
        c.wall_clock = WallClock::new(move || {
            if clock.load(Ordering::Relaxed) {
                SystemTime::now()
            } else {
                SystemTime::UNIX_EPOCH
            }
        });
    })
    .await;
    for _ in 0..3 {
        let code = rig
            .event(|e| match e {
                Event::ConnackRefused { code } => Some(code),
                _ => None,
            })
            .await;
        assert_eq!(code, 5);
    }
    right.store(true, Ordering::Relaxed);
    rig.until_up().await;
}

#[tokio::test]
async fn kind_07_every_trouble_of_the_workload_api_is_transient() {
    for (fault, refusal) in [
        (WorkloadFault::Absent, true),
        (WorkloadFault::Stale, true),
        (WorkloadFault::Status(403), true),
        (WorkloadFault::Status(404), false),
        (WorkloadFault::Status(408), false),
        (WorkloadFault::Status(500), false),
        (WorkloadFault::Closed, false),
        (WorkloadFault::Hang, false),
        (WorkloadFault::BadBase64, false),
    ] {
        let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
        edge.faults(|f| f.workload = fault);
        let mut rig = Rig::on(edge, |c| {
            c.timings.workload_call = Duration::from_millis(700)
        });
        let status = rig
            .status(|s| s.failures >= 2 && s.state == State::WaitWorkload)
            .await;
        assert_eq!(
            status.last_failure.as_ref().unwrap().0,
            DisconnectReason::Workload,
            "{fault:?}"
        );
        let since = status.workload_refused_for(Instant::now());
        assert_eq!(since.is_some(), refusal, "{fault:?}: {status:?}");
        rig.edge.faults(|f| f.workload = WorkloadFault::None);
        rig.until_up().await;
        assert_eq!(rig.client.handle.status().workload_refused_since, None);
    }
}

#[tokio::test]
async fn a_slow_daemon_is_waited_for() {
    let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
    edge.faults(|f| f.workload = WorkloadFault::SlowSign(1_200));
    let mut rig = Rig::on(edge, |_| {});
    rig.until_up().await;
    assert_eq!(rig.client.handle.status().failures, 0);
}

#[tokio::test]
async fn an_unknown_api_version_falls_back_to_the_oldest() {
    let mut rig = Rig::start(|c| {
        if let slice_hub::Credentials::Workload { api_version, .. } = &mut c.credentials {
            *api_version = "2099-01-01".into();
        }
    })
    .await;
    rig.until_up().await;
    assert_eq!(
        rig.client.handle.status().failures,
        0,
        "without a failed attempt"
    );
}

#[tokio::test]
async fn kind_08_a_new_certificate_chain_is_trusted_by_its_new_bundle_only() {
    let mut rig = Rig::up().await;
    rig.edge.rotate_certificates().await.unwrap();
    rig.event(|e| matches!(e, Event::Disconnected { .. }).then_some(()))
        .await;
    rig.until_up().await;
    rig.deliver("after rotation").await;

    // The bundle lags behind the chain: TLS fails until it catches up.
    rig.edge.faults(|f| f.bundle = BundleFault::Outdated);
    rig.edge.rotate_certificates().await.unwrap();
    let failed = |reason| {
        move |s: &slice_hub::Status| s.last_failure.as_ref().is_some_and(|(r, _)| *r == reason)
    };
    rig.status(failed(DisconnectReason::Tls)).await;
    rig.edge.faults(|f| f.bundle = BundleFault::Empty);
    rig.status(failed(DisconnectReason::Trust)).await;
    rig.edge.faults(|f| f.bundle = BundleFault::Missing);
    rig.status(failed(DisconnectReason::Workload)).await;
    rig.edge.faults(|f| f.bundle = BundleFault::Two);
    rig.until_up().await;
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let rig = Rig::start(|c| c.gateway.host = "somebody-else".into()).await;
    let status = rig.status(|s| s.failures >= 1).await;
    let (reason, detail) = status.last_failure.unwrap();
    assert_eq!(reason, DisconnectReason::Tls);
    assert!(detail.contains("somebody-else"), "{detail}");
}

#[tokio::test]
async fn the_workload_api_over_http_and_a_connection_string_work_as_well() {
    let options = EdgeOptions {
        workload_http: Some(([127, 0, 0, 1], 0).into()),
        hub_direct: true,
        ..EdgeOptions::quick()
    };
    let edge = Edge::start(options).await.unwrap();
    let http = format!("http://{}", edge.workload_http().unwrap());
    let mut rig = Rig::on(edge, |c| {
        if let slice_hub::Credentials::Workload { uri, .. } = &mut c.credentials {
            *uri = slice_hub::workload::WorkloadUri::parse(&http).unwrap();
        }
    });
    rig.until_up().await;
    rig.client.handle.drain(Duration::from_secs(5)).await;

    let mut roots = tempfile::NamedTempFile::new().unwrap();
    roots.write_all(rig.edge.trust_bundle().as_bytes()).unwrap();
    let text = Secret::new(rig.edge.connection_string(MODULE).unwrap());
    let mut config = Config::from_connection_string(&text, roots.path()).unwrap();
    config.gateway.host = "localhost".into();
    config.gateway.port = rig.edge.mqtt_port();
    config.timings = timings();
    rig.client = slice_hub::Client::spawn(config);
    rig.until_up().await;
    rig.client
        .handle
        .report(serde_json::json!({"a": 1}), slice_hub::Urgency::Alarm)
        .unwrap();
    rig.event(|e| matches!(e, Event::ReportedSettled).then_some(()))
        .await;
    rig.deliver("direct").await;
}

/// Writes every log line of every level into memory.
#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn no_token_and_no_key_reaches_a_log_an_event_or_the_status() {
    let captured = Captured::default();
    let sink = captured.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(move || sink.clone())
        .finish();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let shown = tracing::subscriber::with_default(subscriber, || {
        // A test beside this one may have met a log line first, just before anybody listened.
        tracing::callsite::rebuild_interest_cache();
        runtime.block_on(async {
            let edge = Edge::start(EdgeOptions::quick()).await.unwrap();
            edge.faults(|f| {
                f.connack_code = Some(5);
                f.connack_times = Some(2);
            });
            let mut rig = Rig::on(edge, |_| {});
            rig.until_up().await;
            rig.deliver("m").await;
            rig.edge.faults(|f| f.workload = WorkloadFault::BadBase64);
            rig.edge.drop_connections();
            rig.status(|s| s.state == State::WaitWorkload).await;
            let mut shown = format!("{:?} {:?}", rig.client.handle.status(), rig.client.handle);
            while let Ok(event) = rig.client.events.try_recv() {
                shown.push_str(&format!("{event:?}"));
            }
            let _ = rig.client.handle.try_send_telemetry(message("x"));
            shown
        })
    });
    let logged = String::from_utf8_lossy(&captured.0.lock().unwrap()).into_owned();
    assert!(logged.contains("trying again"), "the capture works");
    for text in [&shown, &logged] {
        assert!(!text.contains("SharedAccessSignature"));
        assert!(!text.contains("&sig=") && !text.contains("sig%3D"));
    }
}
