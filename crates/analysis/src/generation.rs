//! What the generation of proxy configuration finds out by itself, as messages.
//!
//! Diagnostics under a code of Istio's are left out: the analyzer of that code reports the problem, in Istio's words and in
//! exactly the worlds in which Istio reports it. Diagnostics have the field and the consequence instead, for debug endpoints.

use canopus_engine::{Batch, Engine, QueryError};
use canopus_mesh::diagnostic::{self, Severity};
use canopus_mesh::world::{MeshSettings, Objects, Origin as MeshOrigin, Settings};

use crate::message::{Level, Message};
use crate::world::{HOME_CLUSTER, World};

/// The diagnostics of the world that no analyzer of Istio has a code for.
pub fn diagnose(world: &World) -> Result<Vec<Message>, QueryError> {
    let mut batch = Batch::new();
    batch.set::<Settings>(
        (),
        MeshSettings {
            mesh: world.mesh_config.clone(),
            networks: world.mesh_networks.clone(),
            system_namespace: (&*world.system_namespace).into(),
            cluster: HOME_CLUSTER.into(),
            ..MeshSettings::default()
        },
    );
    for resource in world.all() {
        let origin = MeshOrigin::new(&*resource.origin.cluster, resource.object.key());
        batch.set::<Objects>(origin, resource.object.clone());
    }
    let engine = Engine::new();
    engine.apply(batch);
    let found = diagnostic::all_diagnostics(&engine.snapshot())?;
    let ours = found.into_iter().filter(|diagnostic| diagnostic.code.starts_with("CAN"));
    Ok(ours.map(|diagnostic| message(world, diagnostic)).collect())
}

fn message(world: &World, diagnostic: diagnostic::Diagnostic) -> Message {
    let object = &diagnostic.object;
    let resource = world.all().find(|resource| {
        resource.origin.kind == object.kind
            && *resource.origin.name == *object.name
            && *resource.origin.namespace == *object.namespace
    });
    let line = resource.and_then(|resource| {
        let at = canopus_api::validate::locate(&resource.document, &diagnostic.field);
        at.is_known().then_some(at.line)
    });
    Message {
        code: diagnostic.code,
        level: match diagnostic.severity {
            Severity::Error => Level::Error,
            Severity::Warning => Level::Warning,
        },
        origin: resource.map(|resource| resource.origin.clone()),
        line,
        text: format!("{}: {}", diagnostic.field, diagnostic.message),
        remedy: Some(diagnostic.remedy),
    }
}
