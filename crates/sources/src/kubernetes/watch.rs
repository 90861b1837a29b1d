//! Following one resource of an API server: list, then watch, for ever.
//!
//! A listing is asked for as a stream of the objects, which then goes on as the watch; servers that cannot do that are
//! asked for pages. A watch that ends is taken up where it ended. Only when the server no longer knows what happened since
//! (status 410) everything is listed anew.

mod page;
mod told;
mod unread;

use std::sync::Arc;
use std::time::Duration;

use canopus_base::tree::Node;
use kube::client::Body;
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};

use super::collector::{Message, Topic};
use super::lines::{Line, Lines};
use super::resource::Resource;
use super::server::{Cluster, Failure};
use crate::feed::Closed;
use crate::retry::Retry;
use page::Page;
use told::{Said, parse};
pub(super) use unread::Unread;

/// An object larger than this is not read. The store behind an API server takes an eighth of it.
const MAX_OBJECT_BYTES: usize = 12 << 20;

/// Things told at once.
const CHUNK: usize = 256;

/// How long the server is asked to keep a watch up.
const WATCH_SECONDS: &str = "570";

/// The server sends a bookmark about every minute. Without a word for this long the connection is taken for dead.
const SILENCE: Duration = Duration::from_secs(150);

/// What is told of the resource.
#[derive(Debug)]
pub(super) enum Told {
    /// A listing begins.
    Begin,
    /// There is an object.
    Object(Node),
    /// An object is gone; this is what it was.
    Gone(Node),
    /// The listing is complete.
    End,
    /// All is known again, without a listing.
    Live,
    /// Nothing more can be learnt, for this reason.
    Lost(String),
    /// There is no such resource, or we may not read it.
    Absent(String),
    /// There is an object that cannot be read; what is known of it stays.
    Unread(Unread),
    /// Something cannot be read, and it cannot be said what it is.
    Problem(String),
}

/// How listings are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listing {
    /// As a stream where the server can, else in pages.
    #[default]
    Stream,
    /// In pages of at most so many objects.
    Pages(usize),
}

/// Follows a resource.
pub(super) struct Watch {
    cluster: Cluster,
    resource: Resource,
    listing: Listing,
    /// Whether the mesh can do without.
    optional: bool,
    retry: Retry,
    /// Whether an object of the listing could not be read.
    incomplete: bool,
}

/// Why following ended.
enum Ended {
    Closed,
    Failed(Failure),
}

impl From<Closed> for Ended {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Where a watch stands: the version of what was last told, and the stream that goes on from there, if one is open.
struct Standing {
    version: Box<str>,
    lines: Option<Lines<Body>>,
}

/// Where it is told.
pub(super) struct Out {
    topic: Topic,
    queue: mpsc::Sender<Message>,
}

impl Out {
    pub(super) fn new(topic: Topic, queue: mpsc::Sender<Message>) -> Self {
        Self { topic, queue }
    }

    pub(super) async fn tell(&self, told: Vec<Told>) -> Result<(), Closed> {
        if told.is_empty() {
            return Ok(());
        }
        self.queue.send(self.topic.message(told)).await.map_err(|_| Closed)
    }
}

impl Watch {
    pub(super) fn new(cluster: Cluster, resource: Resource, listing: Listing, optional: bool) -> Self {
        Self { cluster, resource, listing, optional, retry: Retry::default(), incomplete: false }
    }

    /// Follows the resource until nobody listens. Lists anew whenever asked to.
    pub(super) async fn run(mut self, relist: Arc<Notify>, out: Out) {
        loop {
            let ended = tokio::select! {
                ended = self.list_and_follow(&out) => ended,
                () = relist.notified() => continue,
            };
            let result = match ended {
                Ended::Closed => return,
                Ended::Failed(failure) => self.cope(failure, &out).await,
            };
            if result.is_err() {
                return;
            }
        }
    }

    async fn list_and_follow(&mut self, out: &Out) -> Ended {
        let listed = match self.listing {
            Listing::Stream => self.list_stream(out).await,
            Listing::Pages(size) => self.list_pages(size, out).await,
        };
        let mut standing = match listed {
            Ok(standing) => standing,
            Err(ended) => return ended,
        };
        loop {
            let followed = match self.follow(&mut standing, out).await {
                Err(Ended::Failed(failure)) if !failure.is_expired() => self.lose(&failure, out).await,
                Err(ended) => return ended,
                Ok(()) => Ok(()),
            };
            if followed.is_err() {
                return Ended::Closed;
            }
        }
    }

    /// Does what a failed listing, or the end of what the server remembers, asks for.
    async fn cope(&mut self, failure: Failure, out: &Out) -> Result<(), Closed> {
        if failure.is_invalid() && self.listing == Listing::Stream {
            tracing::debug!(resource = self.resource.path(&[]), %failure, "lists are asked for in pages");
            self.listing = Listing::Pages(page::SIZE);
            return Ok(());
        }
        let next_version = failure.is_not_found() && self.resource.next_version();
        if next_version {
            return Ok(());
        }
        if failure.is_not_found() || (failure.is_forbidden() && self.optional) {
            out.tell(vec![Told::Absent(failure.to_string())]).await?;
            sleep(self.retry.pause()).await;
            return Ok(());
        }
        self.lose(&failure, out).await
    }

    /// Pauses; tells of the failure unless it was the first: connections come and go, and the next one may do.
    async fn lose(&mut self, failure: &Failure, out: &Out) -> Result<(), Closed> {
        if self.retry.is_failing() && !failure.is_expired() {
            out.tell(vec![Told::Lost(failure.to_string())]).await?;
        }
        sleep(self.retry.pause()).await;
        Ok(())
    }

    async fn list_stream(&mut self, out: &Out) -> Result<Standing, Ended> {
        let parameters = [
            ("watch", "true"),
            ("sendInitialEvents", "true"),
            ("resourceVersionMatch", "NotOlderThan"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", WATCH_SECONDS),
        ];
        let path = self.resource.path(&parameters);
        let body = self.cluster.stream(&path, self.resource.object_type()).await?;
        let mut lines = Lines::new(body, MAX_OBJECT_BYTES);
        self.incomplete = false;
        out.tell(vec![Told::Begin]).await?;
        let mut version = Box::default();
        loop {
            let read = self.read(&mut lines, &mut version, out).await?;
            if read.listed {
                return Ok(Standing { version, lines: Some(lines) });
            }
            if read.ended {
                return Err(Failure::Transport("the listing ended before it was complete".to_owned()).into());
            }
        }
    }

    async fn list_pages(&mut self, mut size: usize, out: &Out) -> Result<Standing, Ended> {
        self.incomplete = false;
        out.tell(vec![Told::Begin]).await?;
        let mut token = String::new();
        loop {
            let limit = size.to_string();
            let path = self.resource.path(&[("limit", &limit), ("continue", &token)]);
            let answer = self.cluster.get(&path, self.resource.list_type(), page::MAX_BYTES).await;
            let bytes = match answer {
                Err(Failure::TooLarge(_)) if size > 1 => {
                    size = (size / 4).max(1);
                    continue;
                }
                answer => answer?,
            };
            let page = Page::read(bytes).await?;
            let mut items =
                page.items.into_iter().map(|item| self.item(item)).collect::<Vec<_>>().into_iter().peekable();
            while items.peek().is_some() {
                out.tell(items.by_ref().take(CHUNK).collect()).await?;
            }
            token = page.next;
            if token.is_empty() {
                self.retry.reset();
                out.tell(vec![self.end()]).await?;
                return Ok(Standing { version: page.version, lines: None });
            }
        }
    }

    /// What an item of a page says.
    fn item(&mut self, item: Result<Node, Unread>) -> Told {
        match item {
            Ok(object) => Told::Object(object),
            Err(unread) if unread.name.is_empty() => {
                self.incomplete = true;
                Told::Problem(unread.reason)
            }
            Err(unread) => Told::Unread(unread),
        }
    }

    /// What the end of a listing amounts to. What could not be read may be any object: none is gone for certain.
    fn end(&self) -> Told {
        if self.incomplete { Told::Live } else { Told::End }
    }

    /// Follows one stream to its end.
    async fn follow(&mut self, standing: &mut Standing, out: &Out) -> Result<(), Ended> {
        let mut lines = match standing.lines.take() {
            Some(lines) => lines,
            None => self.resume(&standing.version, out).await?,
        };
        let mut heard = false;
        loop {
            let read = self.read(&mut lines, &mut standing.version, out).await?;
            heard |= !read.ended;
            if read.ended && heard {
                return Ok(());
            }
            if read.ended {
                // Whoever hangs up without a word will do it again.
                sleep(self.retry.pause()).await;
                return Ok(());
            }
        }
    }

    async fn resume(&mut self, version: &str, out: &Out) -> Result<Lines<Body>, Ended> {
        let parameters = [
            ("watch", "true"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", WATCH_SECONDS),
        ];
        let path = self.resource.path(&parameters);
        let body = self.cluster.stream(&path, self.resource.object_type()).await?;
        if self.retry.is_failing() {
            out.tell(vec![Told::Live]).await?;
        }
        Ok(Lines::new(body, MAX_OBJECT_BYTES))
    }

    /// Waits for a line, takes all that are there by then and tells what they say.
    async fn read(
        &mut self,
        lines: &mut Lines<Body>,
        version: &mut Box<str>,
        out: &Out,
    ) -> Result<Read, Ended> {
        let first = timeout(SILENCE, lines.next()).await.map_err(|_| Failure::Silent)??;
        let mut read = Read { ended: first.is_none(), listed: false };
        let mut told = Vec::new();
        let mut failure = None;
        let mut next = first;
        while let Some(line) = next {
            match self.understand(line, version, &mut read, &mut told) {
                Ok(()) => self.retry.reset(),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
            next = if told.len() < CHUNK { lines.ready() } else { None };
        }
        out.tell(told).await?;
        failure.map_or(Ok(read), |failure| Err(failure.into()))
    }

    fn understand(
        &mut self,
        line: Line,
        version: &mut Box<str>,
        read: &mut Read,
        told: &mut Vec<Told>,
    ) -> Result<(), Failure> {
        let (message, text) = match line {
            Line::Text(text) => (parse(&text), text),
            Line::TooLong => (Err(Failure::TooLarge(MAX_OBJECT_BYTES)), Default::default()),
        };
        match message {
            Ok(Said::Object(object)) => {
                told::note_version(&object, version);
                told.push(Told::Object(object));
            }
            Ok(Said::Gone(object)) => {
                told::note_version(&object, version);
                told.push(Told::Gone(object));
            }
            Ok(Said::Bookmark(object)) => {
                told::note_version(&object, version);
                if told::ends_listing(&object) {
                    read.listed = true;
                    told.push(self.end());
                }
            }
            Ok(Said::Error(failure)) => return Err(failure),
            Err(failure) => match Unread::in_line(&text, failure.to_string()) {
                Some((unread, is_gone)) => {
                    if !unread.version.is_empty() {
                        version.clone_from(&unread.version);
                    }
                    told.push(if is_gone { Told::Gone(unread.outline()) } else { Told::Unread(unread) });
                }
                None => {
                    self.incomplete = true;
                    told.push(Told::Problem(failure.to_string()));
                }
            },
        }
        Ok(())
    }
}

/// What became of a stream.
struct Read {
    /// It has ended.
    ended: bool,
    /// The listing is complete.
    listed: bool,
}
