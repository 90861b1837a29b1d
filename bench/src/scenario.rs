//! What is measured. Each scenario finds the world as the fixture made it and leaves it so.

mod churn;
mod connect;
mod flap;
mod memory;
mod mesh;
mod restart;
mod routes;
mod services;
mod start;

use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::figure::Figure;
use crate::stage::Stage;

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Scenario {
    /// Start-up: from the start of the process until it is ready, and until a waiting proxy has its clusters.
    S1,
    /// Cold connect: all proxies at once, until the last has everything.
    S2,
    /// Memory of idle proxies.
    S3,
    /// One endpoint changes at a time.
    S4,
    /// Many endpoints change, at several rates.
    S5,
    /// A VirtualService changes that all proxies see, and one that few do.
    S6,
    /// A service comes and goes; then changes that change nothing.
    S7,
    /// A policy of the whole mesh changes.
    S8,
    /// The subject is killed and comes back.
    S9,
}

impl Scenario {
    /// All of them, in the order they are played.
    pub(crate) const ALL: [Self; 9] =
        [Self::S1, Self::S3, Self::S2, Self::S4, Self::S5, Self::S6, Self::S7, Self::S8, Self::S9];

    /// What it is called in tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::S1 => "S1 start-up",
            Self::S2 => "S2 cold connect",
            Self::S3 => "S3 memory",
            Self::S4 => "S4 endpoint flap",
            Self::S5 => "S5 endpoint churn",
            Self::S6 => "S6 VirtualService",
            Self::S7 => "S7 service, no-ops",
            Self::S8 => "S8 mesh-wide policy",
            Self::S9 => "S9 restart",
        }
    }

    /// Plays it.
    pub(crate) async fn play(self, stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
        match self {
            Self::S1 => start::play(stage).await,
            Self::S2 => connect::play(stage).await,
            Self::S3 => memory::play(stage).await,
            Self::S4 => flap::play(stage).await,
            Self::S5 => churn::play(stage).await,
            Self::S6 => routes::play(stage).await,
            Self::S7 => services::play(stage).await,
            Self::S8 => mesh::play(stage).await,
            Self::S9 => restart::play(stage).await,
        }
    }
}
