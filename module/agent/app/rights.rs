//! Asks at the start, and again while something is missing, what the account may do; names what it may
//! not. Grants nothing, and keeps nobody from doing what is allowed.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::act::permissions::{self, Need, Right};
use crate::client::Supply;
use crate::serve::{Health, Part};

/// For all questions of one look.
const LOOK: Duration = Duration::from_secs(30);
/// Between two looks while the API server does not answer.
const SOON: Duration = Duration::from_secs(5);
/// Between two looks while a right is missing: somebody may be granting it.
const AGAIN: Duration = Duration::from_secs(300);

/// Starts the task. It ends when every right is there; another kubeconfig is asked about anew.
pub(super) fn watch(mut supply: Supply, health: Health, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut told: Option<Vec<Right>> = None;
        loop {
            let pause = match permissions::missing(&supply, LOOK).await {
                Ok(missing) => {
                    if told.as_ref() != Some(&missing) {
                        tell(&missing, &health);
                    }
                    let complete = missing.is_empty();
                    told = Some(missing);
                    if complete { None } else { Some(AGAIN) }
                }
                // The watches tell that the API server does not answer.
                Err(_) => Some(SOON),
            };
            let wait = async {
                match pause {
                    Some(pause) => sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = wait => {}
                () = supply.changed() => {}
            }
        }
    })
}

fn tell(missing: &[Right], health: &Health) {
    if missing.is_empty() {
        info!("every right that is needed is granted");
        health.report("rights", Part::new("granted"));
        return;
    }
    let named: Vec<String> = missing.iter().map(Right::to_string).collect();
    let named = named.join(", ");
    let worst = missing.iter().map(|right| right.need).min();
    let without = worst.map_or("", consequence);
    warn!(
        missing = named,
        "rights are missing, and {without}: {named}; apply config/kubernetes/20-read.yaml and 30-heal.yaml"
    );
    health.report("rights", Part::because("missing", named));
}

/// What does not work without a right for this; all else does.
fn consequence(need: Need) -> &'static str {
    match need {
        Need::Judge => "nothing can be judged",
        Need::JudgeMore => "less is known",
        Need::Refresh => "no Service can be refreshed",
        Need::Delete => "no slice can be deleted",
        Need::Lease => "several modules cannot agree",
        Need::Events => "heals are not told on the Service",
        Need::Doctor => "doctor and diagnosis know less",
    }
}
