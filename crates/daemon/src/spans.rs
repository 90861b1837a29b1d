//! Spans of the control plane's own work, for a collector that speaks OpenTelemetry's protocol.
//!
//! Nothing is recorded unless the environment asks for it. A batch of changes is one trace: `apply`, below it a `generate`
//! for each type a client was given, and a `push` that ends when the last client has acknowledged. `start` and `admission`
//! are traces of their own. What the collector does not take in time is dropped, never waited for.

mod encode;
mod exporter;
mod settings;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use anyhow::Context as _;
use canopus_runtime::flags::Flags;
use tokio::sync::mpsc;
use tracing::info;

pub(crate) use self::exporter::Exporter;
use self::settings::Settings;
use crate::push::{AppliedBatch, Observer, Push};

/// Spans that wait to be exported.
const WAITING: usize = 4096;

/// The name of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TraceId([u8; 16]);

/// The name of a span in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SpanId([u8; 8]);

/// A finished piece of work and its duration.
#[derive(Clone, Debug)]
struct Span {
    trace: TraceId,
    id: SpanId,
    parent: Option<SpanId>,
    name: &'static str,
    start: SystemTime,
    end: SystemTime,
    attributes: Vec<(&'static str, Attribute)>,
}

/// What is said of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    /// In words.
    Text(String),
    /// A number, printed in decimal.
    Number(u64),
    /// Yes or no.
    Truth(bool),
}

/// What a span belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Within {
    /// The batch that led to this revision.
    Revision(u64),
    /// Nothing else that happens here.
    Itself,
}

/// Records spans, or nothing if there is no collector.
pub struct Tracer {
    queue: Option<mpsc::Sender<Span>>,
    dropped: Arc<AtomicU64>,
    seed: RandomState,
    made: AtomicU64,
    /// What the process was started by.
    parent: Option<(TraceId, SpanId)>,
}

impl Tracer {
    /// Records nothing.
    pub fn off() -> Self {
        Self::with(None, None)
    }

    /// Records what the environment asks for; what it records is exported by the second part.
    pub(crate) fn new(flags: &Flags) -> anyhow::Result<(Self, Option<Exporter>)> {
        let Some(settings) = Settings::read(flags).context("OpenTelemetry")? else {
            return Ok((Self::off(), None));
        };
        info!(endpoint = %settings.endpoint, protocol = ?settings.protocol, "spans are exported");
        let (queue, waiting) = mpsc::channel(WAITING);
        let tracer = Self::with(Some(queue), flags.variable("TRACEPARENT").and_then(parent));
        let exporter = Exporter::new(settings, waiting, Arc::clone(&tracer.dropped));
        Ok((tracer, Some(exporter)))
    }

    fn with(queue: Option<mpsc::Sender<Span>>, parent: Option<(TraceId, SpanId)>) -> Self {
        Self { queue, dropped: Arc::default(), seed: RandomState::new(), made: AtomicU64::new(0), parent }
    }

    /// Whether anything is recorded: where not, nothing need be prepared.
    pub(crate) fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// Records that something was done from `start` until now.
    pub(crate) fn record(
        &self,
        name: &'static str,
        within: Within,
        start: SystemTime,
        attributes: impl IntoIterator<Item = (&'static str, Attribute)>,
    ) {
        let (trace, parent) = match within {
            Within::Revision(revision) => (self.trace("revision", revision), Some(self.root(revision))),
            Within::Itself => (self.trace("single", self.made.fetch_add(1, Ordering::Relaxed)), None),
        };
        self.send(trace, self.next(), parent, name, start, attributes);
    }

    /// Records that the process has started, as part of what started it.
    pub(crate) fn started(&self, start: SystemTime) {
        let trace = self.parent.map_or_else(|| self.trace("start", 0), |(trace, _)| trace);
        self.send(trace, self.next(), self.parent.map(|(_, span)| span), "start", start, []);
    }

    fn send(
        &self,
        trace: TraceId,
        id: SpanId,
        parent: Option<SpanId>,
        name: &'static str,
        start: SystemTime,
        attributes: impl IntoIterator<Item = (&'static str, Attribute)>,
    ) {
        let Some(queue) = &self.queue else { return };
        let attributes = attributes.into_iter().collect();
        let span = Span { trace, id, parent, name, start, end: SystemTime::now(), attributes };
        if queue.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The trace of something, which all parts of it can tell without asking each other.
    fn trace(&self, kind: &str, number: u64) -> TraceId {
        let halves = [0_u8, 1].map(|half| self.seed.hash_one((kind, number, half)).to_be_bytes());
        let mut id = [0; 16];
        id[..8].copy_from_slice(&halves[0]);
        id[8..].copy_from_slice(&halves[1]);
        TraceId(id)
    }

    /// The first span of the trace of a revision.
    fn root(&self, revision: u64) -> SpanId {
        SpanId(self.seed.hash_one(("root", revision)).to_be_bytes())
    }

    fn next(&self) -> SpanId {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        SpanId(self.seed.hash_one(("span", number)).to_be_bytes())
    }
}

impl Observer for Tracer {
    fn applied(&self, batch: &AppliedBatch) {
        if !self.is_on() {
            return;
        }
        let reasons: Vec<_> = batch.cause.reasons.keys().map(|reason| reason.label()).collect();
        let attributes = [
            ("canopus.revision", Attribute::Number(batch.revision)),
            ("canopus.objects", Attribute::Number(batch.cause.objects.len() as u64)),
            ("canopus.reasons", Attribute::Text(reasons.join(","))),
            ("canopus.recipients", Attribute::Number(batch.woken.len() as u64)),
        ];
        let (trace, root) = (self.trace("revision", batch.revision), self.root(batch.revision));
        self.send(trace, root, None, "apply", batch.cause.seen.time, attributes);
    }

    fn converged(&self, push: &Push) {
        if !self.is_on() || push.woken == 0 {
            return;
        }
        let (mut messages, mut bytes) = (0, 0);
        for total in push.types.values() {
            messages += total.messages;
            bytes += total.bytes;
        }
        let attributes = [
            ("canopus.recipients", Attribute::Number(push.woken as u64)),
            ("canopus.messages", Attribute::Number(messages)),
            ("canopus.bytes", Attribute::Number(bytes)),
            ("canopus.rejected", Attribute::Number(push.rejected as u64)),
        ];
        self.record("push", Within::Revision(push.revision), push.applied.time, attributes);
    }
}

/// What `TRACEPARENT` says: `00-<trace>-<span>-<flags>`.
fn parent(text: &str) -> Option<(TraceId, SpanId)> {
    let mut parts = text.trim().split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let known = version.len() == 2 && flags.len() == 2 && version != "ff";
    let (trace, span) = (hexadecimal(trace)?, hexadecimal(span)?);
    (known && trace != [0; 16] && span != [0; 8]).then_some((TraceId(trace), SpanId(span)))
}

fn hexadecimal<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
