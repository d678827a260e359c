//! Serves the embedded cluster for kubectl and other clients until Ctrl-C, and prints its kubeconfig:
//! `cargo run -p slice-lab --example cluster > /tmp/lab.yaml`.

use std::io::Write as _;

use slice_lab::kube::{Cluster, ClusterOptions};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let options = ClusterOptions {
        anonymous_admin: true,
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(options).await?;
    let mut out = std::io::stdout();
    out.write_all(cluster.admin_kubeconfig_yaml().as_bytes())?;
    out.flush()?;
    tokio::signal::ctrl_c().await
}
