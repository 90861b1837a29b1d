//! AuthorizationPolicies and PeerAuthentications in, the policies that ztunnels enforce out.

use anyhow::{Context, anyhow, bail};
use canopus_ambient::Authorizations;
use canopus_api::{Object, Options};
use canopus_engine::{Batch, Engine};
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::descriptors::{self, DynamicMessage};
use canopus_runtime::flags::Flags;

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::proto;
use crate::compare::tree::Rules;
use crate::dump::Dump;

const MESSAGE: &str = "istio.security.Authorization";

/// The policy that exists wherever a PeerAuthentication does, and that is made from none of them.
const STATIC: &str = "istio_converted_static_strict";

pub(super) struct AmbientAuthz;

impl Suite for AmbientAuthz {
    fn name(&self) -> &str {
        "ambient-authz"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let mut found = Vec::new();
    for multi_network in ["false", "true"] {
        found.extend(compare_with(case, multi_network)?);
    }
    Ok(found)
}

fn compare_with(case: &Case, multi_network: &str) -> anyhow::Result<Vec<Difference>> {
    let golden = case.path(case.text("golden").context("nothing is expected")?);
    let golden = case.corpus.documents(&golden)?.into_iter().find(|document| !document.is_null());
    let got = authorizations(case, multi_network)?;
    let (expected, got) = match (golden, got.as_slice()) {
        (None, []) => return Ok(Vec::new()),
        (Some(expected), [one]) => (expected, one),
        (expected, got) => {
            return Ok(vec![Difference::new("", usize::from(expected.is_some()), got.len())]);
        }
    };
    let descriptor = descriptors::message(MESSAGE).context("unknown message")?;
    let got = DynamicMessage::decode(descriptor, got.as_slice()).map_err(|error| anyhow!("{error}"))?;
    Ok(proto::difference(&proto::read(MESSAGE, &expected)?, &got, &Rules::default()))
}

/// The policies made from the objects of a case, encoded.
fn authorizations(case: &Case, multi_network: &str) -> anyhow::Result<Vec<Vec<u8>>> {
    let flags =
        Flags::read(&[("PILOT_ENABLE_AMBIENT", "true"), ("AMBIENT_ENABLE_MULTI_NETWORK", multi_network)]);
    let settings = MeshSettings { flags: flags.into(), ..MeshSettings::default() };
    let mut batch = Batch::new();
    for document in case.corpus.documents(&case.path(case.text("input").context("no input")?))? {
        if document.is_null() {
            continue;
        }
        let Ok(decoded) = Object::decode(&document, Options::watch()) else {
            bail!("an object cannot be read")
        };
        let object = decoded.value;
        batch.set::<Objects>(Origin::new(settings.cluster.clone(), object.key()), object);
    }
    batch.set::<Settings>((), settings);
    let engine = Engine::new();
    engine.apply(batch);
    let resources = engine.snapshot().get::<Authorizations>(&())?;
    let made = resources.iter().filter(|resource| !resource.name.ends_with(STATIC));
    Ok(made.map(|resource| resource.body.to_vec()).collect())
}
