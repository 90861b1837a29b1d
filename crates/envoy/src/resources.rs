//! What a proxy gets of one type without asking for names.

use std::sync::Arc;

use canopus_proto::resource::Resource;

/// Resources in shared parts: what a thousand proxies have in common is one allocation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources {
    parts: Vec<Arc<Vec<Resource>>>,
}

impl Resources {
    /// Nothing.
    pub const fn new() -> Self {
        Self { parts: Vec::new() }
    }

    /// Adds a part that others may hold too.
    pub fn push(&mut self, part: Arc<Vec<Resource>>) {
        if !part.is_empty() {
            self.parts.push(part);
        }
    }

    /// All resources, part by part.
    pub fn iter(&self) -> impl Iterator<Item = &Resource> {
        self.parts.iter().flat_map(|part| part.iter())
    }
}

impl From<Arc<Vec<Resource>>> for Resources {
    fn from(part: Arc<Vec<Resource>>) -> Self {
        let mut all = Self::new();
        all.push(part);
        all
    }
}

impl From<Vec<Resource>> for Resources {
    fn from(resources: Vec<Resource>) -> Self {
        Arc::new(resources).into()
    }
}
