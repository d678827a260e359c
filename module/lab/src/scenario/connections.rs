//! Where a product finds the world: paths, ports, the environment of a module.

use std::path::PathBuf;

/// What the product is started with.
#[derive(Debug, Clone)]
pub struct Connections {
    /// A kubeconfig of the embedded cluster.
    pub kubeconfig: PathBuf,
    /// Folder of journal files; the machine's is below it.
    pub journal: PathBuf,
    /// File with the host's machine id, which is also the Node's.
    pub machine_id: PathBuf,
    /// An empty folder that is the product's own.
    pub state: PathBuf,
    /// The variables that edgeAgent gives a module.
    pub module: Vec<(String, String)>,
    /// Port of edgeHub.
    pub mqtt_port: u16,
}

/// Waits that are shortened for the lab, so that a story takes seconds: the product's own names of
/// its settings, without their prefix.
const HASTE: &[(&str, &str)] = &[
    ("GRACE__REFRESH", "PT2S"),
    ("GRACE__DELETE", "PT6S"),
    ("GRACE__REFRESH_ON_SIGNAL", "PT1S"),
    ("GRACE__DELETE_ON_SIGNAL", "PT4S"),
    ("HEAL__PACE__LOOK_AGAIN", "PT2S,PT2S"),
    ("HEAL__PACE__VERIFY_GAP", "PT1S"),
    ("HEAL__PACE__SETTLE", "PT1S"),
    ("HEAL__PACE__COOL_DOWN", "PT5S"),
    ("REPORT__MIN_INTERVAL", "PT1S"),
];

impl Connections {
    /// Everything as environment variables: the module's own, and the product's settings by their
    /// public names. Nothing in it is secret but what the kubeconfig file holds.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let path = |path: &PathBuf| path.display().to_string();
        let places = [
            ("CLUSTER__KUBECONFIG", path(&self.kubeconfig)),
            ("JOURNAL__DIRECTORIES", path(&self.journal)),
            ("JOURNAL__MACHINE_ID_FILE", path(&self.machine_id)),
            ("STORE__DIRECTORY", path(&self.state)),
            ("HUB__GATEWAY_PORT", self.mqtt_port.to_string()),
            ("SERVE__PORT", "0".to_owned()),
            // The host's own units are none of the story.
            ("DBUS__ENABLED", "never".to_owned()),
        ];
        let haste = HASTE.iter().map(|(key, value)| (*key, (*value).to_owned()));
        let settings = places
            .into_iter()
            .chain(haste)
            .map(|(key, value)| (format!("SLICE_HEALER__{key}"), value));
        self.module.iter().cloned().chain(settings).collect()
    }
}
