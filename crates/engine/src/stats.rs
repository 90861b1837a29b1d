//! Counters.

/// Size and work of an engine since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Inputs that have a value.
    pub inputs: usize,
    /// Memoised queries.
    pub memos: usize,
    /// Watched queries.
    pub roots: usize,
    /// Recorded reads, one per memo and distinct subject.
    pub edges: usize,
    /// Times a query function ran.
    pub evaluations: u64,
    /// Times a memo was checked after a change and kept without running its query.
    pub validations: u64,
    /// Times a query was answered by a memo as it stood.
    pub hits: u64,
    /// Estimate of the memory held by inputs, memos and edges, without what values own on the heap.
    pub bytes: usize,
}
