//! Asking the running module, for commands that mean nothing without one.

use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::serve::{ControlClient, ControlReply, ControlRequest};
use crate::settings::Loaded;

/// How long the module may take: its disk may be slow.
const ANSWER: Duration = Duration::from_secs(40);

/// The document that answers a request; `None` when there is no such thing.
///
/// # Errors
/// No module runs with this state directory, or it refuses.
pub(super) async fn ask(
    loaded: &Loaded,
    request: &ControlRequest,
) -> anyhow::Result<Option<Value>> {
    let directory = &loaded.settings.store.directory;
    let client = ControlClient::connect(directory).await?.with_context(|| {
        format!(
            "no module runs with state in {}; start it, or set store.directory to its own",
            directory.display()
        )
    })?;
    match client.ask(request, ANSWER, |_| ()).await? {
        ControlReply::Document { document } => Ok(Some(document)),
        ControlReply::NotFound => Ok(None),
        ControlReply::Error { message } => bail!("{message}"),
        other => bail!("the running module answered {other:?}, which is no answer to this"),
    }
}
