//! Defaults that every other suite builds upon.

use canopus_api::mesh_config::default_mesh_config;
use canopus_proto::Name;
use canopus_proto::descriptors::to_dynamic;
use canopus_proto::istio::mesh::v1alpha1::MeshConfig;

use super::{NO_ADAPTER, Suite};
use crate::case::{Case, Outcome};
use crate::compare::tree::Rules;
use crate::compare::{Difference, proto};
use crate::dump::Dump;

pub(super) struct Defaults;

impl Suite for Defaults {
    fn name(&self) -> &str {
        "defaults"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        match case.id.as_str() {
            "meshconfig" => mesh_config(case).into(),
            _ => Outcome::Skipped(NO_ADAPTER),
        }
    }
}

fn mesh_config(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let expected = proto::read(&MeshConfig::full_name(), &case.corpus.document(&case.path(&case.file))?)?;
    Ok(proto::difference(&expected, &to_dynamic(&default_mesh_config()), &Rules::default()))
}
