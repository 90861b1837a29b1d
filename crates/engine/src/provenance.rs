//! Questions about who read what.

use crate::{RootId, Subject};

/// How a read turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReadKind {
    /// An input that was there.
    Value,
    /// An input that was not there.
    Absent,
    /// The members of a bucket, or all keys of a family.
    Members,
    /// Another query, whose own reads follow.
    Query,
}

/// One read in the provenance of a query.
#[derive(Clone, Debug)]
pub struct Read {
    /// What was read.
    pub subject: Subject,
    /// How the read turned out.
    pub kind: ReadKind,
    /// Distance from the query asked about; 1 is a read of its own.
    pub depth: usize,
    /// The earlier entry of the same answer whose query made this read; `None` where `depth` is 1.
    pub via: Option<usize>,
}

/// One query in the blast radius of an input.
#[derive(Clone, Debug)]
pub struct Dependent {
    /// The query that would be checked again.
    pub subject: Subject,
    /// Its root, if it is watched.
    pub root: Option<RootId>,
    /// Distance from the input; 1 reads the input itself.
    pub depth: usize,
    /// Whether the value matters to it; otherwise it saw only that the key is in some bucket.
    pub value: bool,
}
