//! One stale Service, one module in charge of it on a way that can be made bad, and what must hold
//! whatever happened: the Service has its slice and routes rightly, and no slice was deleted twice.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::{Timestamp, ToSpan as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::support::badway::{BadWay, Fate, Step};
use crate::support::controlplane::ControlPlane;
use crate::support::controlplane::audit::Write;
use crate::support::module::{Module, Setup};
use crate::support::product;
use crate::support::stale::Stale;
use crate::support::wait::{Look, throughout};

/// How long a heal may take, with a restart in between and on a slow machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);
/// How long it is watched that nothing more happens.
const REST: Duration = Duration::from_secs(3);

/// The user that the module is for the API server.
pub(crate) fn healer() -> String {
    format!("system:serviceaccount:{0}:{0}", product::NAME)
}

/// A Service that is stale, and the module's setup.
pub(crate) struct Scene<'a> {
    pub(crate) plane: &'a ControlPlane,
    pub(crate) state: Stale,
    pub(crate) way: BadWay,
    pub(crate) setup: Setup,
    since: Timestamp,
}

impl<'a> Scene<'a> {
    /// The module's waits are short, so that its steps follow one another; their order and their
    /// conditions are as always. `alone` leaves Lease and canary out: others heal at the same time.
    pub(crate) async fn new(plane: &'a ControlPlane, state: Stale, alone: bool) -> Result<Self> {
        let way = BadWay::open(&product::install(plane).await?).await?;
        let guarded = if alone { "false" } else { "true" };
        let setup = Setup::new(&way.kubeconfig())
            .set("SCOPE__NAMESPACES", &state.namespace)
            .set("SCOPE__LOCALITY", "cluster")
            .set("GRACE__REFRESH", "PT1S")
            .set("GRACE__DELETE", "PT2S")
            .set("HEAL__PACE__LOOK_AGAIN", "PT1S,PT1S")
            .set("HEAL__PACE__VERIFY_GAP", "PT1S")
            .set("HEAL__PACE__SETTLE", "PT1S")
            .set("HEAL__PACE__COOL_DOWN", "PT1S")
            .set("HEAL__PACE__ACTION_DEADLINE", "PT6S")
            .set("HEAL__LEASE", guarded)
            .set("HEAL__CANARY", guarded);
        let since = Timestamp::now();
        Ok(Self {
            plane,
            state,
            way,
            setup,
            since,
        })
    }

    /// The module's writes to this Service and its slices that the API server did.
    pub(crate) fn done(&self) -> Result<Vec<Write>> {
        let mut all = self
            .plane
            .writes_of(&healer(), &self.state.namespace, self.since)?;
        all.retain(|write| write.is_heal() && write.done());
        Ok(all)
    }

    /// How many slices the module has deleted.
    pub(crate) fn deletes(&self) -> Result<usize> {
        Ok(self
            .done()?
            .iter()
            .filter(|write| write.verb == "delete")
            .count())
    }

    /// Starts a module and lets it climb to the delete, of which it does not get the answer.
    pub(crate) async fn start_to_a_delete(&mut self) -> Result<Module> {
        let mut rule = to_the_last_rung();
        self.way.rule(move |step| match step.name.as_str() {
            "delete" => Fate::HoldAfter,
            _ => rule(step),
        });
        let module = self.setup.start()?;
        let step = self.way.held(LONG).await;
        step.with_context(|| format!("no delete:\n{}", module.log()))?;
        Ok(module)
    }

    /// The names of the writes that were tried after the delete.
    pub(crate) fn tried_since_the_delete(&self) -> Vec<String> {
        let steps = self.way.steps().into_iter().rev();
        let since = steps.take_while(|(step, _)| step.name != "delete");
        since.map(|(step, _)| step.name).collect()
    }

    /// What must hold in the end. Waits for it, and watches that it stays.
    pub(crate) async fn ends_well(&self, module: &Module) -> Result<()> {
        self.state
            .await_right(LONG)
            .await
            .with_context(|| module.log())?;
        throughout("it stays right", REST, async || {
            let slices = self.state.slices().await?;
            let deletes = self.deletes()?;
            Ok(match slices.len() == 1 && deletes <= 1 {
                true => Look::Done(()),
                false => Look::NotYet(format!("{} slices, {deletes} deletes", slices.len())),
            })
        })
        .await
        .with_context(|| module.log())
    }

    /// No slice was deleted, and the one that was there is there.
    pub(crate) async fn deleted_nothing(&self) -> Result<()> {
        ensure!(self.deletes()? == 0, "{:?}", self.done()?);
        ensure!(self.state.slices().await?.len() == 1);
        Ok(())
    }
}

/// Refreshes get lost until a slice was deleted, so that the ladder is climbed to its end.
pub(crate) fn to_the_last_rung() -> impl FnMut(&Step) -> Fate + Send {
    let mut deleted = false;
    move |step| match step.name.as_str() {
        "delete" => {
            deleted = true;
            Fate::Pass
        }
        "refresh" if !deleted => Fate::Swallow,
        _ => Fate::Pass,
    }
}

/// What becomes of the Lease of one who was killed, without the wait.
pub(crate) async fn end_lease(plane: &ControlPlane) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(plane.client().await?, product::NAME);
    if leases.get_opt(product::NAME).await?.is_none() {
        return Ok(());
    }
    let past = Timestamp::now().checked_sub(5.minutes())?;
    let patch = Patch::Merge(json!({"spec": {"renewTime": format!("{past:.6}")}}));
    leases
        .patch(product::NAME, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}
