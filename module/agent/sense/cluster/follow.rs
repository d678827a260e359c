//! The watch of one kind: list, follow, and after every failure list again.
//!
//! After a failure the watch does not go on from where it was: a server that was restored from a
//! backup would then leave out whatever has an older version, and the list is also the only moment
//! at which the runtime's watcher tells that it is connected again. Watches that end in order go on
//! without a list.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::Client;
use kube::api::Api;
use kube::runtime::watcher::{Config, Error, Event, watcher};
use slice_core::event::{ClusterInput, Link};
use slice_core::model::{Kind, Object};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::link::{Pace, classify};
use super::local::Finder;
use super::{Counters, KindCounters, Options, count};
use crate::client::Supply;
use crate::client::objects::{Slim, Typed};

/// The receiver has gone: the program is ending.
struct Closed;

/// Why a watch is over.
enum End {
    Closed,
    Replaced,
    Relist,
    Failed(Link, Pace),
}

impl From<Closed> for End {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

/// Follows the objects of one kind.
pub(super) struct Follower<T> {
    supply: Supply,
    tx: mpsc::Sender<ClusterInput>,
    options: Arc<Options>,
    synced: Arc<Notify>,
    counters: Arc<Counters>,
    link: Option<Link>,
    finder: Option<Finder>,
    pause: Duration,
    listed: Vec<Object>,
    kind: std::marker::PhantomData<fn() -> T>,
}

impl<T: Slim> Follower<T> {
    pub(super) fn new(
        supply: Supply,
        tx: mpsc::Sender<ClusterInput>,
        options: Arc<Options>,
        synced: Arc<Notify>,
        counters: Arc<Counters>,
    ) -> Self {
        // Only nodes tell which of them this is.
        let finder = (T::KIND == Kind::Node).then(|| Finder::new(options.local.clone()));
        let pause = options.first_pause;
        let (link, listed, kind) = (None, Vec::new(), std::marker::PhantomData);
        Self {
            supply,
            tx,
            options,
            synced,
            counters,
            link,
            finder,
            pause,
            listed,
            kind,
        }
    }

    /// Follows for as long as somebody listens.
    pub(super) async fn run(mut self) {
        while let Ok(()) = self.turn().await {}
    }

    /// One connection, from the first list to its end, and the pause after it.
    async fn turn(&mut self) -> Result<(), Closed> {
        let client = match self.supply.take() {
            Ok(client) => client,
            Err(reason) => {
                self.tell(Link::Unreachable(reason.to_string())).await?;
                self.supply.changed().await;
                return Ok(());
            }
        };
        // What was out of reach or refused stays so until the API answers: a try is no news, and the
        // fleet's operators would hear of each.
        if self.link.is_none() {
            self.tell(Link::Syncing).await?;
        }
        let (link, pace) = match self.follow(client).await {
            End::Closed => return Err(Closed),
            End::Replaced | End::Relist => return Ok(()),
            End::Failed(link, pace) => (link, pace),
        };
        count(&self.counted().failures);
        self.tell(link).await?;
        let pause = match pace {
            Pace::Usual => self.pause,
            Pace::Slow => self.options.longest_pause,
        };
        self.pause = (self.pause * 2).min(self.options.longest_pause);
        let mut supply = self.supply.clone();
        tokio::select! {
            () = sleep(jittered(pause)) => {}
            // A new kubeconfig is worth a try at once.
            () = supply.changed() => {}
        }
        Ok(())
    }

    async fn follow(&mut self, client: Client) -> End {
        let seconds = u32::try_from(jittered(self.options.watch_timeout).as_secs());
        let config = Config::default()
            .timeout(seconds.unwrap_or(u32::MAX).clamp(1, 290))
            .page_size(self.options.page_size);
        let mut events = pin!(watcher(Api::<Typed<T>>::all(client), config));
        let mut supply = self.supply.clone();
        let relist = Instant::now() + jittered(self.options.relist);
        let mut listing = true;
        loop {
            let next = tokio::select! {
                biased;
                () = supply.changed() => return End::Replaced,
                next = self.next(&mut events, listing, relist) => match next {
                    Ok(next) => next,
                    Err(end) => return end,
                },
            };
            match self.take(next).await {
                Ok(still_listing) => listing = still_listing,
                Err(end) => return end,
            }
        }
    }

    /// The next event. A page that does not come and the time for a new list end the watch.
    async fn next(
        &self,
        events: &mut Pin<&mut impl Stream<Item = Result<Event<Typed<T>>, Error>>>,
        listing: bool,
        relist: Instant,
    ) -> Result<Result<Event<Typed<T>>, Error>, End> {
        let late = if listing {
            let wait = self.options.list_timeout;
            let text = format!("{}: no answer to the list within {wait:?}", T::PLURAL);
            (
                Instant::now() + wait,
                End::Failed(Link::Unreachable(text), Pace::Usual),
            )
        } else {
            (relist, End::Relist)
        };
        match tokio::time::timeout_at(late.0, events.next()).await {
            Ok(Some(event)) => Ok(event),
            // The stream has no end of its own.
            Ok(None) => Err(End::Relist),
            Err(_) => Err(late.1),
        }
    }

    /// Passes an event on; tells whether the list is still coming in.
    async fn take(&mut self, event: Result<Event<Typed<T>>, Error>) -> Result<bool, End> {
        match event {
            Ok(Event::Init) => {
                self.listed.clear();
                Ok(true)
            }
            Ok(Event::InitApply(object)) => {
                self.lists().await?;
                self.listed.extend(self.decoded(object));
                Ok(true)
            }
            Ok(Event::InitDone) => {
                self.lists().await?;
                self.reset().await?;
                Ok(false)
            }
            Ok(Event::Apply(object)) => {
                count(&self.counted().events);
                if let Some(object) = self.decoded(object) {
                    let moved = self.finder.as_mut().is_some_and(|f| f.apply(&object));
                    self.send(ClusterInput::Apply(object)).await?;
                    self.tell_local(moved).await?;
                }
                Ok(false)
            }
            Ok(Event::Delete(object)) => {
                count(&self.counted().events);
                let gone = object.reference();
                let moved = self.finder.as_mut().is_some_and(|f| f.delete(&gone.name));
                self.send(ClusterInput::Deleted(gone)).await?;
                self.tell_local(moved).await?;
                Ok(false)
            }
            Err(error) => {
                let (link, pace) = classify::<T>(&error);
                Err(End::Failed(link, pace))
            }
        }
    }

    /// A list comes in; where all is followed already, that is routine.
    async fn lists(&mut self) -> Result<(), Closed> {
        match self.link {
            Some(Link::Synced) => Ok(()),
            _ => self.tell(Link::Syncing).await,
        }
    }

    async fn reset(&mut self) -> Result<(), Closed> {
        count(&self.counted().lists);
        let objects = std::mem::take(&mut self.listed);
        debug!(resource = T::PLURAL, objects = objects.len(), "listed");
        let moved = self.finder.as_mut().is_some_and(|f| f.reset(&objects));
        self.send(ClusterInput::Reset(T::KIND, objects)).await?;
        self.tell_local(moved).await?;
        self.pause = self.options.first_pause;
        self.tell(Link::Synced).await?;
        self.synced.notify_one();
        Ok(())
    }

    fn decoded(&self, object: Typed<T>) -> Option<Object> {
        let name = object.reference();
        match object.object {
            Ok(object) => Some(object.into()),
            Err(error) => {
                count(&self.counted().undecodable);
                warn!(object = %name, %error, "left out: it is not what the API describes");
                None
            }
        }
    }

    async fn tell_local(&mut self, moved: bool) -> Result<(), Closed> {
        match self.finder.as_ref().filter(|_| moved).map(Finder::found) {
            Some(found) => self.send(ClusterInput::LocalNode(found)).await,
            None => Ok(()),
        }
    }

    async fn tell(&mut self, link: Link) -> Result<(), Closed> {
        if self.link.as_ref() == Some(&link) {
            return Ok(());
        }
        match &link {
            Link::Unreachable(reason) => warn!(resource = T::PLURAL, %reason, "out of reach"),
            Link::Forbidden(reason) => warn!(resource = T::PLURAL, %reason, "refused"),
            Link::Synced => info!(resource = T::PLURAL, "following"),
            Link::Syncing => debug!(resource = T::PLURAL, "listing"),
        }
        self.link = Some(link.clone());
        self.send(ClusterInput::Link(T::KIND, link)).await
    }

    async fn send(&self, input: ClusterInput) -> Result<(), Closed> {
        match self.tx.try_send(input) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Closed),
            Err(mpsc::error::TrySendError::Full(input)) => {
                count(&self.counted().waits);
                self.tx.send(input).await.map_err(|_| Closed)
            }
        }
    }

    fn counted(&self) -> &KindCounters {
        self.counters.of(T::KIND)
    }
}

/// Between three quarters and all of it: what fails together must not come back together.
pub(super) fn jittered(span: Duration) -> Duration {
    span.mul_f64(rand::random_range(0.75..=1.0))
}
