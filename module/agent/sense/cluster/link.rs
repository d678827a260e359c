//! What a failure says about a watch: that the API is out of reach, or that it refuses.

use kube::core::Status;
use kube::runtime::watcher::Error;
use slice_core::event::Link;

use crate::client::explain;
use crate::client::objects::Slim;

/// How long to wait before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// The usual back-off.
    Usual,
    /// As long as it gets: nothing changes unless a person changes it.
    Slow,
}

/// Names the state that a failure leaves the watch of `T` in.
pub(super) fn classify<T: Slim>(error: &Error) -> (Link, Pace) {
    let (verb, status) = match error {
        Error::InitialListFailed(kube::Error::Api(status)) => ("list", Some(status)),
        Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchFailed(kube::Error::Api(status))
        | Error::WatchError(status) => ("watch", Some(status)),
        _ => ("", None),
    };
    // What has changed since is no longer kept: a new list is due, but the API is within reach.
    if status.is_some_and(|s| s.code == 410) {
        return (Link::Syncing, Pace::Usual);
    }
    if let Some(refused) = status.and_then(|s| refusal::<T>(verb, s)) {
        return (Link::Forbidden(refused), Pace::Slow);
    }
    let text = match error {
        Error::InitialListFailed(e) | Error::WatchStartFailed(e) | Error::WatchFailed(e) => {
            explain(e)
        }
        Error::WatchError(status) => format!("{} ({})", status.message, status.code),
        Error::NoResourceVersion => "the API server sent no resourceVersion".to_owned(),
    };
    (
        Link::Unreachable(format!("{}: {text}", T::PLURAL)),
        Pace::Usual,
    )
}

fn refusal<T: Slim>(verb: &str, status: &Status) -> Option<String> {
    match status.code {
        401 => Some(format!(
            "{verb} {}: the API server does not accept the credentials (401): renew the token or \
             certificate of the kubeconfig",
            T::PLURAL
        )),
        403 => Some(format!("{verb} {}: {} (403)", T::PLURAL, status.message)),
        404 | 405 => Some(format!(
            "{verb} {}: the API server does not serve them ({})",
            T::PLURAL,
            status.code
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use slice_core::model::Pod;

    use super::*;

    fn status(code: u16) -> Box<Status> {
        Status::failure("pods is forbidden", "Forbidden")
            .with_code(code)
            .boxed()
    }

    #[test]
    fn a_refusal_names_the_verb_that_is_missing() {
        let error = Error::InitialListFailed(kube::Error::Api(status(403)));
        let (link, pace) = classify::<Pod>(&error);
        assert_eq!(
            link,
            Link::Forbidden("list pods: pods is forbidden (403)".to_owned())
        );
        assert_eq!(pace, Pace::Slow);
        let (link, _) = classify::<Pod>(&Error::WatchStartFailed(kube::Error::Api(status(403))));
        assert!(matches!(link, Link::Forbidden(text) if text.starts_with("watch pods")));
        let (link, _) = classify::<Pod>(&Error::WatchError(status(401)));
        assert!(matches!(link, Link::Forbidden(text) if text.contains("401")));
    }

    #[test]
    fn a_version_that_is_too_old_only_asks_for_a_new_list() {
        let (link, pace) = classify::<Pod>(&Error::WatchError(status(410)));
        assert_eq!((link, pace), (Link::Syncing, Pace::Usual));
    }

    #[test]
    fn everything_else_is_out_of_reach_and_tried_again_soon() {
        for code in [429, 500, 503] {
            let error = Error::InitialListFailed(kube::Error::Api(status(code)));
            let (link, pace) = classify::<Pod>(&error);
            assert!(matches!(link, Link::Unreachable(_)), "{code}");
            assert_eq!(pace, Pace::Usual, "{code}");
        }
    }
}
