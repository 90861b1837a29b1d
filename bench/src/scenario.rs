//! What is measured. Each scenario finds the world as the fixture made it and leaves it so.

mod churn;
mod connect;
mod flap;
mod memory;
mod mesh;
mod noops;
mod renewals;
mod restart;
mod rollout;
mod routes;
mod selector;
mod services;
mod sessions;
mod start;
mod zone;

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
    /// A service comes and goes.
    S7,
    /// A policy of the whole mesh changes.
    S8,
    /// The subject is killed and comes back.
    S9,
    /// One workload is restarted, pod by pod.
    S10,
    /// An object comes that selects the pods of one workload.
    S11,
    /// A zone is lost and comes back.
    S12,
    /// Objects change in ways that change nothing for proxies.
    S13,
    /// Memory of idle sessions of proxies that are alike, in plaintext and with TLS.
    S14,
    /// Ten thousand workloads renew their certificates within a minute.
    S15,
}

impl Scenario {
    /// All of them, in the order they are played.
    pub(crate) const ALL: [Self; 15] = [
        Self::S1,
        Self::S3,
        Self::S2,
        Self::S4,
        Self::S5,
        Self::S6,
        Self::S7,
        Self::S8,
        Self::S10,
        Self::S11,
        Self::S12,
        Self::S13,
        Self::S15,
        Self::S9,
        Self::S14,
    ];

    /// Whether it is about pods, which a uniform fleet has none of.
    pub(crate) fn needs_pods(self) -> bool {
        matches!(self, Self::S10 | Self::S11 | Self::S12)
    }

    /// Whether it begins with a new process of the subject.
    pub(crate) fn starts_afresh(self) -> bool {
        matches!(self, Self::S1 | Self::S2 | Self::S3 | Self::S14)
    }

    /// Whether it ends with all proxies of the fixture connected.
    pub(crate) fn ends_connected(self) -> bool {
        !matches!(self, Self::S1 | Self::S14)
    }

    /// What it is called in tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::S1 => "S1 start-up",
            Self::S2 => "S2 cold connect",
            Self::S3 => "S3 memory",
            Self::S4 => "S4 endpoint flap",
            Self::S5 => "S5 endpoint churn",
            Self::S6 => "S6 VirtualService",
            Self::S7 => "S7 service",
            Self::S8 => "S8 mesh-wide policy",
            Self::S9 => "S9 restart",
            Self::S10 => "S10 rolling restart",
            Self::S11 => "S11 new selector",
            Self::S12 => "S12 zone",
            Self::S13 => "S13 no-ops",
            Self::S14 => "S14 idle sessions",
            Self::S15 => "S15 renewals",
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
            Self::S10 => rollout::play(stage).await,
            Self::S11 => selector::play(stage).await,
            Self::S12 => zone::play(stage).await,
            Self::S13 => noops::play(stage).await,
            Self::S14 => sessions::play(stage).await,
            Self::S15 => renewals::play(stage).await,
        }
    }
}
