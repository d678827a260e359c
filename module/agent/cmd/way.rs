//! The way from the command line to a healer: the running module where there is one, else an engine
//! of the command's own.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use slice_core::event::{Reply, Request};
use slice_core::judge::{Finding, RemedyAction};
use slice_core::model::ServiceKey;

use crate::app::solo::Solo;
use crate::serve::{ControlClient, ControlReply, ControlRequest};
use crate::settings::Loaded;

/// The longest that a heal may take: every wait of the ladder, five deletes, and reserve.
const LONGEST: Duration = Duration::from_secs(900);
/// For answers that need no heal.
const QUICK: Duration = Duration::from_secs(10);

/// The way.
pub(super) enum Way {
    /// The state directory that its control socket is in.
    Module(PathBuf),
    Solo(Box<Solo>),
}

impl Way {
    /// Finds it, and says on stderr which one it is where budgets depend on it.
    pub(super) async fn find(loaded: Loaded) -> anyhow::Result<Self> {
        let directory = loaded.settings.store.directory.clone();
        if ControlClient::connect(&directory).await?.is_some() {
            return Ok(Self::Module(directory));
        }
        eprintln!(
            "No module runs with state in {}: healing directly. Gate, Lease and verification hold; \
             there are no stored budgets.",
            directory.display()
        );
        Ok(Self::Solo(Box::new(Solo::start(loaded).await?)))
    }

    /// The findings as they stand.
    pub(super) async fn findings(
        &mut self,
        namespace: Option<String>,
        service: Option<String>,
    ) -> anyhow::Result<Vec<Finding>> {
        let reply = match self {
            Self::Module(directory) => {
                let Some(client) = ControlClient::connect(directory).await? else {
                    bail!("the running module has ended; try again");
                };
                let request = ControlRequest::Inspect { namespace, service };
                client.ask(&request, QUICK, |_| ()).await?
            }
            Self::Solo(solo) => solo
                .ask(Request::Inspect { namespace, service })
                .await?
                .into(),
        };
        match reply {
            ControlReply::Findings { findings } => Ok(findings),
            other => bail!("the healer answered {other:?}, which are no findings"),
        }
    }

    /// Asks for a heal and waits for its end.
    pub(super) async fn heal(
        &mut self,
        service: &ServiceKey,
        action: Option<RemedyAction>,
        dry_run: bool,
    ) -> anyhow::Result<ControlReply> {
        match self {
            Self::Module(directory) => {
                let Some(client) = ControlClient::connect(directory).await? else {
                    bail!("the running module has ended; try again");
                };
                let request = ControlRequest::Heal {
                    service: service.clone(),
                    action,
                    dry_run,
                };
                let limit = if dry_run { QUICK } else { LONGEST };
                let tell = |event: crate::serve::ControlEvent| eprintln!("  {}", event.message);
                Ok(client.ask(&request, limit, tell).await?)
            }
            Self::Solo(solo) => {
                let mut events = solo.events();
                let request = Request::Heal {
                    service: service.clone(),
                    action,
                    dry_run,
                };
                let reply = solo.ask(request).await?;
                let Reply::Accepted { incident } = reply else {
                    return Ok(reply.into());
                };
                let event = solo.outcome(&incident, &mut events, LONGEST).await?;
                Ok(match &event.heal {
                    Some(heal) => ControlReply::of_heal(heal, event.message),
                    None => ControlReply::Error {
                        message: event.message,
                    },
                })
            }
        }
    }
}
