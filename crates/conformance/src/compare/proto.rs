//! Protobuf messages: both sides are parsed first, so that field order, default values and the spelling of numbers do
//! not count, and what is inside an `Any` does.

use anyhow::Context;
use canopus_base::tree::Node;
use canopus_proto::descriptors::{self, DynamicMessage};
use canopus_proto::json::{self, Unknown};

use super::Difference;
use super::tree::{self, Rules};

/// Reads proto-JSON as the message of that full name; a field the schema does not have is an error.
pub fn read(message: &str, json: &Node) -> anyhow::Result<DynamicMessage> {
    let descriptor = descriptors::message(message).with_context(|| format!("unknown message {message}"))?;
    Ok(json::read_dynamic(&descriptor, json, Unknown::Reject)?.value)
}

/// Where two messages of one type differ, by JSON pointers into their canonical JSON.
pub fn difference(expected: &DynamicMessage, got: &DynamicMessage, rules: &Rules) -> Vec<Difference> {
    tree::difference(&json::write_dynamic(expected), &json::write_dynamic(got), rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    #[track_caller]
    fn differences(message: &str, expected: Json, got: Json) -> Vec<Difference> {
        let parsed = |json: Json| read(message, &json.into()).unwrap();
        difference(&parsed(expected), &parsed(got), &Rules::default())
    }

    #[test]
    fn spelling_does_not_count() {
        let found = differences(
            "envoy.config.cluster.v3.Cluster",
            json!({"name": "a", "connect_timeout": "1s", "lb_policy": "ROUND_ROBIN", "dnsRefreshRate": null}),
            json!({"connectTimeout": "1.000s", "name": "a"}),
        );
        assert_eq!(found, []);
    }

    #[test]
    fn presence_of_a_wrapper_counts() {
        let found = differences(
            "envoy.config.cluster.v3.Cluster",
            json!({"perConnectionBufferLimitBytes": 0}),
            json!({}),
        );
        assert_eq!(found, [Difference::new("/perConnectionBufferLimitBytes", "0", "(absent)")]);
    }

    #[test]
    fn messages_inside_any_are_compared_by_field() {
        let filter = |prefix: &str| {
            json!({"name": "f", "typedConfig": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                "statPrefix": prefix,
            }})
        };
        let found = differences("envoy.config.listener.v3.Filter", filter("a"), filter("b"));
        assert_eq!(found, [Difference::new("/typedConfig/statPrefix", "\"a\"", "\"b\"")]);
    }

    #[test]
    fn unknown_field_or_message_is_an_error() {
        assert!(read("envoy.config.cluster.v3.Cluster", &json!({"nope": 1}).into()).is_err());
        assert!(read("no.such.Message", &json!({}).into()).is_err());
    }
}
