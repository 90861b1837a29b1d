//! Worlds and plans for tests.

use canopus_api::{Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_engine::{Batch, Engine};
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use jiff::Timestamp;

use crate::controller::{Controller, Plan};

/// A batch that sets the objects of YAML documents, as those of the control plane's own cluster.
pub(crate) fn objects(documents: &str) -> Batch {
    let mut batch = Batch::new();
    for outcome in decode_documents(documents, &Limits::default(), Options::watch()) {
        let object = outcome.unwrap().value;
        batch.set::<Objects>(Origin::new(MeshSettings::default().cluster, object.key()), object);
    }
    batch
}

/// A world of these objects.
pub(crate) fn world(documents: &str) -> Engine {
    let engine = Engine::new();
    let mut batch = objects(documents);
    batch.set::<Settings>((), MeshSettings::default());
    engine.apply(batch);
    engine
}

/// What a controller plans now.
pub(crate) fn plan(controller: &dyn Controller, engine: &Engine) -> Plan {
    controller.plan(&engine.snapshot(), Timestamp::now()).unwrap()
}
