//! `slice-healer deleted-slice`: a slice that a heal deleted, word for word.

use std::process::ExitCode;

use serde_json::Value;

use super::module::ask;
use super::output::{print, print_json};
use crate::serve::ControlRequest;
use crate::settings::Loaded;

/// Prints a slice that was deleted, as it was, so that a person can look at it or restore endpoints by
/// hand. The latest 50 are kept. Exit code: 0 printed, 1 not kept, 2 error.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Its name, or namespace/name.
    name: String,
    /// How to print; JSON has when and for which incident it was deleted as well.
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    output: Format,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    /// The object alone, for kubectl.
    Yaml,
    /// With everything that is kept of it.
    Json,
}

/// Runs the command.
///
/// # Errors
/// No module runs, or its store fails.
pub async fn run(args: Args, loaded: Loaded) -> anyhow::Result<ExitCode> {
    let request = ControlRequest::DeletedSlice {
        name: args.name.clone(),
    };
    let Some(kept) = ask(&loaded, &request).await? else {
        eprintln!("no deleted slice {:?} is kept", args.name);
        return Ok(ExitCode::FAILURE);
    };
    match args.output {
        Format::Json => print_json(&kept)?,
        Format::Yaml => print(&yaml(&kept)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn yaml(kept: &Value) -> anyhow::Result<String> {
    let text = |key: &str| kept[key].as_str().unwrap_or("?").to_owned();
    Ok(format!(
        "# deleted at {} by slice-healer, incident {}\n{}",
        text("at"),
        text("incident"),
        serde_saphyr::to_string(&kept["object"])?
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_yaml_reads_back_as_the_object() {
        let object = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "web-x1", "labels": {"on": "yes", "n": "007", "e": ""}},
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}],
            "ports": null});
        let kept = json!({"at": "2026-12-01T08:00:00Z", "incident": "a-1", "object": object});
        let text = yaml(&kept).unwrap();
        assert!(
            text.starts_with("# deleted at 2026-12-01T08:00:00Z"),
            "{text}"
        );
        let back: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back, object, "{text}");
    }
}
