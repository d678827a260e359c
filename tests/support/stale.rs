//! Stale states that a real controller really leaves, ready for a test to heal.
//!
//! Nothing here edits a slice by hand but for the deletes that a person would do: the controller
//! itself wrote, or failed to write, what is stale.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use serde_json::json;

use super::backoff;
use super::ban::WriteBan;
use super::controlplane::ControlPlane;
use super::objects::{self, PodSeed};
use super::wait::{Look, eventually, throughout};

/// The Service that every state is about.
pub const SERVICE: &str = "model-endpoint";
/// How long the controller may take over what it does at once when it is well.
pub const PROMPT: Duration = Duration::from_secs(30);
/// A Service whose slices are not what they should be, on a controller that could write them.
pub struct Stale {
    /// May do everything.
    pub client: Client,
    /// The state's own namespace.
    pub namespace: String,
    /// The node that all its pods are bound to.
    pub node: String,
    /// The third number of its pods' addresses, 10.244.`block`.x.
    pub block: u8,
    /// The addresses that the Service should route to.
    pub expected: BTreeSet<String>,
}

impl Stale {
    /// The slices as they are.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn slices(&self) -> Result<Vec<EndpointSlice>> {
        objects::slices(&self.client, &self.namespace, SERVICE).await
    }

    /// Waits until the Service routes to what it should; returns how long that took.
    ///
    /// # Errors
    /// When `deadline` passes.
    pub async fn await_right(&self, deadline: Duration) -> Result<Duration> {
        let Self {
            client,
            namespace,
            expected,
            ..
        } = self;
        objects::await_routed(client, namespace, SERVICE, expected, deadline).await
    }

    /// Proves that nobody heals the Service for `span`.
    ///
    /// # Errors
    /// When somebody does.
    pub async fn stays_wrong(&self, span: Duration) -> Result<()> {
        throughout("the Service stays stale", span, async || {
            let seen = objects::routed(&self.slices().await?);
            Ok(match seen == self.expected {
                false => Look::Done(()),
                true => Look::NotYet("it was healed".into()),
            })
        })
        .await
    }

    /// Proves that the Service has no slice at all for `span`.
    ///
    /// # Errors
    /// When one appears.
    pub async fn stays_without_slices(&self, span: Duration) -> Result<()> {
        throughout("the Service has no slice", span, async || {
            Ok(match self.slices().await?.len() {
                0 => Look::Done(()),
                some => Look::NotYet(format!("{some} slices")),
            })
        })
        .await
    }

    /// The ladder's first step, by hand.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn touch(&self, value: &str) -> Result<()> {
        objects::touch_service(&self.client, &self.namespace, SERVICE, value).await
    }

    /// What the seeds advise: deletes the Service's slices, and nothing else.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn delete_slices(&self) -> Result<Vec<String>> {
        objects::delete_slices(&self.client, &self.namespace, SERVICE).await
    }
}

/// A Service with three pods of v2.0 whose slices are right.
///
/// # Errors
/// When the API server refuses, or the controller does not write the slices.
pub async fn healthy(plane: &ControlPlane, stem: &str) -> Result<Stale> {
    healthy_in(plane.client().await?, plane.namespace(stem).await?).await
}

/// As [`healthy`], in a namespace of any cluster.
///
/// # Errors
/// As [`healthy`].
pub async fn healthy_in(client: Client, namespace: String) -> Result<Stale> {
    healthy_on(client, namespace, 1).await
}

/// As [`healthy_in`], with addresses of a block of its own, for where they are more than text.
///
/// # Errors
/// As [`healthy`].
pub async fn healthy_on(client: Client, namespace: String, block: u8) -> Result<Stale> {
    let node = format!("node-{namespace}");
    objects::create_node(&client, &node).await?;
    objects::create_service(&client, &namespace, SERVICE).await?;
    let mut state = Stale {
        client,
        namespace,
        node,
        block,
        expected: BTreeSet::new(),
    };
    state.expected = state.roll_out("2.0", 10).await?;
    state.await_right(PROMPT).await?;
    Ok(state)
}

impl Stale {
    /// Makes the three pods of a version; the last numbers of their addresses begin at `first`.
    async fn roll_out(&self, version: &str, first: u8) -> Result<BTreeSet<String>> {
        let mut addresses = BTreeSet::new();
        for n in 0..3 {
            let seed = self.pod(version, n, first);
            objects::create_pod(&self.client, &self.namespace, &seed).await?;
            addresses.insert(seed.ip);
        }
        Ok(addresses)
    }

    /// The `n`th pod of a version.
    pub fn pod(&self, version: &str, n: u8, first: u8) -> PodSeed {
        PodSeed {
            name: format!("model-{}-{n}", version.replace('.', "-")),
            app: SERVICE.into(),
            version: version.into(),
            node: self.node.clone(),
            ip: format!("10.244.{}.{}", self.block, first + n),
            ready: true,
        }
    }

    /// Replaces the pods of v2.0 by pods of v2.1 on other addresses.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn redeploy(&mut self) -> Result<()> {
        for n in 0..3 {
            let old = self.pod("2.0", n, 10).name;
            objects::delete_pod(&self.client, &self.namespace, &old).await?;
        }
        self.expected = self.roll_out("2.1", 20).await?;
        Ok(())
    }

    /// Lets the readiness of a pod flap, as while a model loads: two events for the controller.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn flap(&self, version: &str, n: u8) -> Result<()> {
        let pod = self.pod(version, n, 0);
        for ready in [false, true] {
            objects::set_pod_ready(&self.client, &self.namespace, &pod.name, ready).await?;
        }
        Ok(())
    }

    /// Has the `n`th pod of v2.0 fail, of which the controller does not notice.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn finish_pod(&mut self, n: u8) -> Result<()> {
        let pod = self.pod("2.0", n, 10);
        let failed = json!({"phase": "Failed"});
        objects::set_pod_status(&self.client, &self.namespace, &pod.name, failed).await?;
        self.expected.remove(&pod.ip);
        Ok(())
    }

    /// Sets or removes a label on each slice of the Service; returns their names.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn label_slices(&self, label: &str, value: Option<&str>) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for slice in self.slices().await? {
            let name = slice.metadata.name.unwrap_or_default();
            objects::label_slice(&self.client, &self.namespace, &name, label, value).await?;
            names.push(name);
        }
        Ok(names)
    }

    /// Removes the first pod of v2.0.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn lose_pod(&mut self) -> Result<()> {
        let lost = self.pod("2.0", 0, 10);
        objects::delete_pod(&self.client, &self.namespace, &lost.name).await?;
        self.expected.remove(&lost.ip);
        Ok(())
    }
}

/// What happens to the pods while the controller cannot write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// All three are replaced: a dozen events, hence a dozen failed tries, hence mostly a back-off
    /// of 1000 s within the first second.
    Redeployment,
    /// One goes: one or two failed tries, so that the back-off is of seconds.
    PodLost,
}

/// Pods changed while the controller's writes were denied; now they are allowed again, and the
/// controller sits out its back-off, of which at least `left` was left when the ban was lifted.
/// Also returns what is left on return.
///
/// Works on the shared control plane. The slices still say what they said before the change.
///
/// # Errors
/// When the state does not come about.
pub async fn admission_backoff(
    plane: &ControlPlane,
    change: Change,
    left: Duration,
) -> Result<(Stale, Duration)> {
    let mut state = healthy(plane, "backoff").await?;
    // No sync that the controller has put off may come in between: the dates would be others.
    plane.await_manager().await?;
    let ban = WriteBan::impose(plane, &state.namespace).await?;
    let before = state.expected.clone();
    let since = Timestamp::now();
    match change {
        Change::Redeployment => state.redeploy().await?,
        Change::PodLost => state.lose_pod().await?,
    }
    state.await_back_off(plane, since, left).await?;
    ban.lift().await?;
    let seen = objects::routed(&state.slices().await?);
    ensure!(seen == before, "the controller was faster: {seen:?}");
    let remaining = state.back_off_left(plane, since)?;
    Ok((state, remaining))
}

impl Stale {
    /// Waits until the controller, whose syncs have failed since `since`, has put its next try off
    /// for at least `left`.
    ///
    /// # Errors
    /// When it does not.
    pub async fn await_back_off(
        &self,
        plane: &ControlPlane,
        since: Timestamp,
        left: Duration,
    ) -> Result<()> {
        let deadline = PROMPT + left * 3;
        eventually(
            "the controller puts its next try off",
            deadline,
            async || {
                let remaining = self.back_off_left(plane, since)?;
                Ok(match remaining >= left {
                    true => Look::Done(()),
                    false => Look::NotYet(format!("{remaining:?}")),
                })
            },
        )
        .await?;
        Ok(())
    }

    /// How long the controller waits until it tries by itself; zero when it has not failed since
    /// `since`, or tries now.
    ///
    /// # Errors
    /// When its log is not what it was.
    pub fn back_off_left(&self, plane: &ControlPlane, since: Timestamp) -> Result<Duration> {
        let due = backoff::next_try(&plane.manager.log(), since, &self.namespace, SERVICE)?;
        let left = due.map(|due| due.duration_since(Timestamp::now()));
        Ok(left
            .and_then(|left| left.try_into().ok())
            .unwrap_or_default())
    }
}

/// The controller was restarted, found the slices right, and has them not in its tracker; then
/// they were deleted. It ignores that: the Service stays without a slice.
///
/// Needs a control plane of the test's own.
///
/// # Errors
/// When the state does not come about.
pub async fn untracked_delete(plane: &ControlPlane) -> Result<Stale> {
    let state = healthy(plane, "untracked").await?;
    plane.restart_manager().await?;
    state.delete_slices().await?;
    Ok(state)
}

/// A pod's phase turned Failed while its Ready condition stayed True (kubernetes#109414). That is no
/// event for the controller, so the pod that is finished stays listed as ready, until something
/// else happens to the Service or 12 to 24 hours have passed.
///
/// Works on the shared control plane; the slice is tracked.
///
/// # Errors
/// When the API server refuses.
pub async fn phase_only(plane: &ControlPlane) -> Result<Stale> {
    let mut state = healthy(plane, "phase").await?;
    // The controller puts a sync off by a second after the slice's own events.
    plane.await_manager().await?;
    state.finish_pod(0).await?;
    Ok(state)
}

/// As [`phase_only`], after a restart of the controller: the stale slice is untracked.
///
/// Needs a control plane of the test's own.
///
/// # Errors
/// When the state does not come about.
pub async fn untracked_stale(plane: &ControlPlane) -> Result<Stale> {
    let mut state = healthy(plane, "trap").await?;
    plane.restart_manager().await?;
    state.finish_pod(0).await?;
    Ok(state)
}
