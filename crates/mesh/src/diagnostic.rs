//! What is wrong with objects though each is valid by itself: references that lead nowhere, objects in each other's way.
//!
//! Findings are facts like others, made of the same facts that proxies are configured by, so they cannot disagree with what
//! proxies get. Nobody is configured by them: they are worked out when somebody asks, and generation pays nothing for them.

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

/// The kinds whose objects are looked at.
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

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// Part of what the object asks for does not happen.
    Error,
    /// It works, though perhaps not as meant.
    Warning,
}

impl Severity {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// Something wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnostic {
    /// The object.
    pub object: ObjectRef,
    /// How bad it is.
    pub severity: Severity,
    /// What kind of problem; where Istio's analysis knows it, by Istio's code.
    pub code: &'static str,
    /// The field, as a path into the object.
    pub field: String,
    /// What is wrong, and what follows from it.
    pub message: String,
    /// What would mend it.
    pub remedy: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, severity, code, field, message, remedy } = self;
        write!(f, "{} [{code}] {object}: {field}: {message}; {remedy}", severity.name())
    }
}

/// The problems of one object, as they are collected.
struct Findings<'a> {
    origin: &'a Origin,
    found: Vec<Diagnostic>,
}

/// What a problem is: its code, how bad it is, and what would mend it.
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

/// What is wrong with an object.
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

/// What is wrong with any object of a world, by object.
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
