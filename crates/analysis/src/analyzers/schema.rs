//! What makes single objects invalid, as admission would say it.

use canopus_api::Kind;
use canopus_api::validate::{self, Report};

use super::multicluster::settings_origin;
use crate::catalogue;
use crate::findings::Findings;
use crate::message::{MessageType, Parameter};
use crate::world::World;

const UNREACHABLE: &str = "virtual-service-unreachable-rule";
const INEFFECTIVE: &str = "virtual-service-ineffective-match";

pub(crate) fn analyze(kind: Kind, world: &World, findings: &mut Findings) {
    for resource in world.objects_of_kind(kind) {
        let report = validate::validate(&resource.object);
        for (kind, parameters) in messages(&report) {
            findings.add(kind, resource, &parameters);
        }
    }
}

pub(crate) fn mesh_config(world: &World, findings: &mut Findings) {
    let report = validate::fragment(|scope| validate::mesh_config::check(&world.mesh_config, scope));
    for (kind, parameters) in messages(&report) {
        findings.add_about(kind, settings_origin(world, "MeshConfig", "meshconfig"), &parameters);
    }
}

pub(crate) fn mesh_networks(world: &World, findings: &mut Findings) {
    let report = validate::fragment(|scope| validate::mesh_networks::check(&world.mesh_networks, scope));
    for (kind, parameters) in messages(&report) {
        findings.add_about(kind, settings_origin(world, "MeshNetworks", "meshnetworks"), &parameters);
    }
}

fn messages(report: &Report) -> Vec<(&'static MessageType, Vec<Parameter>)> {
    let errors = report.errors.iter().map(|finding| (&catalogue::SCHEMA_VALIDATION_ERROR, finding));
    let warnings = report.warnings.iter().map(|finding| (&catalogue::SCHEMA_WARNING, finding));
    let said = errors.chain(warnings).filter(|(_, finding)| !finding.ours);
    said.map(|(kind, finding)| {
        let arguments = || finding.arguments.iter().cloned().map(Parameter::from).collect();
        match finding.code.id {
            UNREACHABLE => (&catalogue::VIRTUAL_SERVICE_UNREACHABLE_RULE, arguments()),
            INEFFECTIVE => (&catalogue::VIRTUAL_SERVICE_INEFFECTIVE_MATCH, arguments()),
            _ => (kind, vec![Parameter::from(&finding.message)]),
        }
    })
    .collect()
}
