//! Finds the node that this module runs on: by setting, by the host's machine id, by the gateway's
//! name. Where none of these fits exactly one node, it says so instead of guessing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use slice_core::model::Object;
use tracing::{info, warn};

/// What is known about the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalNode {
    /// The node's name, if it is set.
    pub name: Option<String>,
    /// The file with the host's machine id; in a container the host's must be mounted.
    pub machine_id: PathBuf,
    /// The host name that edgeHub is reached by (`IOTEDGE_GATEWAYHOSTNAME`).
    pub gateway: Option<String>,
}

/// Keeps the nodes' machine ids and tells which node is the local one.
#[derive(Debug)]
pub(super) struct Finder {
    known: LocalNode,
    machine_id: Option<String>,
    nodes: BTreeMap<String, String>,
    /// None before the first list.
    found: Option<Option<String>>,
}

impl Finder {
    pub(super) fn new(known: LocalNode) -> Self {
        Self {
            machine_id: None,
            known,
            nodes: BTreeMap::new(),
            found: None,
        }
    }

    /// The local node's name, if it is known.
    pub(super) fn found(&self) -> Option<String> {
        self.found.clone().flatten()
    }

    /// All nodes were listed. Tells whether the answer has changed.
    pub(super) fn reset(&mut self, objects: &[Object]) -> bool {
        self.nodes.clear();
        objects.iter().for_each(|o| self.keep(o));
        self.look()
    }

    /// A node was added or changed. Tells whether the answer has changed.
    pub(super) fn apply(&mut self, object: &Object) -> bool {
        self.keep(object);
        self.look()
    }

    /// A node is gone. Tells whether the answer has changed.
    pub(super) fn delete(&mut self, name: &str) -> bool {
        self.nodes.remove(name);
        self.look()
    }

    fn keep(&mut self, object: &Object) {
        if let Object::Node(node) = object {
            let machine_id = node.status.node_info.machine_id.to_string();
            self.nodes.insert(node.meta.name.to_string(), machine_id);
        }
    }

    fn look(&mut self) -> bool {
        if self.machine_id.is_none() {
            // Looked for again until it is there: the mount may come later than the module.
            let text = std::fs::read_to_string(&self.known.machine_id).unwrap_or_default();
            self.machine_id = Some(text.trim().to_owned()).filter(|id| !id.is_empty());
        }
        let found = self.search();
        if self.found.as_ref() == Some(&found) {
            return false;
        }
        match &found {
            Some(node) => info!(node, "this is the local node"),
            None => warn!(
                "the local node is not known, so all Services count as local: set cluster.node_name, or \
                 mount the host's machine id"
            ),
        }
        self.found = Some(found);
        true
    }

    fn search(&self) -> Option<String> {
        if let Some(name) = &self.known.name {
            return Some(name.clone());
        }
        self.by_machine_id().or_else(|| self.by_gateway())
    }

    /// Cloned machines share an id; then it names nobody.
    fn by_machine_id(&self) -> Option<String> {
        let id = self.machine_id.as_ref()?;
        let mut same = self.nodes.iter().filter(|(_, other)| *other == id);
        let (name, _) = same.next()?;
        same.next().is_none().then(|| name.clone())
    }

    fn by_gateway(&self) -> Option<String> {
        let gateway = self.known.gateway.as_deref()?.to_ascii_lowercase();
        // An address is no name, and its first number is none either.
        if gateway.parse::<std::net::IpAddr>().is_ok() {
            return None;
        }
        let short = gateway.split('.').next().unwrap_or(&gateway);
        // Node names are lower case.
        [gateway.as_str(), short]
            .iter()
            .find_map(|name| self.nodes.contains_key(*name).then(|| (*name).to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn node(name: &str, machine_id: &str) -> Object {
        let json = serde_json::json!({
            "metadata": {"name": name}, "status": {"nodeInfo": {"machineID": machine_id}},
        });
        Object::Node(serde_json::from_value(json).unwrap())
    }

    fn finder(name: Option<&str>, id: Option<&str>, gateway: Option<&str>) -> Finder {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{}", id.unwrap_or_default()).unwrap();
        let mut finder = Finder::new(LocalNode {
            name: name.map(str::to_owned),
            machine_id: file.path().to_owned(),
            gateway: gateway.map(str::to_owned),
        });
        finder.look();
        finder
    }

    #[test]
    fn the_setting_wins_over_all_else() {
        let mut finder = finder(Some("mine"), Some("aa"), Some("edge-7"));
        finder.reset(&[node("edge-7", "aa")]);
        assert_eq!(finder.found().as_deref(), Some("mine"));
    }

    #[test]
    fn the_machine_id_names_the_node() {
        let mut finder = finder(None, Some("bb"), Some("edge-1"));
        assert!(finder.reset(&[node("edge-1", "aa"), node("edge-2", "bb")]));
        assert_eq!(finder.found().as_deref(), Some("edge-2"));
        assert!(!finder.apply(&node("edge-3", "cc")), "nothing new");
        assert!(finder.delete("edge-2"), "the node is gone");
        assert_eq!(
            finder.found().as_deref(),
            Some("edge-1"),
            "the gateway's name is next"
        );
    }

    #[test]
    fn a_machine_id_of_two_nodes_names_none_of_them() {
        let mut finder = finder(None, Some("aa"), Some("Edge-2.factory.local"));
        finder.reset(&[node("edge-1", "aa"), node("edge-2", "aa")]);
        assert_eq!(
            finder.found().as_deref(),
            Some("edge-2"),
            "found by the gateway's short name"
        );
        let mut finder = self::finder(None, Some("aa"), Some("10.0.0.7"));
        finder.reset(&[node("edge-1", "aa"), node("edge-2", "aa"), node("10", "x")]);
        assert_eq!(finder.found(), None);
    }

    #[test]
    fn nothing_known_is_told_once() {
        let mut finder = finder(None, None, None);
        assert!(
            !finder.reset(&[node("edge-1", "")]),
            "known to be unknown since the first look"
        );
        assert_eq!(finder.found(), None);
    }
}
