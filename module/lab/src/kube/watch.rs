//! The watch verb: events of the history as JSON lines, with bookmarks, initial events, deadlines,
//! and the ERROR event that tells a client that its version was compacted away.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::form::Form;
use super::resource::Resource;
use super::selector::Selector;
use super::shared::Shared;
use super::status::ApiError;
use super::store::{Change, ChangeKind, Store};

/// What a client asked to watch.
pub(crate) struct WatchRequest {
    pub(crate) resource: &'static Resource,
    pub(crate) namespace: Option<String>,
    pub(crate) selector: Selector,
    /// None: begin with the present state.
    pub(crate) from: Option<u64>,
    pub(crate) bookmarks: bool,
    /// Send the present state first and mark its end with a bookmark.
    pub(crate) initial_events: bool,
    pub(crate) timeout: Duration,
    pub(crate) form: Form,
    /// Whether the knobs act on it.
    pub(crate) ordinary: bool,
}

struct Watch {
    shared: Arc<Shared>,
    request: WatchRequest,
    lines: VecDeque<Bytes>,
    cursor: u64,
    ended: bool,
    deadline: Instant,
    next_bookmark: Instant,
    changed: watch::Receiver<u64>,
    dropped: watch::Receiver<u64>,
}

/// The body of the answer.
pub(crate) fn body(shared: Arc<Shared>, request: WatchRequest) -> Body {
    let now = Instant::now();
    let mut watch = Watch {
        lines: VecDeque::new(),
        cursor: 0,
        ended: false,
        deadline: now + request.timeout,
        next_bookmark: now + shared.bookmark_every,
        changed: shared.changed(),
        dropped: shared.watch_drops(),
        shared,
        request,
    };
    watch.begin();
    Body::from_stream(stream::unfold(watch, |mut watch| async move {
        let line = watch.next().await?;
        Some((Ok::<_, Infallible>(line), watch))
    }))
}

impl Watch {
    fn begin(&mut self) {
        let shared = Arc::clone(&self.shared);
        let store = shared.store();
        let initial = self.request.initial_events || self.request.from.is_none();
        if !initial {
            self.cursor = self.request.from.unwrap_or_default();
            return;
        }
        self.cursor = store.revision();
        let present: Vec<Arc<Value>> = store
            .list(self.request.resource, self.request.namespace.as_deref())
            .filter(|object| self.request.selector.matches(object))
            .cloned()
            .collect();
        drop(store);
        for object in present {
            self.push("ADDED", &object);
        }
        if self.request.initial_events && self.request.bookmarks {
            self.bookmark(true);
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            if self.ended {
                return None;
            }
            self.changed.borrow_and_update();
            let held = self.request.ordinary && self.shared.knobs().hold_watches;
            if !held {
                let shared = Arc::clone(&self.shared);
                self.read(&shared.store());
                if !self.lines.is_empty() {
                    continue;
                }
            }
            let bookmarks = self.request.bookmarks && !held;
            tokio::select! {
                changed = self.changed.changed() => self.ended |= changed.is_err(),
                _ = self.dropped.changed() => self.ended = true,
                () = sleep_until(self.deadline) => self.ended = true,
                () = sleep_until(self.next_bookmark), if bookmarks => self.bookmark(false),
            }
        }
    }

    fn read(&mut self, store: &Store) {
        let changes: Vec<Arc<Change>> = match store.since(self.cursor) {
            Ok(changes) => changes.cloned().collect(),
            Err(expired) => return self.fail(&expired),
        };
        for change in changes {
            self.deliver(&change);
        }
        self.cursor = self.cursor.max(store.revision());
    }

    fn deliver(&mut self, change: &Change) {
        let request = &self.request;
        if change.resource.qualified != request.resource.qualified {
            return;
        }
        let namespace = super::object::namespace(&change.object);
        if request
            .namespace
            .as_deref()
            .is_some_and(|ns| ns != namespace)
        {
            return;
        }
        let matched = change
            .previous
            .as_ref()
            .is_some_and(|previous| request.selector.matches(previous));
        let matches =
            change.kind != ChangeKind::Deleted && request.selector.matches(&change.object);
        // An object that stops matching is gone for this client, one that starts to is new.
        let event = match (matched, matches) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => return,
        };
        if let ("DELETED", ChangeKind::Modified, Some(previous)) =
            (event, &change.kind, &change.previous)
        {
            // It is told as this client knew it, at the version at which it went.
            let mut last = (**previous).clone();
            super::object::set_meta(&mut last, "resourceVersion", change.revision.to_string());
            return self.push(event, &last);
        }
        self.push(event, &change.object);
    }

    fn push(&mut self, event: &str, object: &Value) {
        let object = self.request.form.object(object);
        self.line(&json!({"type": event, "object": object}));
    }

    fn bookmark(&mut self, end_of_initial: bool) {
        self.next_bookmark = Instant::now() + self.shared.bookmark_every;
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if end_of_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (api_version, kind) = self.request.form.type_of(self.request.resource);
        self.line(&json!({"type": "BOOKMARK", "object": {
            "apiVersion": api_version, "kind": kind, "metadata": metadata}}));
    }

    fn fail(&mut self, error: &ApiError) {
        self.ended = true;
        self.line(&json!({"type": "ERROR", "object": error.body()}));
    }

    fn line(&mut self, event: &Value) {
        self.lines.push_back(Bytes::from(format!("{event}\n")));
    }
}
