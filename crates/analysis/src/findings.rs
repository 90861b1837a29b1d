//! The messages that analyzers report.

use std::sync::Arc;

use crate::message::{Message, MessageType, Parameter};
use crate::world::{Origin, Resource};

/// Collects the messages of an analyzer.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) messages: Vec<Message>,
}

impl Findings {
    /// Reports a message about an object.
    pub(crate) fn add(
        &mut self,
        kind: &MessageType,
        resource: &Resource,
        parameters: &[Parameter],
    ) -> &mut Message {
        self.add_about(kind, resource.origin.clone(), parameters)
    }

    /// Reports a message about a field of an object, with the field's line if it has one.
    pub(crate) fn add_at(
        &mut self,
        kind: &MessageType,
        resource: &Resource,
        path: &[&str],
        parameters: &[Parameter],
    ) {
        self.add(kind, resource, parameters).line = resource.line_of(path);
    }

    /// Reports a message about something that is no object.
    pub(crate) fn add_about(
        &mut self,
        kind: &MessageType,
        origin: Arc<Origin>,
        parameters: &[Parameter],
    ) -> &mut Message {
        let at = self.messages.len();
        self.messages.push(Message {
            code: kind.code,
            level: kind.level,
            origin: Some(origin),
            line: None,
            text: kind.text(parameters),
            remedy: None,
        });
        &mut self.messages[at]
    }
}
