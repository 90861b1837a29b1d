//! Services of a Consul catalogue, as ServiceEntries named `<service>.service.consul`.
//!
//! Two questions are always open at the agent: which services there are, and how the checks are. Each is answered when the
//! answer changes. An answer leads to one look at the instances of the services concerned: of those whose checks changed, or
//! of all when the catalogue itself did, as it does not say where. So the number of connections does not grow with the
//! number of services, which agents limit.

mod agent;
mod answer;
mod entry;
mod poll;

use std::collections::BTreeSet;
use std::time::Duration;

use canopus_api::Object;
use canopus_runtime::tasks;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

pub use agent::{AgentError, AgentOptions};

use crate::change::{Change, ProblemScope, SourcePart};
use crate::feed::{Closed, Feed, Source};
use crate::retry::Retry;
use agent::Agent;
use answer::Instance;
use poll::{Checks, News};

/// Looks at instances under way at once.
const LOOKS: usize = 8;

/// Looks pause for as long as the last took, and at least so long: what changes meanwhile is seen at once.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);

/// A Consul catalogue as a source.
pub struct Consul {
    agent: Agent,
    names: Option<BTreeSet<String>>,
    checks: Checks,
}

/// What has to be looked at.
#[derive(Debug, Default, PartialEq, Eq)]
struct Due {
    all: bool,
    services: BTreeSet<String>,
}

impl Consul {
    /// The catalogue behind an agent, which need not be there yet.
    pub fn new(options: &AgentOptions) -> Result<Self, AgentError> {
        Ok(Self { agent: Agent::new(options)?, names: None, checks: Checks::default() })
    }

    async fn follow(mut self, feed: &Feed) -> Result<(), Closed> {
        let (sender, mut news) = mpsc::channel(16);
        let _catalogue = kept("catalogue of Consul", poll::catalogue, &self.agent, &sender);
        let _checks = kept("checks of Consul", poll::checks, &self.agent, &sender);
        let mut due = Due::default();
        let mut retry = Retry::default();
        let mut next = None;
        loop {
            tokio::select! {
                Some(first) = news.recv() => {
                    self.take(first, &mut due, feed).await?;
                    while let Ok(next) = news.try_recv() {
                        self.take(next, &mut due, feed).await?;
                    }
                }
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                () = feed.closed() => return Err(Closed),
            }
            let Some(names) = &self.names else { continue };
            let start = Instant::now();
            match look(&self.agent, names, &due).await {
                Ok(events) => {
                    due = Due::default();
                    next = None;
                    retry.reset();
                    if !events.is_empty() {
                        feed.send(events).await?;
                    }
                }
                Err(error) => {
                    due.all = true;
                    next = Some(Instant::now() + retry.pause());
                    feed.send(vec![Change::Lost(SourcePart::Whole, error.to_string())]).await?;
                }
            }
            sleep(start.elapsed().max(SHORTEST_PAUSE)).await;
        }
    }

    async fn take(&mut self, news: News, due: &mut Due, feed: &Feed) -> Result<(), Closed> {
        match news {
            News::Catalogue(names) => {
                self.names = Some(names);
                due.all = true;
            }
            News::Checks(checks) => {
                for service in self.checks.differences(&checks) {
                    // A check of a node counts for all that runs there.
                    due.all |= service.is_empty();
                    due.services.insert(service);
                }
                self.checks = checks;
            }
            News::Lost(reason) => {
                // What changed meanwhile is not known: everything has to be looked at.
                due.all = true;
                feed.send(vec![Change::Lost(SourcePart::Whole, reason)]).await?;
            }
        }
        Ok(())
    }
}

impl Source for Consul {
    async fn run(self, feed: Feed) {
        // The only way to end is that nobody listens any more.
        let _ = self.follow(&feed).await;
    }
}

/// Keeps a poll going; if it panics, the agent counts as lost until it has answered again.
fn kept<Poll: Future<Output = ()> + Send + 'static>(
    name: &str,
    poll: fn(Agent, mpsc::Sender<News>) -> Poll,
    agent: &Agent,
    sender: &mpsc::Sender<News>,
) -> tasks::Running {
    let (agent, news, teller) = (agent.clone(), sender.clone(), sender.clone());
    tasks::keep_running(
        name,
        move || poll(agent.clone(), news.clone()),
        move |reason| {
            let teller = teller.clone();
            async move {
                // If nobody listens, nobody needs to know.
                let _ = teller.send(News::Lost(reason)).await;
            }
        },
    )
}

/// The entry of a service whose instances are what an agent answers so, with what is wrong with it; and the services whose
/// checks this answer is about. For tests of what an agent may answer.
pub fn inspect(service: &str, answer: &[u8]) -> (Option<(Object, Vec<String>)>, BTreeSet<String>) {
    let instances = serde_json::from_slice::<Option<Vec<Instance>>>(answer).ok().flatten();
    let entry = instances
        .filter(|instances| !instances.is_empty())
        .and_then(|instances| entry::build_entry(service, &instances).ok())
        .map(|entry| (entry.object.into(), entry.problems));
    let checks = serde_json::from_slice(answer).map(Checks::new).unwrap_or_default();
    (entry, checks.differences(&Checks::default()))
}

/// Looks at what is due.
async fn look(agent: &Agent, names: &BTreeSet<String>, due: &Due) -> Result<Vec<Change>, AgentError> {
    let mut wanted = names.clone();
    wanted.retain(|name| due.all || due.services.contains(name));
    let looks = wanted.into_iter().map(|name| instances_of(agent.clone(), name));
    let found: Vec<(String, Vec<Instance>)> = stream::iter(looks).buffered(LOOKS).try_collect().await?;
    let mut events = Vec::new();
    events.extend(due.all.then_some(Change::Begin(SourcePart::Whole)));
    for (name, instances) in found {
        // A service may go between the two answers.
        if instances.is_empty() {
            continue;
        }
        let place = ProblemScope::Object(entry::key(&name));
        match entry::build_entry(&name, &instances) {
            Ok(entry) => {
                events.push(Change::Set(Object::from(entry.object)));
                if !entry.problems.is_empty() {
                    events.push(Change::Problems(place, entry.problems));
                }
            }
            Err(problem) => {
                events.push(Change::Keep(entry::key(&name)));
                events.push(Change::Problems(place, vec![problem]));
            }
        }
    }
    events.extend(due.all.then_some(Change::End(SourcePart::Whole)));
    Ok(events)
}

async fn instances_of(agent: Agent, name: String) -> Result<(String, Vec<Instance>), AgentError> {
    let instances = agent.instances(&name).await?;
    Ok((name, instances))
}
