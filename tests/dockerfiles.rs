//! The Dockerfiles as text: stages, what they copy, who runs. No engine is needed and none is asked.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// Dockerfile, name for `tools/build.sh`, Rust target.
const IMAGES: [(&str, &str, &str); 2] = [
    ("Dockerfile.arm64v8", "arm64", "aarch64-unknown-linux-musl"),
    ("Dockerfile.amd64", "amd64", "x86_64-unknown-linux-musl"),
];

#[derive(Debug)]
struct Stage {
    from: String,
    name: Option<String>,
    /// Instruction and the rest of its line, continued lines joined.
    lines: Vec<(String, String)>,
}

impl Stage {
    fn all<'a>(&'a self, instruction: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        let lines = self.lines.iter();
        lines
            .filter(move |(name, _)| name == instruction)
            .map(|(_, rest)| rest.as_str())
    }

    fn only<'a>(&'a self, instruction: &'a str) -> Result<&'a str> {
        let found: Vec<&str> = self.all(instruction).collect();
        ensure!(found.len() == 1, "{instruction}: {found:?}");
        Ok(found[0])
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn stages(file: &str) -> Result<Vec<Stage>> {
    let text = std::fs::read_to_string(root().join(file)).context(file.to_owned())?;
    let mut stages: Vec<Stage> = Vec::new();
    for line in text.replace("\\\n", " ").lines() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, rest) = line.split_once(' ').context(line.to_owned())?;
        let rest = rest.split_whitespace().collect::<Vec<_>>().join(" ");
        if name == "FROM" {
            let words: Vec<&str> = rest.split(' ').filter(|w| !w.starts_with("--")).collect();
            stages.push(Stage {
                from: words[0].to_owned(),
                name: words.get(2).map(|&w| w.to_owned()),
                lines: Vec::new(),
            });
        } else {
            let stage = stages.last_mut().context("an instruction before FROM")?;
            stage.lines.push((name.to_owned(), rest));
        }
    }
    Ok(stages)
}

/// `["a", "b"]`
fn exec_form(text: &str) -> Result<Vec<String>> {
    serde_json::from_str(text).with_context(|| format!("not the exec form: {text}"))
}

fn toml(file: &str) -> Result<toml::Table> {
    Ok(std::fs::read_to_string(root().join(file))?.parse()?)
}

#[test]
fn the_image_is_the_static_binary_and_runs_as_nobody_special() -> Result<()> {
    for (file, arch, target) in IMAGES {
        let stages = stages(file)?;
        ensure!(stages.len() == 2, "{file}: {stages:?}");
        let (build, image) = (&stages[0], &stages[1]);
        ensure!(build.name.as_deref() == Some("build"), "{file}: {build:?}");
        ensure!(image.from == "scratch", "{file}: {}", image.from);
        let runs: Vec<&str> = build.all("RUN").collect();
        ensure!(
            runs.iter()
                .any(|run| run.starts_with(&format!("tools/build.sh {arch} "))
                    && run.contains(&format!("/target/{target}/dist/slice-healer"))
                    && run.contains(&format!("tools/sbom.py {target} "))),
            "{file}: {runs:?}"
        );
        ensure!(
            image.only("COPY")? == "--from=build --chown=64200:64200 /image/ /",
            "{file}"
        );
        ensure!(image.only("USER")? == "64200:64200", "{file}");
        ensure!(exec_form(image.only("ENTRYPOINT")?)? == ["/slice-healer"]);
        ensure!(exec_form(image.only("CMD")?)? == ["run"]);
        let health = image.only("HEALTHCHECK")?;
        let (_, command) = health.split_once(" CMD ").context(health.to_owned())?;
        ensure!(exec_form(command)? == ["/slice-healer", "health"], "{file}");
        ensure!(
            image.all("RUN").count() == 0,
            "{file}: scratch has no shell"
        );
    }
    Ok(())
}

#[test]
fn what_is_copied_into_the_build_exists_and_is_not_ignored() -> Result<()> {
    let ignored = std::fs::read_to_string(root().join(".dockerignore"))?;
    for needed in [
        "Cargo.toml",
        "Cargo.lock",
        "module",
        "config",
        "tests/main.rs",
        "tools/build.sh",
        "tools/sbom.py",
    ] {
        ensure!(root().join(needed).exists(), "{needed} is missing");
        let top = needed.split('/').next().unwrap_or(needed);
        ensure!(
            ignored.lines().all(|line| line.trim_matches('/') != top),
            "{needed} is kept out by .dockerignore"
        );
    }
    for (file, _, _) in IMAGES {
        for copy in stages(file)?[0].all("COPY") {
            let words: Vec<&str> = copy.split(' ').collect();
            for source in &words[..words.len() - 1] {
                ensure!(root().join(source).exists(), "{file}: COPY {source}");
            }
        }
    }
    Ok(())
}

#[test]
fn versions_agree_in_all_places() -> Result<()> {
    let version = toml("Cargo.toml")?["workspace"]["package"]["version"]
        .as_str()
        .context("no version")?
        .to_owned();
    let module: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(root().join("module/module.json"))?)?;
    ensure!(module["image"]["tag"]["version"] == version.as_str());
    for (file, _, _) in IMAGES {
        let stages = stages(file)?;
        let arguments: BTreeMap<&str, &str> = stages[1]
            .all("ARG")
            .filter_map(|a| a.split_once('='))
            .collect();
        ensure!(
            arguments.get("VERSION") == Some(&version.as_str()),
            "{file}: {arguments:?}"
        );
        let label = stages[1].only("LABEL")?;
        for needed in ["title", "description", "licenses", "version", "revision"] {
            ensure!(
                label.contains(&format!("org.opencontainers.image.{needed}=")),
                "{file}: {needed}"
            );
        }
        // The toolchain of the image is one that the crate says it builds with.
        let image = &stages[0].from;
        let rust = image
            .strip_prefix("rust:")
            .and_then(|v| v.split('-').next());
        let least = toml("Cargo.toml")?["workspace"]["package"]["rust-version"]
            .as_str()
            .context("no rust-version")?
            .to_owned();
        let minor = |v: &str| v.split('.').nth(1).and_then(|n| n.parse::<u32>().ok());
        ensure!(
            rust.and_then(minor) >= minor(&least),
            "{file}: {image} is older than {least}"
        );
    }
    Ok(())
}

#[test]
fn both_images_differ_only_in_their_target() -> Result<()> {
    let [arm, amd] = [stages(IMAGES[0].0)?, stages(IMAGES[1].0)?];
    ensure!(arm[1].lines == amd[1].lines, "the last stages differ");
    ensure!(arm[0].from == amd[0].from, "the build images differ");
    Ok(())
}
