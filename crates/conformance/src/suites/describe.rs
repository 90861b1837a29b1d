//! The VirtualService that `istioctl experimental describe` finds behind the routes to a service.

use anyhow::Context as _;
use canopus_cli::describe::virtual_service;

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::{Difference, text};
use crate::dump::Dump;

/// The service and port of all cases, which the suite's note names.
const SERVICE: (&str, &str, u16) = ("productpage", "default", 9080);

pub(super) struct Describe;

impl Suite for Describe {
    fn name(&self) -> &str {
        "istioctl-describe"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let input = case.text("input").context("no input")?;
    let dump = serde_json::from_slice(&case.corpus.bytes(&case.path(input))?)?;
    let (service, namespace, port) = SERVICE;
    let found = virtual_service(&dump, service, namespace, port).unwrap_or_default();
    Ok(text::difference(case.text("expected").unwrap_or_default(), &found))
}
