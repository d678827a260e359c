//! Worlds and views without a product; the scenarios with the product are tests of the product.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::json;

use super::look::right;
use super::observe::observe;
use super::stage::Stage;
use super::timeline::Happening;
use super::view::{Frame, Style, render};
use super::world::{NAMESPACE, SERVICE};
use super::*;
use crate::kube::controller::{CACHE_HIT, LogSink as _};
use crate::kube::{DeleteOptions, object, resource};

const LONG: Duration = Duration::from_secs(30);
const PLAIN: Style = Style {
    width: 100,
    height: 50,
    colour: false,
};

#[test]
fn scenarios_have_names_and_the_first_is_the_main_one() {
    let names: std::collections::BTreeSet<_> = list().iter().map(|s| s.name).collect();
    assert_eq!(names.len(), list().len());
    assert_eq!(list()[0].name, "redeploy-stale-slice");
    assert!(find("quiet").is_some() && find("none").is_none());
}

#[tokio::test]
async fn a_world_begins_well_and_has_a_place_for_a_product() {
    let world = World::start(WorldOptions::default()).await.unwrap();
    assert!(right(world.cluster()));
    let endpoints = world.endpoints();
    assert_eq!(endpoints.len(), 3);
    assert!(
        endpoints
            .iter()
            .all(|e| e.standing == Standing::Right && e.version == "v2.0")
    );
    assert_eq!(
        world
            .cluster()
            .slices_of("slice-healer", "slice-healer")
            .len(),
        1
    );

    let connections = world.connections().unwrap();
    let mode = std::fs::metadata(&connections.kubeconfig)
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let machine = std::fs::read_to_string(&connections.machine_id).unwrap();
    let node = world.cluster().get(&resource::NODES, "", "edge-7").unwrap();
    assert_eq!(node["status"]["nodeInfo"]["machineID"], machine.trim());
    assert!(
        connections
            .journal
            .join(machine.trim())
            .join("system.journal")
            .exists()
    );
    let environment = connections.environment();
    let get = |key: &str| {
        environment
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, v)| v.as_str())
    };
    assert_eq!(get("IOTEDGE_MODULEID"), Some("slice-healer"));
    assert_eq!(get("SLICE_HEALER__SERVE__PORT"), Some("0"));
    assert_eq!(
        get("SLICE_HEALER__CLUSTER__KUBECONFIG"),
        connections.kubeconfig.to_str()
    );

    let folder = world.directory().to_owned();
    drop(world);
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_product_that_ends_early_is_a_failed_scenario() {
    let world = World::start(WorldOptions::default()).await.unwrap();
    let report = play(&world, "quiet", |_, _| async { Err("no kubeconfig") })
        .await
        .unwrap();
    assert_eq!(report.outcome, Outcome::Failed);
    assert!(!report.as_expected());
    let last = report.timeline.last().unwrap();
    assert_eq!(last.detail, "the product ended: no kubeconfig");
    let json = report.json();
    assert_eq!(json["schema"], "slice-healer/lab/v1");
    assert_eq!(json["outcome"], "failed");
    assert_eq!(
        json["seconds"],
        json!({"signal": null, "finding": null, "healed": null})
    );
    assert_eq!(json["timeline"][0]["event"], "scenario");
    assert!(json["timeline"][0]["atMs"].is_u64());
    assert!(json["requests"]["sent"].is_u64() && json["telemetry"] == 0);
    assert_eq!(world.outcome(), Some(Outcome::Failed));

    let unknown = play(&world, "none", |_, _| async { Ok::<_, String>(()) }).await;
    assert!(
        unknown
            .unwrap_err()
            .to_string()
            .contains("redeploy-stale-slice")
    );
}

#[tokio::test]
async fn the_stale_slice_resists_a_refresh_and_yields_to_a_delete() {
    let world = World::start(WorldOptions::default()).await.unwrap();
    let stage = Stage {
        world: world.clone(),
        notes: world.notes().clone(),
    };
    let observer = tokio::spawn(observe(world.clone(), world.notes().clone()));
    scripts::make_stale(&stage).await.unwrap();
    let mut standings: Vec<_> = world
        .endpoints_before()
        .iter()
        .map(|e| e.standing)
        .collect();
    standings.sort_by_key(|standing| *standing as u8);
    assert_eq!(standings, [Standing::Right, Standing::Old, Standing::Gone]);
    let file = std::fs::read(
        world
            .connections()
            .map(|c| {
                let machine = std::fs::read_to_string(c.machine_id).unwrap();
                c.journal.join(machine.trim()).join("system.journal")
            })
            .unwrap(),
    )
    .unwrap();
    let said = |bytes: &[u8]| {
        bytes
            .windows(CACHE_HIT.len())
            .any(|w| w == CACHE_HIT.as_bytes())
    };
    assert!(said(&file), "the line is in the journal file");

    let lines = || {
        let all = world.timeline().all();
        all.iter().filter(|h| h.event == "journal").count()
    };
    let before = lines();
    let refresh = json!({"metadata": {"annotations": {"slice-healer.io/refresh": "1"}}});
    world
        .cluster()
        .patch(&resource::SERVICES, NAMESPACE, SERVICE, &refresh)
        .unwrap();
    stage
        .until("the line again", LONG, |_| lines() == before + 1)
        .await
        .unwrap();
    assert!(!right(world.cluster()) && stage.seconds().healed.is_none());

    let slice = &world.cluster().slices_of(NAMESPACE, SERVICE)[0];
    world
        .cluster()
        .delete(
            &resource::ENDPOINT_SLICES,
            NAMESPACE,
            object::name(slice),
            &DeleteOptions::default(),
        )
        .unwrap();
    stage
        .until("healed", LONG, |stage| stage.seconds().healed.is_some())
        .await
        .unwrap();
    let events: Vec<_> = world
        .timeline()
        .all()
        .into_iter()
        .map(|h| h.event)
        .collect();
    for event in ["refresh", "slice-deleted", "slice-created", "right"] {
        assert!(events.iter().any(|e| e == event), "{event} in {events:?}");
    }
    observer.abort();
}

#[tokio::test]
async fn lines_tell_everything_once_and_in_order() {
    let world = World::start(WorldOptions::default()).await.unwrap();
    world.timeline().add("first", "a");
    let stop = tokio_util::sync::CancellationToken::new();
    let mut out = Vec::new();
    let telling = view::lines(&world, &mut out, PLAIN, stop.clone());
    let happening = async {
        world.journal().line(crate::kube::controller::LogLine {
            unit: "k3s.service",
            identifier: "k3s",
            message: "hello".to_owned(),
        });
        world.timeline().add("last", "b\nc");
        stop.cancel();
    };
    let (told, ()) = tokio::join!(telling, happening);
    told.unwrap();
    let text = String::from_utf8(out).unwrap();
    let events: Vec<_> = text
        .lines()
        .map(|line| line.split_whitespace().nth(2).unwrap())
        .collect();
    assert_eq!(events, ["first", "journal", "last"], "{text}");
    assert!(text.ends_with("b c\n"));
}

fn endpoint(address: &str, version: &str, standing: Standing) -> Endpoint {
    Endpoint {
        slice: "model-endpoint-abc12".to_owned(),
        address: address.to_owned(),
        pod: String::new(),
        version: version.to_owned(),
        standing,
    }
}

#[test]
fn a_picture_shows_all_parts() {
    let window = |sent, wrong, failed| Counts {
        sent,
        wrong,
        failed,
    };
    let frame = Frame {
        scenario: "redeploy-stale-slice",
        summary: "A story.",
        at_ms: 12_340,
        events: vec![Happening {
            at_ms: 11_900,
            event: "refresh".to_owned(),
            detail: "Service line1/model-endpoint is refreshed".to_owned(),
        }],
        before: vec![
            endpoint("10.244.0.2", "", Standing::Gone),
            endpoint("10.244.0.3", "v2.0", Standing::Old),
        ],
        now: vec![endpoint("10.244.0.5", "v2.1", Standing::Right)],
        windows: vec![
            window(25, 0, 0),
            window(25, 8, 9),
            window(24, 12, 0),
            window(0, 0, 0),
        ],
        total: window(74, 20, 9),
        twin: json!({"health": {"state": "healing", "reason": "one Service is stale"},
            "findings": {"critical": 1, "warning": 0, "info": 0},
            "heals": {"succeeded": 0, "failed": 0, "held": 0}}),
        telemetry: 3,
        outcome: Some(Outcome::Healed),
    };
    let picture = render(&frame, PLAIN);
    let expected = "\
slice-healer lab · redeploy-stale-slice ·    12.3 s
A story.

requests  74 sent · 45 right · 20 wrong version · 9 failed
  █▃▄ 

slices when they were stale
  model-endpoint-abc12         10.244.0.2       pod gone, nobody answers
  model-endpoint-abc12         10.244.0.3       pod gone, still answers v2.0
slices now
  model-endpoint-abc12         10.244.0.5       answers v2.1

twin       health healing · findings 1/0/0 · heals 0 done, 0 failed, 0 held · one Service is stale
telemetry  3 messages at the cloud

   11.9 s  refresh        Service line1/model-endpoint is refreshed

healed
";
    assert_eq!(picture, expected);

    let narrow = |height| Style {
        width: 20,
        height,
        colour: true,
    };
    let coloured = render(&frame, narrow(50));
    assert!(coloured.contains("\x1b[31m") && coloured.contains('…'));
    // Fifteen rows of facts, two of the outcome, one of the cursor: happenings get what is left.
    for (height, shown) in [(18, false), (19, true), (50, true)] {
        let picture = render(&frame, narrow(height));
        assert_eq!(picture.contains("11.9 s"), shown, "{height}");
        assert!(picture.lines().count() < height, "{height}");
    }
    let nobody = Frame {
        now: Vec::new(),
        ..frame
    };
    assert!(render(&nobody, PLAIN).contains("none: nobody is routed to"));
}
