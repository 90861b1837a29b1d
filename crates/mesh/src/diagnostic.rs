//! Diagnostics: problems of objects that are valid by themselves, such as references to nothing and conflicting objects.
//!
//! Diagnostics are queries over the same facts that configure proxies, so they cannot disagree with what proxies receive. They
//! are evaluated on request; generation does not pay for them.

mod destination_rule;
mod extension;
mod gateway;
mod provider;
mod service;
mod sidecar;
#[cfg(test)]
mod tests;
mod virtual_service;

use std::fmt;

use canopus_api::{Kind, Object};
use canopus_engine::{Ctx, Query, QueryError, Snapshot};
use serde::Serialize;

use crate::dump::ObjectRef;
use crate::world::{self, ObjectIndex, Objects, Origin};

/// The kinds that are diagnosed.
const KINDS: [Kind; 10] = [
    Kind::Service,
    Kind::ServiceEntry,
    Kind::VirtualService,
    Kind::DestinationRule,
    Kind::Gateway,
    Kind::Sidecar,
    Kind::AuthorizationPolicy,
    Kind::Telemetry,
    Kind::WasmPlugin,
    Kind::TrafficExtension,
];

/// The severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// Part of the object has no effect.
    Error,
    /// The object has an effect, though perhaps not the intended one.
    Warning,
}

impl Severity {
    /// The severity as it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// A problem of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnostic {
    /// The object.
    pub object: ObjectRef,
    /// The severity of a diagnostic.
    pub severity: Severity,
    /// The code of the problem: that of Istio's analysis where it has one.
    pub code: &'static str,
    /// The field, as a path into the object.
    pub field: String,
    /// The problem and its consequence.
    pub message: String,
    /// How to fix it.
    pub remedy: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, severity, code, field, message, remedy } = self;
        write!(f, "{} [{code}] {object}: {field}: {message}; {remedy}", severity.name())
    }
}

/// Collects the problems of one object.
struct Findings<'a> {
    origin: &'a Origin,
    found: Vec<Diagnostic>,
}

/// The code, severity and remedy of a problem.
type Problem = (&'static str, Severity, &'static str);

impl Findings<'_> {
    fn add(&mut self, problem: Problem, field: impl Into<String>, message: impl Into<String>) {
        let (code, severity, remedy) = problem;
        self.found.push(Diagnostic {
            object: ObjectRef::from(self.origin),
            severity,
            code,
            field: field.into(),
            message: message.into(),
            remedy: remedy.to_owned(),
        });
    }
}

/// The diagnostics of an object.
pub struct Diagnostics;

impl Query for Diagnostics {
    const NAME: &'static str = "diagnostics";
    type Key = Origin;
    type Value = Vec<Diagnostic>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let mut findings = Findings { origin, found: Vec::new() };
        match world::any_object(ctx, origin).as_deref() {
            Some(Object::Service(_) | Object::ServiceEntry(_)) => service::check(ctx, &mut findings),
            Some(Object::VirtualService(object)) => virtual_service::check(ctx, object, &mut findings),
            Some(Object::DestinationRule(object)) => destination_rule::check(ctx, object, &mut findings),
            Some(Object::Gateway(_)) => gateway::check(ctx, &mut findings),
            Some(Object::Sidecar(object)) => sidecar::check(ctx, object, &mut findings),
            Some(Object::AuthorizationPolicy(object)) => provider::check_policy(ctx, object, &mut findings),
            Some(Object::Telemetry(object)) => provider::check_telemetry(ctx, object, &mut findings),
            Some(Object::WasmPlugin(object)) => extension::check_plugin(ctx, object, &mut findings),
            Some(Object::TrafficExtension(object)) => extension::check_extension(ctx, object, &mut findings),
            _ => {}
        }
        findings.found
    }
}

/// Returns the diagnostics of all objects, sorted by object.
pub fn all_diagnostics(world: &Snapshot) -> Result<Vec<Diagnostic>, QueryError> {
    let mut found = Vec::new();
    for kind in KINDS {
        for origin in world.members::<Objects>(&ObjectIndex::Kind(kind)).iter() {
            found.extend_from_slice(&world.get::<Diagnostics>(origin)?);
        }
    }
    found.sort();
    Ok(found)
}
