//! What a person says to a running module, and what it tells: holds from every side, windows, the
//! story of an incident, the dry run. A module process on the lab's cluster and hub.

use std::process::Output;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::{Timestamp, ToSpan as _};
use serde_json::{Value, json};
use slice_lab::edge::{Edge, EdgeOptions};

use crate::support::ground::Ground;
use crate::support::module::{Module, Setup, reported};
use crate::support::scrape::metric;
use crate::support::stale::{SERVICE, Stale, healthy_in};
use crate::support::wait::{Look, eventually};

/// How long anything may take on a slow machine.
const LONG: Duration = Duration::from_secs(90);

struct Scene {
    ground: Ground,
    edge: Edge,
    state: Stale,
    setup: Setup,
}

async fn scene(stem: &str) -> Result<Scene> {
    let ground = Ground::lab().await?;
    let edge = Edge::start(EdgeOptions::quick()).await?;
    let state = healthy_in(ground.client().await?, ground.namespace(stem).await?).await?;
    ground.settle().await?;
    let setup = Setup::new(&ground.kubeconfig().await?)
        .set("SCOPE__LOCALITY", "cluster")
        .set("REPORT__MIN_INTERVAL", "PT1S")
        .reporting_to(&edge)?;
    Ok(Scene {
        ground,
        edge,
        state,
        setup,
    })
}

impl Scene {
    async fn call(&self, name: &str, payload: Value) -> (i32, Value) {
        let limit = Duration::from_secs(20);
        let answer = self.edge.invoke_method(name, payload, limit).await;
        (answer.status, answer.payload)
    }

    async fn reported(
        &self,
        module: &Module,
        what: &str,
        holds: fn(&Value) -> bool,
    ) -> Result<Value> {
        reported(&self.edge, module, what, holds).await
    }

    async fn synced(&self, module: &Module) -> Result<()> {
        let synced = |r: &Value| r["cluster"]["state"] == "synced";
        self.reported(module, "synced", synced).await.map(drop)
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test]
async fn a_hold_by_method_outlives_a_kill_and_ends_by_hand() -> Result<()> {
    let mut scene = scene("audit").await?;
    let mut module = scene.setup.start()?;
    scene.synced(&module).await?;
    let (status, body) = scene
        .call("hold", json!({"name": "audit", "minutes": 30}))
        .await;
    ensure!(
        status == 200 && body["until"].is_string(),
        "{status} {body}"
    );
    let (status, body) = scene
        .call("hold", json!({"name": "a b", "minutes": 30}))
        .await;
    ensure!(
        status == 400 && body["error"].as_str().is_some_and(|e| e.contains("name")),
        "{status} {body}"
    );
    let (status, body) = scene.call("release", json!({"name": "nobody"})).await;
    ensure!(status == 404, "{status} {body}");

    // Killed without any goodbye: the hold is on disk.
    module = module.restart()?;
    scene.synced(&module).await?;
    scene.state.finish_pod(0).await?;
    module
        .await_line(&["kind=heal", "outcome=held", "audit"], LONG)
        .await?;
    let seen = scene
        .reported(&module, "held back", |r| {
            r["heals"]["held"] == 1 && r["health"]["state"] == "blocked"
        })
        .await?;
    ensure!(seen["closed"]["reason"] == "hold", "{seen}");
    let reason = seen["health"]["reason"].as_str().unwrap_or_default();
    ensure!(
        reason.contains("(hold)") && reason.contains("audit"),
        "{seen}"
    );
    let address = module.metrics_address().await?;
    let held = metric(&address, "slice_healer_heals_held_total", "\"hold\"").await?;
    let closed = metric(&address, "slice_healer_closed", "\"hold\"").await?;
    ensure!((held, closed) == (1.0, 1.0), "{held} {closed}");

    // By hand it holds as well, dry or not.
    let namespace = scene.state.namespace.clone();
    for flag in ["--dry-run", "--yes"] {
        let asked = module
            .beside(&["heal", SERVICE, "-n", &namespace, flag])
            .await?;
        ensure!(
            asked.status.code() == Some(1) && text(&asked).contains("held back (hold)"),
            "{asked:?}"
        );
    }
    let target = json!({"namespace": namespace, "service": SERVICE});
    let (status, body) = scene.call("heal", target).await;
    ensure!(status == 409 && body["reason"] == "hold", "{status} {body}");

    // Killed while it holds something back: that is still known, and the release is not missed.
    module = module.restart()?;
    eventually("the hold is released", LONG, async || {
        let released = module.beside(&["release", "audit"]).await?;
        Ok(match released.status.success() {
            true => Look::Done(()),
            false => Look::NotYet(format!("{released:?}")),
        })
    })
    .await?;
    scene
        .state
        .await_right(LONG)
        .await
        .with_context(|| module.log())?;
    let seen = scene
        .reported(&module, "healed", |r| r["heals"]["succeeded"] == 1)
        .await?;
    ensure!(seen.get("closed").is_none(), "{seen}");
    let again = module.beside(&["release", "audit"]).await?;
    ensure!(again.status.code() == Some(1), "{again:?}");

    // The whole story, to the fleet and on the device.
    let (status, body) = scene.call("getIncidents", json!({"limit": 1})).await;
    let incident = &body["incidents"][0];
    ensure!(
        status == 200 && incident["outcome"] == "healed" && incident["kind"] == "TerminalPod",
        "{status} {body}"
    );
    let told: Vec<&str> = incident["story"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|e| e["what"].as_str())
        .collect();
    for what in ["finding", "decision", "action", "outcome"] {
        ensure!(told.contains(&what), "{what}: {body}");
    }
    let (status, body) = scene
        .call("getTimeline", json!({"namespace": namespace}))
        .await;
    let types: Vec<&str> = body["timeline"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|e| e["type"].as_str())
        .collect();
    ensure!(
        status == 200 && types.contains(&"finding") && types.contains(&"outcome"),
        "{status} {body}"
    );
    let (_, elsewhere) = scene
        .call("getTimeline", json!({"namespace": "nowhere"}))
        .await;
    ensure!(elsewhere["timeline"] == json!([]), "{elsewhere}");
    let shown = module.beside(&["incidents"]).await?;
    ensure!(
        shown.status.success() && text(&shown).contains("held back (hold)"),
        "{}",
        text(&shown)
    );
    let shown = module.beside(&["timeline", "-n", &namespace]).await?;
    ensure!(
        text(&shown).contains("TerminalPod") || text(&shown).contains("finished"),
        "{}",
        text(&shown)
    );
    Ok(())
}

#[tokio::test]
async fn holds_of_file_twin_and_command_line_and_windows_close() -> Result<()> {
    let mut scene = scene("closed").await?;
    // Open twelve hours from now, in a zone of its own.
    let later = Timestamp::now() + 12.hours();
    let opens = later.to_zoned(jiff::tz::TimeZone::get("Asia/Kolkata")?);
    let window = format!(
        "* {:02}:00-{:02}:30 Asia/Kolkata",
        opens.hour(),
        opens.hour()
    );
    let mut module = scene.setup.clone().set("WINDOWS__NIGHT", &window).start()?;
    scene.synced(&module).await?;
    scene.state.finish_pod(0).await?;
    module
        .await_line(&["outcome=held", "no heal window is open"], LONG)
        .await?;
    let seen = scene
        .reported(&module, "closed", |r| {
            r["closed"]["reason"] == "outside-window" && r["health"]["state"] == "blocked"
        })
        .await?;
    let reason = seen["health"]["reason"].as_str().unwrap_or_default();
    ensure!(reason.contains("(outside-window)"), "{seen}");
    let address = module.metrics_address().await?;
    let held = metric(
        &address,
        "slice_healer_heals_held_total",
        "\"outside-window\"",
    )
    .await?;
    ensure!(held == 1.0, "{held}");

    // A hold from the command line, then one of the twin that ends later: the later one is told.
    let asked = module.beside(&["hold", "shift", "--minutes", "5"]).await?;
    ensure!(asked.status.success(), "{asked:?}");
    scene
        .reported(&module, "hold by hand", |r| {
            r["closed"]["detail"]
                .as_str()
                .is_some_and(|d| d.contains("shift"))
        })
        .await?;
    scene
        .edge
        .cloud()
        .set_desired(json!({"settings": {"__t": "c",
            "holds": {"inventory": "2099-01-01T00:00:00Z"}}}))?;
    scene
        .reported(&module, "hold of the twin", |r| {
            r["closed"]["detail"]
                .as_str()
                .is_some_and(|d| d.contains("inventory"))
        })
        .await?;
    let refused = module.beside(&["release", "inventory"]).await?;
    ensure!(
        refused.status.code() == Some(2) && text(&refused).contains("file or twin"),
        "{refused:?}"
    );
    // Away it goes where it came from, and the window after it.
    scene
        .edge
        .cloud()
        .patch_desired(json!({"settings": {"holds": {"inventory": null}}}))?;
    scene
        .reported(&module, "the twin's hold is gone", |r| {
            r["closed"]["detail"]
                .as_str()
                .is_some_and(|d| d.contains("shift"))
        })
        .await?;
    ensure!(module.beside(&["release", "shift"]).await?.status.success());
    scene
        .reported(&module, "only the window is left", |r| {
            r["closed"]["reason"] == "outside-window"
        })
        .await?;
    scene
        .edge
        .cloud()
        .patch_desired(json!({"settings": {"windows": {"now": "* 00:00-24:00 UTC"}}}))?;
    scene
        .state
        .await_right(LONG)
        .await
        .with_context(|| module.log())?;

    // A hold of a settings file.
    drop(module);
    let module = scene
        .setup
        .clone()
        .set("HOLDS__AUDIT", "2099-01-01T00:00:00Z")
        .start()?;
    scene
        .reported(&module, "hold of the environment", |r| {
            r["closed"]["detail"]
                .as_str()
                .is_some_and(|d| d.contains("audit"))
        })
        .await?;
    drop(scene.ground);
    Ok(())
}

#[tokio::test]
async fn what_was_deleted_can_be_read_back_and_a_dry_run_names_each_write() -> Result<()> {
    let mut scene = scene("evidence").await?;
    scene.ground.restart_controller().await?;
    let before = scene.state.slices().await?;
    scene.state.finish_pod(0).await?;
    scene.state.finish_pod(1).await?;
    let mut module = scene
        .setup
        .clone()
        .set("LADDER", "delete-slice")
        .set("MODE", "observe")
        .set("HEAL__PACE__VERIFY_GAP", "PT1S")
        .start()?;
    module
        .await_line(&["kind=heal", "outcome=held"], LONG)
        .await?;
    let namespace = scene.state.namespace.clone();
    let name = before[0].metadata.name.clone().context("a name")?;
    let heal = ["heal", SERVICE, "-n", &namespace];
    let dry = module
        .beside(&[heal.as_slice(), &["--dry-run"]].concat())
        .await?;
    let write = format!("delete endpointslices {namespace}/{name} (uid ");
    ensure!(
        dry.status.code() == Some(1) && text(&dry).contains(&write),
        "{write}\n{dry:?}"
    );
    ensure!(text(&dry).contains("resourceVersion "), "{dry:?}");
    let healed = module
        .beside(&[heal.as_slice(), &["--yes"]].concat())
        .await?;
    ensure!(healed.status.success(), "{healed:?}\n{}", module.log());
    scene.state.await_right(LONG).await?;

    let shown = module.beside(&["deleted-slice", &name]).await?;
    ensure!(shown.status.success(), "{shown:?}");
    let kept: Value = serde_saphyr::from_str(&text(&shown))?;
    let mut expected = serde_json::to_value(&before[0])?;
    ensure!(kept["kind"] == "EndpointSlice", "{kept}");
    for (side, object) in [("kept", &kept), ("before", &expected)] {
        ensure!(
            object["endpoints"].as_array().is_some_and(|e| e.len() == 3),
            "{side}: {object}"
        );
    }
    expected["metadata"]["managedFields"].take();
    ensure!(
        kept["endpoints"] == expected["endpoints"]
            && kept["metadata"]["uid"] == expected["metadata"]["uid"]
            && kept["ports"] == expected["ports"],
        "{kept}\n{expected}"
    );
    let (status, body) = scene
        .call(
            "getDeletedSlice",
            json!({"name": format!("{namespace}/{name}")}),
        )
        .await;
    ensure!(
        status == 200 && body["object"]["metadata"]["uid"] == kept["metadata"]["uid"],
        "{status} {body}"
    );
    let (status, _) = scene
        .call("getDeletedSlice", json!({"name": "nobody"}))
        .await;
    ensure!(status == 404, "{status}");
    let unknown = module.beside(&["deleted-slice", "nobody"]).await?;
    ensure!(unknown.status.code() == Some(1), "{unknown:?}");
    Ok(())
}
