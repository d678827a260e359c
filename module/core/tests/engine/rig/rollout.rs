//! Redeployments, and a controller that catches up with them.

use slice_core::model::Kind;

use super::Rig;

impl Rig {
    /// A redeployment that the controller has slept through: every pod is new.
    pub(crate) fn redeploy_unseen(&mut self) {
        for i in 1..=3 {
            self.delete_pod(&format!("model-{i}"));
            self.pod(&format!("model-{}", i + 3), &format!("10.244.1.{}", i + 3));
        }
    }

    /// Another pod in place of the one that a Service has, unseen by the controller.
    pub(crate) fn replace_pod(&mut self, app: &str) {
        for old in self.names(Kind::Pod) {
            if old.starts_with(&format!("{app}-")) {
                self.delete_pod(&old);
            }
        }
        self.uids += 1;
        let (n, ip) = (
            self.uids,
            format!("10.245.{}.{}", self.uids / 250, self.uids % 250 + 1),
        );
        self.pod_of(app, &format!("{app}-{n}"), &ip);
    }

    /// The rest of a redeployment that began with the loss of the first pod.
    pub(crate) fn redeploy_rest(&mut self) {
        for i in 2..=3 {
            self.delete_pod(&format!("model-{i}"));
        }
        self.pod("model-5", "10.244.1.5");
    }

    /// What the controller would write for every Service.
    pub(crate) fn write_slices(&mut self) {
        for name in self.names(Kind::Service) {
            self.write_slice_of(&name);
        }
    }
}
