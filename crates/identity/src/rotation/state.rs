//! The state of a rotation, as it is stored.

use serde::{Deserialize, Serialize};

use crate::certificate::Certificate;

/// The layout of the stored state. A replica that reads a later one leaves it alone.
pub(super) const FORMAT: u32 = 1;

/// What is known of a root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Root {
    /// The SHA-256 digest of the certificate in hexadecimal.
    pub id: String,
    /// When it becomes valid, in seconds since 1970.
    pub not_before: u64,
    /// When it expires, in seconds since 1970.
    pub not_after: u64,
}

impl Root {
    /// What is known of this certificate.
    pub fn from_certificate(certificate: &Certificate) -> Self {
        Self {
            id: certificate.fingerprint(),
            not_before: certificate.not_before().as_secs(),
            not_after: certificate.not_after().as_secs(),
        }
    }
}

/// How far a rotation is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Phase {
    /// No rotation is under way.
    Stable,
    /// A new root is handed out; the old one still issues.
    Distributing {
        /// The new root.
        next: String,
        /// When this began, in seconds since 1970.
        since: u64,
    },
    /// The new root issues; old ones are still handed out.
    Retiring {
        /// The old roots.
        old: Vec<String>,
        /// When no certificate under them is left, in seconds since 1970.
        until: u64,
    },
}

impl Phase {
    /// The values of the label `phase` of metrics.
    pub const LABELS: [&'static str; 3] = ["stable", "distributing", "retiring"];

    /// The value of the label `phase` of metrics.
    pub fn label(&self) -> &'static str {
        let [stable, distributing, retiring] = Self::LABELS;
        match self {
            Self::Stable => stable,
            Self::Distributing { .. } => distributing,
            Self::Retiring { .. } => retiring,
        }
    }
}

/// The roots of an authority and what each of them is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct State {
    /// The layout of this text.
    pub format: u32,
    /// How many steps led here.
    pub steps: u64,
    /// Every root that is handed out.
    pub roots: Vec<Root>,
    /// The root that issues.
    pub issuer: String,
    /// How far a rotation is.
    pub phase: Phase,
    /// Whether an operator asked for a rotation that has not begun.
    #[serde(default)]
    pub requested: bool,
}

impl State {
    /// Starts with one root and no rotation.
    pub fn new(root: Root) -> Self {
        let issuer = root.id.clone();
        Self { format: FORMAT, steps: 0, roots: vec![root], issuer, phase: Phase::Stable, requested: false }
    }

    /// The root that issues.
    pub fn current(&self) -> Option<&Root> {
        self.roots.iter().find(|root| root.id == self.issuer)
    }

    /// The root that will issue next.
    pub fn next(&self) -> Option<&Root> {
        let Phase::Distributing { next, .. } = &self.phase else { return None };
        self.roots.iter().find(|root| root.id == *next)
    }

    /// The roots that do not issue any more.
    pub fn old_roots(&self) -> impl Iterator<Item = &Root> {
        let old = match &self.phase {
            Phase::Retiring { old, .. } => old.as_slice(),
            _ => &[],
        };
        self.roots.iter().filter(move |root| old.contains(&root.id))
    }

    /// The same with a rotation asked for; it begins when none is under way.
    #[must_use]
    pub fn with_request(&self) -> Self {
        Self { requested: true, ..self.stepped() }
    }

    /// A new root joins those that are handed out.
    pub(super) fn distributing(&self, root: Root, now: u64) -> Self {
        let phase = Phase::Distributing { next: root.id.clone(), since: now };
        let roots = self.roots.iter().filter(|known| known.id != root.id).cloned().chain([root.clone()]);
        Self { roots: roots.collect(), phase, requested: false, ..self.stepped() }
    }

    /// The new root issues.
    pub(super) fn retiring(&self, until: u64) -> Self {
        let Some(next) = self.next().map(|root| root.id.clone()) else { return self.stable() };
        let old = vec![self.issuer.clone()];
        Self { issuer: next, phase: Phase::Retiring { old, until }, ..self.stepped() }
    }

    /// The state with the issuer alone.
    pub(super) fn stable(&self) -> Self {
        let roots = self.roots.iter().filter(|root| root.id == self.issuer).cloned().collect();
        Self { roots, phase: Phase::Stable, ..self.stepped() }
    }

    /// Somebody else, such as an istiod that shares the Secret, has put another root in the issuer's place. What was issued
    /// before still has to verify.
    pub(super) fn taken_over(&self, root: Root, until: u64) -> Self {
        let old: Vec<_> = self.roots.iter().filter(|known| known.id != root.id).cloned().collect();
        let phase = Phase::Retiring { old: old.iter().map(|root| root.id.clone()).collect(), until };
        let issuer = root.id.clone();
        Self { roots: old.into_iter().chain([root]).collect(), issuer, phase, ..self.stepped() }
    }

    fn stepped(&self) -> Self {
        Self { steps: self.steps.saturating_add(1), ..self.clone() }
    }
}
