//! What a query sees of the world.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::Arc;

use crate::simple::{self, State};
use crate::subject::{Memo, Name, Named};
use crate::{Input, Query, QueryError, ReadKind, Subject};

/// A query's only window on the world; every answer it gives is recorded as a read of the query that asked.
pub struct Ctx<'a> {
    pub(crate) state: &'a RefCell<State>,
    pub(crate) frame: &'a Frame<'a>,
}

impl Ctx<'_> {
    /// The value of an input, or `None` where it is not set; both are recorded.
    pub fn read<I: Input>(&self, key: &I::Key) -> Option<Arc<I::Value>> {
        let value = self.state.borrow().value::<I>(key);
        let kind = if value.is_some() { ReadKind::Value } else { ReadKind::Absent };
        self.frame.record(simple::input_subject::<I>(key), kind);
        value
    }

    /// The keys of the inputs in a bucket, sorted; a change to a member's value alone does not touch the reader.
    pub fn members<I: Input>(&self, index: &I::Index) -> Arc<[I::Key]> {
        self.frame.record(simple::bucket_subject::<I>(index), ReadKind::Members);
        self.state.borrow().members::<I>(index)
    }

    /// All keys of an input family, sorted.
    pub fn keys<I: Input>(&self) -> Arc<[I::Key]> {
        self.frame.record(simple::keys_subject::<I>(), ReadKind::Members);
        self.state.borrow().keys::<I>()
    }

    /// The value of another query; if that has none, the asking query ends here with the same error.
    pub fn get<Q: Query>(&self, key: &Q::Key) -> Arc<Q::Value> {
        self.try_get::<Q>(key).unwrap_or_else(|error| resume_unwind(Box::new(Aborted(error))))
    }

    /// The value of another query or why it has none, for a caller that can do without it.
    ///
    /// A query that is itself part of a cycle never sees that cycle's error: it ends with it.
    pub fn try_get<Q: Query>(&self, key: &Q::Key) -> Result<Arc<Q::Value>, QueryError> {
        let subject = Subject(Arc::new(Name::<Memo<Q>>(key.clone())));
        self.frame.record(subject, ReadKind::Query);
        let outcome = simple::evaluate::<Q>(self.state, key, Some(self.frame));
        if let Err(error @ QueryError::Cycle { path }) = &outcome
            && path.contains(&self.frame.subject.to_string())
        {
            resume_unwind(Box::new(Aborted(error.clone())));
        }
        outcome
    }
}

/// Unwinding payload of a query that ends because one it needed has no value.
pub(crate) struct Aborted(pub(crate) QueryError);

/// One running query.
pub(crate) struct Frame<'a> {
    pub(crate) subject: Subject,
    parent: Option<&'a Frame<'a>>,
    pub(crate) reads: RefCell<Vec<(Subject, ReadKind)>>,
}

impl<'a> Frame<'a> {
    pub(crate) fn new(subject: Subject, parent: Option<&'a Frame<'a>>) -> Self {
        Self { subject, parent, reads: RefCell::default() }
    }

    fn record(&self, subject: Subject, kind: ReadKind) {
        let mut reads = self.reads.borrow_mut();
        if !reads.iter().any(|(known, _)| known.0.same(subject.0.as_ref())) {
            reads.push((subject, kind));
        }
    }

    /// The cycle that reading `name` from here would close.
    pub(crate) fn path_from(&self, name: &dyn Named) -> Option<Vec<String>> {
        let mut path = Vec::new();
        let mut frame = Some(self);
        while let Some(current) = frame {
            path.push(current.subject.to_string());
            if current.subject.0.same(name) {
                path.reverse();
                let smallest = (0..path.len()).min_by_key(|&at| &path[at])?;
                path.rotate_left(smallest);
                return Some(path);
            }
            frame = current.parent;
        }
        None
    }
}
