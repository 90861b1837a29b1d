//! The two questions that are always open.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::agent::Agent;
use super::answer::Check;
use crate::retry::Retry;

/// What is new.
#[derive(Debug)]
pub(super) enum News {
    /// The names of all services.
    Catalogue(BTreeSet<String>),
    /// The state of all checks.
    Checks(Checks),
    /// The agent does not answer, for this reason.
    Lost(String),
}

/// The checks of each service. Those of nodes are under the empty name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Checks(BTreeMap<String, BTreeSet<Check>>);

impl Checks {
    pub(super) fn new(checks: Vec<Check>) -> Self {
        let mut services: BTreeMap<String, BTreeSet<Check>> = BTreeMap::new();
        for check in checks {
            services.entry(check.service_name.clone()).or_default().insert(check);
        }
        Self(services)
    }

    /// The services whose checks are not the same.
    pub(super) fn differences(&self, other: &Self) -> BTreeSet<String> {
        let names = self.0.keys().chain(other.0.keys());
        names.filter(|name| self.0.get(*name) != other.0.get(*name)).cloned().collect()
    }
}

/// Tells the names of all services whenever the catalogue changes.
pub(super) async fn catalogue(agent: Agent, news: mpsc::Sender<News>) {
    let names = |services: BTreeMap<String, serde::de::IgnoredAny>| services.into_keys().collect();
    ask(agent, "/v1/catalog/services", news, |services| News::Catalogue(names(services))).await;
}

/// Tells the state of all checks whenever one changes.
pub(super) async fn checks(agent: Agent, news: mpsc::Sender<News>) {
    ask(agent, "/v1/health/state/any", news, |checks| News::Checks(Checks::new(checks))).await;
}

async fn ask<T: DeserializeOwned>(
    agent: Agent,
    path: &str,
    news: mpsc::Sender<News>,
    tell: impl Fn(T) -> News,
) {
    let mut index = 0;
    let mut retry = Retry::default();
    loop {
        let next = match agent.wait(path, index).await {
            Ok(answer) => {
                let changed = answer.index != index || index == 0;
                // An index that went back is that of a catalogue that started over.
                index = if answer.index < index { 0 } else { answer.index };
                let recovered = retry.is_failing();
                if index == 0 {
                    // Without an index the agent answers at once: that would be asking without end.
                    sleep(retry.pause()).await;
                } else {
                    retry.reset();
                }
                if !changed && !recovered {
                    continue;
                }
                tell(answer.content)
            }
            Err(error) => {
                index = 0;
                sleep(retry.pause()).await;
                News::Lost(error.to_string())
            }
        };
        if news.send(next).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_the_services_concerned() {
        let check = |service: &str, id: &str, status: &str| Check {
            service_name: service.to_owned(),
            check_id: id.to_owned(),
            status: status.to_owned(),
            ..Check::default()
        };
        let before = Checks::new(vec![check("a", "1", "passing"), check("b", "2", "passing")]);
        let after = Checks::new(vec![
            check("b", "2", "critical"),
            check("a", "1", "passing"),
            check("", "3", "passing"),
        ]);
        assert_eq!(before.differences(&after), BTreeSet::from([String::new(), "b".to_owned()]));
        assert_eq!(after.differences(&after), BTreeSet::new());
    }
}
