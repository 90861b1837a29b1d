//! What one rendering may cost.
//!
//! A template is a program and may come from a user: it can loop, recurse and double a string in every turn. Everything
//! that works in proportion to the data charges a [`Budget`], so a rendering ends with an error rather than with the
//! process. Time follows the steps, memory follows the bytes.

use std::cell::Cell;

/// Bounds of one rendering, from the call of `render` to its result.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Nodes executed, plus elements that functions walk.
    pub steps: u64,
    /// Bytes of output, plus bytes that functions build on the way.
    pub bytes: u64,
    /// How deep templates, blocks and expressions may nest, all counted together.
    pub depth: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps: 10_000_000, bytes: 256 << 20, depth: 400 }
    }
}

/// A bound was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LimitError {
    /// The rendering takes too many steps.
    #[error("the template takes more than {0} steps; simplify it or raise the limit")]
    Steps(u64),
    /// The output is too long.
    #[error("the template builds more than {0} bytes; simplify it or raise the limit")]
    Bytes(u64),
    /// Nested too deep.
    #[error("templates, blocks and expressions nest deeper than {0} levels; is a template including itself?")]
    Depth(u32),
    /// A value nests too deep to be walked.
    #[error("a value nests deeper than {MAX_VALUE_DEPTH} levels")]
    ValueDepth,
}

/// How deep a value may nest for a function that walks it.
pub(crate) const MAX_VALUE_DEPTH: u32 = 200;

/// What is left of the limits of one rendering.
#[derive(Debug)]
pub struct Budget {
    limits: Limits,
    steps: Cell<u64>,
    bytes: Cell<u64>,
    depth: Cell<u32>,
}

impl Budget {
    /// A full budget.
    pub fn new(limits: Limits) -> Self {
        Self { limits, steps: Cell::new(limits.steps), bytes: Cell::new(limits.bytes), depth: Cell::new(0) }
    }

    /// Accounts for work on this many elements. Functions call it before they start.
    pub fn charge_steps(&self, steps: u64) -> Result<(), LimitError> {
        let left = self.steps.get().checked_sub(steps).ok_or(LimitError::Steps(self.limits.steps))?;
        self.steps.set(left);
        Ok(())
    }

    /// Accounts for this many bytes. Functions call it before they allocate them.
    pub fn charge_bytes(&self, bytes: usize) -> Result<(), LimitError> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let left = self.bytes.get().checked_sub(bytes).ok_or(LimitError::Bytes(self.limits.bytes))?;
        self.bytes.set(left);
        Ok(())
    }

    pub(crate) fn enter(&self) -> Result<(), LimitError> {
        let depth = self.depth.get() + 1;
        if depth > self.limits.depth {
            return Err(LimitError::Depth(self.limits.depth));
        }
        self.depth.set(depth);
        self.charge_steps(1)
    }

    /// Starts another rendering on the same budget.
    pub(crate) fn reset_depth(&self) {
        self.depth.set(0);
    }

    pub(crate) fn leave(&self) {
        self.depth.set(self.depth.get().saturating_sub(1));
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}
