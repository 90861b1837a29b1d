//! Edits, as users and controllers make them.

use canopus_engine::Batch;

use crate::objects::Model;

/// What is edited of a service picked at random.
#[derive(Clone, Copy)]
pub(crate) enum Edit {
    Endpoint,
    PodLabel,
    Route,
    Ports,
    Existence,
    Annotation,
    ResourceVersion,
}

pub(crate) const EDITS: [Edit; 7] = [
    Edit::Endpoint,
    Edit::PodLabel,
    Edit::Route,
    Edit::Ports,
    Edit::Existence,
    Edit::Annotation,
    Edit::ResourceVersion,
];

/// Edits that change what a proxy sees whose view no Sidecar narrows.
pub(crate) const SEEN_BY_ALL: [Edit; 3] = [Edit::Route, Edit::Ports, Edit::Existence];

impl Edit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "an endpoint becomes ready or not",
            Self::PodLabel => "a label of a pod changes",
            Self::Route => "a VirtualService changes",
            Self::Ports => "a Service gets or loses a port",
            Self::Existence => "a Service appears or disappears",
            Self::Annotation => "an annotation of a Service changes",
            Self::ResourceVersion => "the resource version of a VirtualService changes",
        }
    }

    /// Makes the edit in the model, and gives the batch that makes it in a world.
    pub(crate) fn make(self, model: &mut Model, random: &mut Random) -> Batch {
        let at = random.below(model.services());
        let state = model.state(at);
        match self {
            Self::Endpoint => state.ready = !state.ready,
            Self::PodLabel => state.version += 1,
            Self::Route => state.timeout += 1,
            Self::Ports => state.second_port = !state.second_port,
            Self::Existence => state.exists = !state.exists,
            Self::Annotation => state.annotation += 1,
            Self::ResourceVersion => state.seen += 1,
        }
        let mut batch = Batch::new();
        match self {
            Self::Endpoint => model.set_slice(&mut batch, at),
            Self::PodLabel => model.set_pod(&mut batch, at, 0),
            Self::Route | Self::ResourceVersion => model.set_route(&mut batch, at),
            Self::Ports | Self::Existence | Self::Annotation => model.set_service(&mut batch, at),
        }
        batch
    }
}

/// Numbers that look random and are the same every time.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        // Knuth's multiplier; the high bits are good enough to pick services by.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or_default() % limit
    }
}
