//! `slice-healer lab` as a user runs it: every story ends as it says, in the JSON of the contract.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Longer than any story takes on a slow machine.
const LONGEST: Duration = Duration::from_secs(150);

async fn play(story: &str) -> Result<(Option<i32>, Value)> {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_slice-healer"));
    command
        .args(["lab", "--once", "-o", "json", "--scenario", story])
        .kill_on_drop(true);
    let output = tokio::time::timeout(LONGEST, command.output())
        .await
        .with_context(|| format!("{story} does not end"))??;
    let report = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{story}: {}", String::from_utf8_lossy(&output.stderr)))?;
    Ok((output.status.code(), report))
}

#[tokio::test]
async fn the_seeds_story_climbs_the_whole_ladder() -> Result<()> {
    let (code, report) = play("redeploy-stale-slice").await?;
    ensure!(
        code == Some(0) && report["outcome"] == "healed",
        "{report:#}"
    );
    ensure!(report["schema"] == "slice-healer/lab/v1", "{report:#}");
    let timeline = report["timeline"].as_array().context("timeline")?;
    let at = |event: &str, nth: usize| {
        let mut places = timeline
            .iter()
            .enumerate()
            .filter(|(_, h)| h["event"] == event);
        places
            .nth(nth)
            .map(|(i, _)| i)
            .with_context(|| format!("{event} {nth}: {report:#}"))
    };
    // Stale, a line, a refresh that is answered with the same line, another one, then the delete.
    let stale = at("stale", 0)?;
    let refresh = at("refresh", 0)?;
    let deleted = at("slice-deleted", 0)?;
    ensure!(stale < refresh && at("refresh", 1)? < deleted, "{report:#}");
    let lines = |from: usize, to: usize| {
        timeline[from..to].iter().filter(|h| {
            h["event"] == "journal"
                && h["detail"]
                    .as_str()
                    .is_some_and(|d| d.contains("Cache hit"))
        })
    };
    ensure!(lines(refresh, deleted).count() >= 1, "{report:#}");
    ensure!(
        deleted < at("slice-created", 0)? && at("right", 0)? < at("healed", 0)?,
        "{report:#}"
    );
    let seconds = &report["seconds"];
    for what in ["signal", "finding", "healed"] {
        ensure!(seconds[what].as_f64().is_some(), "{what}: {seconds}");
    }
    let requests = &report["requests"];
    ensure!(
        requests["sent"].as_u64() > Some(0) && requests["wrong"].as_u64() > Some(0),
        "{requests}"
    );
    ensure!(report["twin"]["health"]["state"] == "healthy", "{report:#}");
    ensure!(report["telemetry"].as_u64() > Some(0), "{report:#}");
    Ok(())
}

#[tokio::test]
async fn every_other_story_ends_as_it_says() -> Result<()> {
    let listed = Command::new(env!("CARGO_BIN_EXE_slice-healer"))
        .args(["lab", "--list"])
        .output()?;
    let listed = String::from_utf8(listed.stdout)?;
    let stories: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "redeploy-stale-slice")
        .collect();
    ensure!(stories.len() >= 4, "{listed}");
    for story in stories {
        let (code, report) = play(story).await?;
        ensure!(code == Some(0), "{story}: {report:#}");
        ensure!(
            ["healed", "held"].iter().any(|o| report["outcome"] == *o),
            "{story}: {report:#}"
        );
    }
    Ok(())
}

#[test]
fn an_unknown_story_is_an_error_that_says_what_to_do() -> Result<()> {
    let output = Command::new(env!("CARGO_BIN_EXE_slice-healer"))
        .args(["lab", "--once", "--scenario", "nobody-knows"])
        .output()?;
    ensure!(output.status.code() == Some(1));
    ensure!(
        String::from_utf8_lossy(&output.stderr).contains("--list"),
        "{output:?}"
    );
    Ok(())
}
