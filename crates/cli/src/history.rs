//! `canopus history` and `canopus cost`: what was pushed, why, to whom, and what it cost.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::cluster::KubeArguments;
use crate::control_plane::ControlPlaneArguments;
use crate::exit;
use crate::format::Output;
use crate::global::Global;
use crate::output::{print, say};
use crate::table::{aligned, row};

/// Print the latest pushes, the newest first: what changed, who was sent what, whether they took it.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus history                                 the latest pushes
  canopus history VirtualService/shop/cart        those that an object caused
  canopus history cart-1.shop --limit 5           those that a proxy was sent

Exit codes: 0 printed, 1 the control plane does not answer, 64 the command line makes no sense.")]
pub(crate) struct Arguments {
    /// An object as `Kind/namespace/name`, or a proxy.
    subject: Option<String>,
    /// How many pushes.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    limit: usize,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    control_plane: ControlPlaneArguments,
}

/// Print what changes of each object have cost: pushes, messages and bytes.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Exit codes: 0 printed, 1 the control plane does not answer, 64 the command line makes no sense.")]
pub(crate) struct CostArguments {
    /// How many of the latest pushes are added up.
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    limit: usize,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    control_plane: ControlPlaneArguments,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    let asked = arguments.control_plane.connect(global, kube).and_then(|plane| {
        let limit = arguments.limit.to_string();
        let mut parameters = vec![("limit", limit.as_str())];
        let object = arguments.subject.as_deref().filter(|subject| subject.contains('/'));
        parameters.extend(object.map(|object| ("object", object)));
        let mut answer = plane.ask_all("/debug/ledger", &parameters)?;
        if let Some(proxy) = arguments.subject.as_deref().filter(|subject| !subject.contains('/'))
            && let Some(pushes) = answer["pushes"].as_array_mut()
        {
            pushes.retain(|push| reached(push, proxy));
        }
        Ok(answer)
    });
    finish(asked, arguments.output, text)
}

fn finish(asked: anyhow::Result<Value>, output: Output, text: fn(&Value) -> String) -> ExitCode {
    match asked {
        Ok(answer) => print(&output.render(&answer, text), ExitCode::SUCCESS),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

/// Whether a push went to a proxy. Connections are called after their proxies, with a number behind.
fn reached(push: &Value, proxy: &str) -> bool {
    let recipients = push["recipients"].as_array().into_iter().flatten();
    recipients.filter_map(|one| one["connection"].as_str()).any(|connection| connection.contains(proxy))
}

fn pushes(answer: &Value) -> &[Value] {
    answer["pushes"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn list(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The bytes and messages of a push.
fn size(push: &Value) -> (u64, u64) {
    let types = push["types"].as_object().into_iter().flat_map(|types| types.values());
    types.fold((0, 0), |(bytes, messages), total| {
        (bytes + total["bytes"].as_u64().unwrap_or(0), messages + total["messages"].as_u64().unwrap_or(0))
    })
}

fn text(answer: &Value) -> String {
    let mut rows = vec![row(["REVISION", "APPLIED", "CAUSE", "PROXIES", "BYTES", "STATE"])];
    for push in pushes(answer) {
        let objects = list(&push["objects"]);
        let cause = match objects.as_slice() {
            [] => push["reasons"].as_object().map(|all| all.keys().cloned().collect::<Vec<_>>().join(",")),
            [only] => Some((*only).to_owned()),
            [first, rest @ ..] => Some(format!("{first} and {} more", rest.len())),
        };
        let (pending, rejected) = (count(&push["pending"]), count(&push["rejected"]));
        let state = match (pending, rejected) {
            (0, 0) => "acknowledged".to_owned(),
            (pending, 0) => format!("{pending} pending"),
            (pending, rejected) => format!("{rejected} rejected, {pending} pending"),
        };
        rows.push(vec![
            push["revision"].to_string(),
            push["applied"].as_str().unwrap_or_default().to_owned(),
            cause.unwrap_or_default(),
            push["recipients"].as_array().map_or(0, Vec::len).to_string(),
            size(push).0.to_string(),
            state,
        ]);
    }
    aligned(&rows, 3)
}

/// A number, or how many there are.
fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| value.as_array().map_or(0, |all| all.len() as u64))
}

pub(crate) fn cost(global: &Global, kube: &KubeArguments, arguments: &CostArguments) -> ExitCode {
    let asked = arguments.control_plane.connect(global, kube).and_then(|plane| {
        let limit = arguments.limit.to_string();
        let answer = plane.ask_all("/debug/ledger", &[("limit", limit.as_str())])?;
        let mut totals: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
        for push in pushes(&answer) {
            let (bytes, messages) = size(push);
            // A push of several objects counts for each: nobody can say which of them a message is for.
            for object in list(&push["objects"]) {
                let total = totals.entry(object).or_default();
                *total = (total.0 + 1, total.1 + messages, total.2 + bytes);
            }
        }
        let mut totals: Vec<_> = totals.into_iter().collect();
        totals.sort_by_key(|(_, (_, _, bytes))| std::cmp::Reverse(*bytes));
        let objects = totals.iter().map(|(object, (pushes, messages, bytes))| {
            json!({"object": object, "pushes": pushes, "messages": messages, "bytes": bytes})
        });
        Ok(json!({"objects": objects.collect::<Vec<_>>()}))
    });
    finish(asked, arguments.output, |answer| {
        let mut rows = vec![row(["OBJECT", "PUSHES", "MESSAGES", "BYTES"])];
        for one in answer["objects"].as_array().into_iter().flatten() {
            rows.push(vec![
                one["object"].as_str().unwrap_or_default().to_owned(),
                one["pushes"].to_string(),
                one["messages"].to_string(),
                one["bytes"].to_string(),
            ]);
        }
        aligned(&rows, 3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_are_printed_with_cause_size_and_state() {
        let answer = json!({"pushes": [{
            "revision": 7, "applied": "12:00:00", "objects": ["VirtualService/shop/cart"], "pending": 0,
            "rejected": 1, "types": {"cds": {"bytes": 10, "messages": 1}, "rds": {"bytes": 5, "messages": 1}},
            "recipients": [{"connection": "cart-1.shop-3"}],
        }]});
        let printed = text(&answer);
        assert!(printed.contains("VirtualService/shop/cart"), "{printed}");
        assert!(printed.contains("15") && printed.contains("1 rejected"), "{printed}");
        assert!(reached(&answer["pushes"][0], "cart-1.shop"));
        assert!(!reached(&answer["pushes"][0], "cart-2.shop"));
    }
}
