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

/// Print what changes of each object have cost since the control plane started: pushes, proxies, messages and bytes.
///
/// A push of several objects counts for each of them: nobody can say which of them a message is for.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus cost --limit 10
  canopus cost --daemon http://localhost:8080 -o json

Exit codes: 0 printed, 1 the control plane does not answer, 64 the command line makes no sense.")]
pub(crate) struct CostArguments {
    /// How many objects are printed, the costliest first.
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
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
            push["woken"].as_u64().unwrap_or_default().to_string(),
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
        let answers = plane.ask_each("/debug/costs", &[])?;
        let mut answer = total(answers.iter().map(|(_, answer)| answer));
        if let Some(objects) = answer["objects"].as_array_mut() {
            objects.truncate(arguments.limit);
        }
        Ok(answer)
    });
    finish(asked, arguments.output, |answer| {
        let mut rows = vec![row(["OBJECT", "PUSHES", "PROXIES", "MESSAGES", "BYTES"])];
        for one in answer["objects"].as_array().into_iter().flatten() {
            let object = one["object"].as_str().unwrap_or_default().to_owned();
            let numbers = COSTS.iter().map(|key| one[*key].to_string());
            rows.push(std::iter::once(object).chain(numbers).collect());
        }
        aligned(&rows, 3)
    })
}

/// What is added up, in the order of the columns.
const COSTS: [&str; 4] = ["pushes", "recipients", "messages", "bytes"];

/// What changes have cost at all control planes, the costliest first. All of them see a change, so its pushes are not added up.
fn total<'a>(answers: impl Iterator<Item = &'a Value>) -> Value {
    let mut totals: BTreeMap<(String, String), [u64; 4]> = BTreeMap::new();
    for one in answers.flat_map(|answer| answer["objects"].as_array().into_iter().flatten()) {
        let word = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
        let total = totals.entry((word("object"), word("cluster"))).or_default();
        for (index, key) in COSTS.iter().enumerate() {
            let number = one[*key].as_u64().unwrap_or_default();
            total[index] = if index == 0 { total[index].max(number) } else { total[index] + number };
        }
    }
    let mut totals: Vec<_> = totals.into_iter().collect();
    totals.sort_by_key(|(_, total)| std::cmp::Reverse((total[3], total[0])));
    let objects = totals.into_iter().map(|((object, cluster), total)| {
        let mut one = json!({"object": object, "cluster": cluster});
        COSTS.iter().zip(total).for_each(|(key, number)| one[*key] = json!(number));
        one
    });
    json!({"objects": objects.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_two_control_planes_are_added_up() {
        let answer = |bytes: u64| {
            let one = |object: &str, bytes| json!({"object": object, "cluster": "c", "pushes": 2, "recipients": 3, "messages": 4, "bytes": bytes});
            json!({"objects": [one("Service/a/b", 1), one("VirtualService/a/b", bytes)]})
        };
        let total = total([answer(10), answer(20)].iter());
        assert_eq!(
            total["objects"][0],
            json!({"object": "VirtualService/a/b", "cluster": "c", "pushes": 2, "recipients": 6, "messages": 8, "bytes": 30})
        );
    }

    #[test]
    fn pushes_are_printed_with_cause_size_and_state() {
        let answer = json!({"pushes": [{
            "revision": 7, "applied": "12:00:00", "objects": ["VirtualService/shop/cart"], "pending": 0,
            "rejected": 1, "types": {"cds": {"bytes": 10, "messages": 1}, "rds": {"bytes": 5, "messages": 1}},
            "woken": 1,
            "recipients": [{"connection": "cart-1.shop-3"}],
        }]});
        let printed = text(&answer);
        assert!(printed.contains("VirtualService/shop/cart"), "{printed}");
        assert!(printed.contains("15") && printed.contains("1 rejected"), "{printed}");
        assert!(reached(&answer["pushes"][0], "cart-1.shop"));
        assert!(!reached(&answer["pushes"][0], "cart-2.shop"));
    }
}
