//! Engines with objects and settings, for tests.

use canopus_api::{Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_engine::{Batch, Engine};

use crate::world::{MeshSettings, Objects, Origin, Settings};

/// A batch that sets the objects of YAML documents, as those of the control plane's own cluster.
pub(crate) fn objects(documents: &str) -> Batch {
    let mut batch = Batch::new();
    for outcome in decode_documents(documents, &Limits::default(), Options::watch()) {
        let object = outcome.unwrap().value;
        batch.set::<Objects>(Origin::new(MeshSettings::default().cluster, object.key()), object);
    }
    batch
}

/// An engine with settings and objects.
pub(crate) fn world(settings: MeshSettings, documents: &str) -> Engine {
    let mut batch = objects(documents);
    batch.set::<Settings>((), settings);
    let engine = Engine::new();
    engine.apply(batch);
    engine
}
