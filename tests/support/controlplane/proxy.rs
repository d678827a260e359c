//! A real kube-proxy, which turns slices into the kernel's packet rules.
//!
//! Only for a test in a network namespace of its own: its rules are for all of that.

use std::net::TcpListener;

use anyhow::Result;

use super::{Component, ControlPlane, files};

impl ControlPlane {
    /// Starts kube-proxy in nftables mode as the node `node`, with the settings that it has by
    /// default. It has not written its rules yet when this returns.
    ///
    /// # Errors
    /// When the binary is missing (`tests/controlplane/build.sh kube-proxy`) or does not start.
    pub fn start_proxy(&self, node: &str) -> Result<Component> {
        let kubeconfig = self.folders.logs.join("proxy.conf");
        files::write_proxy_kubeconfig(&kubeconfig, self.port, &self.keys.ca)?;
        let free =
            || -> Result<u16> { Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port()) };
        let args = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--hostname-override={node}"),
            "--proxy-mode=nftables".into(),
            format!("--healthz-bind-address=127.0.0.1:{}", free()?),
            format!("--metrics-bind-address=127.0.0.1:{}", free()?),
            // The machine's limits are not ours to change.
            "--conntrack-max-per-core=0".into(),
            "--conntrack-tcp-timeout-established=0s".into(),
            "--conntrack-tcp-timeout-close-wait=0s".into(),
            "--v=2".into(),
        ];
        let proxy = Component::new("kube-proxy", args, &self.folders.logs)?;
        proxy.start()?;
        Ok(proxy)
    }
}
