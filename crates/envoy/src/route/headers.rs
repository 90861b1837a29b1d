//! Headers that are set, added and removed.

use std::collections::BTreeMap;

use canopus_proto::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use canopus_proto::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
use canopus_proto::envoy::config::route::v3::Route;
use canopus_proto::fields::route;
use canopus_proto::istio::networking::v1alpha3::Headers;
use canopus_proto::istio::networking::v1alpha3::headers::HeaderOperations;
use canopus_proto::wire::ProtoWriter;

/// What is done to the headers of requests and responses.
#[derive(Default)]
pub(super) struct Operations {
    pub(super) request_add: Vec<HeaderValueOption>,
    pub(super) request_remove: Vec<String>,
    pub(super) response_add: Vec<HeaderValueOption>,
    pub(super) response_remove: Vec<String>,
    /// The host to ask for instead, if one is set.
    pub(super) authority: Option<String>,
}

impl Operations {
    pub(super) fn new(headers: Option<&Headers>) -> Self {
        let Some(headers) = headers else { return Self::default() };
        let none = HeaderOperations::default();
        let request = headers.request.as_ref().unwrap_or(&none);
        let response = headers.response.as_ref().unwrap_or(&none);
        Self {
            request_add: additions(request),
            request_remove: removals(request),
            response_add: additions(response),
            response_remove: removals(response),
            authority: authority(&request.set).or_else(|| authority(&request.add)),
        }
    }

    /// Does what another says after this.
    pub(super) fn extend(&mut self, other: Self) {
        self.request_add.extend(other.request_add);
        self.request_remove.extend(other.request_remove);
        self.response_add.extend(other.response_add);
        self.response_remove.extend(other.response_remove);
    }

    /// Writes the fields of a route that say so.
    pub(super) fn write(&self, fields: &mut ProtoWriter<Route>) {
        self.request_add.iter().for_each(|header| fields.message(route::REQUEST_HEADERS_TO_ADD, header));
        self.response_add.iter().for_each(|header| fields.message(route::RESPONSE_HEADERS_TO_ADD, header));
        let mut remove = |field, names: &[String]| {
            names.iter().for_each(|name| fields.string(field, name));
        };
        remove(route::RESPONSE_HEADERS_TO_REMOVE, &self.response_remove);
        remove(route::REQUEST_HEADERS_TO_REMOVE, &self.request_remove);
    }
}

fn additions(operations: &HeaderOperations) -> Vec<HeaderValueOption> {
    let set = values(&operations.set, HeaderAppendAction::OverwriteIfExistsOrAdd);
    set.chain(values(&operations.add, HeaderAppendAction::AppendIfExistsOrAdd)).collect()
}

fn values(
    headers: &BTreeMap<String, String>,
    action: HeaderAppendAction,
) -> impl Iterator<Item = HeaderValueOption> {
    headers.iter().filter(|(key, _)| !is_internal(key)).map(move |(key, value)| HeaderValueOption {
        header: Some(HeaderValue { key: key.clone(), value: value.clone(), ..Default::default() }),
        append_action: action as i32,
        ..Default::default()
    })
}

fn removals(operations: &HeaderOperations) -> Vec<String> {
    operations.remove.iter().filter(|key| !is_internal(key)).cloned().collect()
}

/// Envoy does not let these be changed as headers.
fn is_internal(key: &str) -> bool {
    key.starts_with(':') || key.eq_ignore_ascii_case("host")
}

fn authority(headers: &BTreeMap<String, String>) -> Option<String> {
    let is_authority = |key: &str| key.eq_ignore_ascii_case(":authority") || key.eq_ignore_ascii_case("host");
    let mut named = headers.iter().filter(|(key, value)| is_authority(key) && !value.is_empty());
    named.next_back().map(|(_, value)| value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_written_as_the_message_they_stand_for() {
        let add = |key: &str| HeaderValueOption {
            header: Some(HeaderValue { key: key.into(), ..Default::default() }),
            ..Default::default()
        };
        let mut operations = Operations { request_add: vec![add("a")], ..Default::default() };
        operations.extend(Operations {
            request_add: vec![add("b")],
            request_remove: vec!["c".into()],
            response_add: vec![add("d")],
            response_remove: vec!["e".into()],
            authority: None,
        });
        let mut written = ProtoWriter::default();
        operations.write(&mut written);
        let message = Route {
            request_headers_to_add: vec![add("a"), add("b")],
            request_headers_to_remove: vec!["c".into()],
            response_headers_to_add: vec![add("d")],
            response_headers_to_remove: vec!["e".into()],
            ..Default::default()
        };
        assert_eq!(written, ProtoWriter::from_message(&message));
    }

    #[test]
    fn host_is_rewritten_rather_than_set_and_pseudo_headers_stay() {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let request = HeaderOperations {
            set: map(&[("Host", "set.com"), ("b", "1"), ("a", "2")]),
            add: map(&[(":authority", "add.com"), ("c", "3")]),
            remove: vec!["host".into(), "d".into(), ":path".into()],
        };
        let operations = Operations::new(Some(&Headers { request: Some(request), response: None }));
        let added: Vec<_> = operations
            .request_add
            .iter()
            .map(|option| (option.header.as_ref().unwrap().key.as_str(), option.append_action()))
            .collect();
        let (set, append) =
            (HeaderAppendAction::OverwriteIfExistsOrAdd, HeaderAppendAction::AppendIfExistsOrAdd);
        assert_eq!(added, [("a", set), ("b", set), ("c", append)]);
        assert_eq!(operations.request_remove, ["d"]);
        assert_eq!(operations.authority.as_deref(), Some("set.com"));
    }
}
