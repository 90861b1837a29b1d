//! The vocabulary of sources: a [`Batch`] of [`Change`]s, and the [`SourceInfo`] that says who reports them.
//!
//! A change is about one object, or about how far a [`SourcePart`] of the source is known: a listing that begins or ends, a watch
//! that is up to date or lost.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use canopus_api::{Kind, Object, ObjectKey};

/// Identifies a source: its name, cluster and rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceInfo {
    /// The name, for people and for the snapshot: `files:/etc/mesh`, `kubernetes:east`. No two sources share one.
    pub name: Box<str>,
    /// The cluster its objects belong to. Objects of different clusters never stand in each other's way.
    pub cluster: Arc<str>,
    /// Where several sources of a cluster have the same object, that of the lowest rank counts; at equal ranks, that of
    /// the source whose name is first in the alphabet.
    pub rank: u16,
}

impl SourceInfo {
    /// A source of this name, in a cluster, at a rank.
    pub fn new(name: impl Into<Box<str>>, cluster: impl Into<Arc<str>>, rank: u16) -> Self {
        Self { name: name.into(), cluster: cluster.into(), rank }
    }
}

/// What a source can be up to date with, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourcePart {
    /// The source itself: all that it has, or the list of kinds it has.
    Whole,
    /// The objects of one kind.
    Kind(Kind),
}

impl SourcePart {
    /// Whether an object of this kind belongs to the part.
    pub fn covers(self, kind: Kind) -> bool {
        self == Self::Whole || self == Self::Kind(kind)
    }

    /// The kind, if the part is one.
    pub fn kind(self) -> Option<Kind> {
        if let Self::Kind(kind) = self { Some(kind) } else { None }
    }
}

impl fmt::Display for SourcePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("all objects"),
            Self::Kind(kind) => f.write_str(&kind.info().resource()),
        }
    }
}

/// Where something is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemScope {
    /// In a part of the source.
    Part(SourcePart),
    /// In one object.
    Object(ObjectKey),
    /// In one file.
    File(PathBuf),
}

impl fmt::Display for ProblemScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part(part) => part.fmt(f),
            Self::Object(key) => key.fmt(f),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// A statement of a source about its objects or its state.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The object is so now. What was wrong with it before is right again.
    Set(Object),
    /// The object is gone.
    Remove(ObjectKey),
    /// The object is there but cannot be read: what was last known of it stays.
    Keep(ObjectKey),
    /// A complete listing of the part begins.
    Begin(SourcePart),
    /// The listing is complete: what it neither set nor kept is gone, and the part is up to date.
    End(SourcePart),
    /// The part will be listed; until then nothing is known of it.
    Expect(SourcePart),
    /// The part is up to date, without a listing.
    Live(SourcePart),
    /// The part cannot be followed any more, for this reason. What is known of it stays.
    Lost(SourcePart, String),
    /// The part does not exist or may not be read, for this reason, and the mesh can do without. What is known stays.
    Absent(SourcePart, String),
    /// The source has no such kind any more, nor objects of it.
    Withdraw(Kind),
    /// Objects of this namespace are not to be seen any more.
    Deselect(Box<str>),
    /// All that is wrong in a place; empty if nothing is any more.
    Problems(ProblemScope, Vec<String>),
}

/// What a source says at once.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The source that reports the changes.
    pub source: Arc<SourceInfo>,
    /// What, in order.
    pub events: Vec<Change>,
}

/// The state of a source that a snapshot restores.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saved {
    /// Objects that the source had.
    pub objects: Vec<Object>,
    /// The kinds of which all objects were known; `None` if the source is not followed kind by kind.
    pub kinds: Option<BTreeSet<Kind>>,
    /// Why objects are missing that were saved: this version cannot read them.
    pub unreadable: Vec<String>,
}
