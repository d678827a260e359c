//! `config/kubernetes/make-kubeconfig.sh` with a kubectl that answers from a table: what it prints is
//! a kubeconfig, and without a token it prints none.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use kube::config::Kubeconfig;

/// "token-of-the-account" and "the CA" in base64.
const TOKEN: &str = "dG9rZW4tb2YtdGhlLWFjY291bnQ=";
const CA: &str = "dGhlIENB";

/// Runs the script with a kubectl that answers with this token and this CA, both in base64.
pub(crate) fn run(token: &str, ca: &str, arguments: &[&str]) -> Result<Output> {
    let folder = tempfile::tempdir()?;
    let kubectl = folder.path().join("kubectl");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n*slice-healer-token*{{.data.token}}) printf %s '{token}' ;;\n*slice-healer-token*ca*) printf %s '{ca}' ;;\n*) exit 9 ;;\nesac\n"
    );
    std::fs::write(&kubectl, script)?;
    std::fs::set_permissions(&kubectl, std::fs::Permissions::from_mode(0o755))?;
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/kubernetes/make-kubeconfig.sh");
    Ok(Command::new("sh")
        .arg(made)
        .args(arguments)
        .env("KUBECTL", &kubectl)
        .output()?)
}

#[test]
fn a_kubeconfig_is_made_for_the_address_that_the_container_reaches() -> Result<()> {
    let (host, address) = ("https://kubernetes-host:6443", "https://192.168.1.10:6443");
    for (asked, server, name) in [
        // No certificate carries the name that the template makes up.
        (&[][..], host, Some("kubernetes")),
        (&[address][..], address, None),
        (&[address, "edge-7"][..], address, Some("edge-7")),
    ] {
        let made = run(TOKEN, CA, asked)?;
        ensure!(made.status.success(), "{made:?}");
        let config = Kubeconfig::from_yaml(std::str::from_utf8(&made.stdout)?)?;
        let cluster = config.clusters[0].cluster.as_ref();
        ensure!(cluster.and_then(|c| c.server.as_deref()) == Some(server));
        ensure!(cluster.and_then(|c| c.tls_server_name.as_deref()) == name);
        ensure!(cluster.and_then(|c| c.certificate_authority_data.as_deref()) == Some(CA));
        ensure!(config.current_context.as_deref() == Some("edge"));
        let text = String::from_utf8(made.stdout)?;
        ensure!(text.contains("token: token-of-the-account"), "{text}");
    }
    Ok(())
}

#[test]
fn without_a_token_there_is_no_kubeconfig() -> Result<()> {
    let made = run("", CA, &[])?;
    ensure!(!made.status.success() && made.stdout.is_empty(), "{made:?}");
    ensure!(String::from_utf8(made.stderr)?.contains("holds no token"));
    Ok(())
}
