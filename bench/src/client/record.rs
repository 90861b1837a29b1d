//! What all proxies together have seen.

use std::collections::BTreeMap;
use std::ops::Sub;
use std::time::{Duration, Instant};

use canopus_base::FastMap;
use serde::Serialize;

use super::kind::Kind;
use super::names::{NameId, Names};
use super::references::References;

/// What was received of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Total {
    /// Responses.
    pub messages: u64,
    /// Resources in them.
    pub resources: u64,
    /// Names in them of resources that do not exist.
    pub removed: u64,
    /// Bytes of resources.
    pub bytes: u64,
}

/// What was received, by kind, and in all.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// By kind.
    pub kinds: BTreeMap<Kind, Total>,
    /// Bytes on all streams, envelopes included.
    pub bytes: u64,
    /// Streams that were opened.
    pub streams: u64,
    /// Streams that the server refused or that broke.
    pub lost: u64,
}

impl Totals {
    /// Responses of all kinds.
    pub fn messages(&self) -> u64 {
        self.kinds.values().map(|total| total.messages).sum()
    }

    /// Bytes of the resources of a kind.
    pub fn bytes_of(&self, kind: Kind) -> u64 {
        self.kinds.get(&kind).map_or(0, |total| total.bytes)
    }

    /// Responses of a kind.
    pub fn messages_of(&self, kind: Kind) -> u64 {
        self.kinds.get(&kind).map_or(0, |total| total.messages)
    }
}

impl Sub<&Totals> for Totals {
    type Output = Self;

    fn sub(mut self, earlier: &Self) -> Self {
        for (kind, total) in &mut self.kinds {
            let before = earlier.kinds.get(kind).copied().unwrap_or_default();
            total.messages -= before.messages;
            total.resources -= before.resources;
            total.removed -= before.removed;
            total.bytes -= before.bytes;
        }
        self.bytes -= earlier.bytes;
        self.streams -= earlier.streams;
        self.lost -= earlier.lost;
        self
    }
}

/// A change that proxies are expected to be told of.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// When it was begun.
    pub started: Instant,
    /// How many are expected to be told.
    pub expected: usize,
    /// How long after the start each of them acknowledged it, in the order they did.
    pub delays: Vec<Duration>,
    /// Which proxies were told, by index in the fleet.
    told: Vec<bool>,
}

impl Expectation {
    /// Whether all that are expected to know do.
    pub fn is_met(&self) -> bool {
        self.delays.len() >= self.expected
    }

    /// How long it took until the last of them knew, if all do.
    pub fn last(&self) -> Option<Duration> {
        self.delays.last().copied().filter(|_| self.is_met())
    }

    fn tell(&mut self, proxy: usize, now: Instant) {
        if self.told.len() <= proxy {
            self.told.resize(proxy + 1, false);
        }
        if !std::mem::replace(&mut self.told[proxy], true) {
            self.delays.push(now.saturating_duration_since(self.started));
        }
    }
}

/// What all proxies share.
#[derive(Debug)]
pub struct Record {
    /// Names and versions.
    pub names: Names,
    pub(super) references: References,
    /// What was received so far.
    pub totals: Totals,
    /// When the last response was complete, or the last stream opened.
    pub last: Instant,
    /// When each proxy first had all it wants, since the record was last asked to forget it.
    pub ready: BTreeMap<usize, Instant>,
    expectations: FastMap<(Kind, NameId), Expectation>,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            names: Names::default(),
            references: References::default(),
            totals: Totals::default(),
            last: Instant::now(),
            ready: BTreeMap::new(),
            expectations: FastMap::default(),
        }
    }
}

impl Record {
    /// From now on, `expected` proxies should be told of a change of this resource.
    pub fn expect(&mut self, kind: Kind, name: &str, expected: usize) {
        let id = self.names.id(name);
        let expectation =
            Expectation { started: Instant::now(), expected, delays: Vec::new(), told: Vec::new() };
        self.expectations.insert((kind, id), expectation);
    }

    /// How far proxies know of an expected change.
    pub fn expectation(&mut self, kind: Kind, name: &str) -> Option<&Expectation> {
        let id = self.names.id(name);
        self.expectations.get(&(kind, id))
    }

    /// Ends an expectation.
    pub fn take(&mut self, kind: Kind, name: &str) -> Option<Expectation> {
        let id = self.names.id(name);
        self.expectations.remove(&(kind, id))
    }

    /// Whether a change of this resource is expected.
    pub(super) fn is_expected(&self, kind: Kind, name: NameId) -> bool {
        self.expectations.contains_key(&(kind, name))
    }

    /// A proxy acknowledged a change.
    pub(super) fn told(&mut self, proxy: usize, kind: Kind, name: NameId, now: Instant) {
        if let Some(expectation) = self.expectations.get_mut(&(kind, name)) {
            expectation.tell(proxy, now);
        }
    }

    pub(super) fn total(&mut self, kind: Kind) -> &mut Total {
        self.totals.kinds.entry(kind).or_default()
    }
}
