//! Which pushes follow a change.
//!
//! Istio sends whole types again in many cases. What is sent less here has to be what the proxy has already: the world is
//! computed anew from its objects, and everything a proxy holds has to be equal to that.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use canopus_base::tree::Node;
use canopus_xds::client::Update;

use super::live::{Delivered, Following, Live};
use super::scenario::{Scenario, Type, list, names};
use super::world::Generated;
use super::{Less, Sequence};
use crate::compare::{ABSENT, Difference};

/// Plays a scenario and compares what each proxy is sent after each step.
pub(super) async fn run(scenario: Scenario, written: &Node) -> anyhow::Result<Sequence> {
    let mut live = Live::start(scenario).await?;
    let mut proxies = BTreeMap::new();
    for recorded in &live.scenario.proxies {
        let mut following = Following::connect(&live, recorded).await?;
        following.settle().await.with_context(|| recorded.name.clone())?;
        proxies.insert(recorded.name.clone(), following);
    }
    let mut outcome = Sequence::default();
    initial(written, &proxies, &mut outcome.differences);
    for (number, step) in list(written, "steps").enumerate() {
        let place = format!("/steps/{number}");
        live.apply(step.get("change").context("a step without a change")?).with_context(|| place.clone())?;
        for (name, following) in &mut proxies {
            let Delivered { pushed: unasked, answered } =
                following.settle().await.with_context(|| name.clone())?;
            let place = format!("{place}/{name}");
            let expected = step.pointer(&format!("/pushes/{name}"));
            let heard = [unasked.as_slice(), &answered].concat();
            outcome.less |= pushed(expected, &heard, &place, &mut outcome.differences);
            let order = step.pointer(&format!("/order/{name}")).map(Node::as_list);
            if let Some(order) = order.flatten() {
                in_order(order, &unasked, &place, &mut outcome.differences);
            }
        }
        current(&live, &proxies, &place, &mut outcome.differences)?;
    }
    Ok(outcome)
}

/// The names each proxy holds before the first step.
fn initial(written: &Node, proxies: &BTreeMap<String, Following>, found: &mut Vec<Difference>) {
    for (name, following) in proxies {
        let Some(expected) = written.pointer(&format!("/initial/{name}")) else { continue };
        for kind in Type::all() {
            let expected: BTreeSet<String> = names(expected, &kind.to_string()).into_iter().collect();
            let held = following.follower.held(&kind.url()).map(|(name, _)| name.to_owned()).collect();
            compare(&expected, &held, &format!("/initial/{name}/{kind}"), found);
        }
    }
}

fn compare(expected: &BTreeSet<String>, got: &BTreeSet<String>, place: &str, found: &mut Vec<Difference>) {
    let missing = expected.difference(got);
    found.extend(missing.map(|name| Difference::new(format!("{place}/{name}"), "the resource", ABSENT)));
    let additional = got.difference(expected);
    found.extend(additional.map(|name| Difference::new(format!("{place}/{name}"), ABSENT, "the resource")));
}

/// What one proxy was sent in one step; says whether it is less than was recorded.
fn pushed(expected: Option<&Node>, heard: &[Update], place: &str, found: &mut Vec<Difference>) -> Less {
    let mut less = Less::No;
    for kind in Type::all() {
        let of_type: Vec<&Update> = heard.iter().filter(|update| update.type_url == kind.url()).collect();
        let expected = expected.and_then(|expected| expected.get(&kind.to_string()));
        let place = format!("{place}/{kind}");
        let Some(expected) = expected else {
            if !of_type.is_empty() {
                let sent: Vec<_> = of_type.iter().flat_map(|update| update.names()).collect();
                found.push(Difference::new(place, "no message", format!("{sent:?}")));
            }
            continue;
        };
        let resources = of_type.iter().flat_map(|update| update.resources.iter());
        let updated: BTreeSet<String> = resources.map(|resource| resource.name.clone()).collect();
        let removed: BTreeSet<String> = of_type.iter().flat_map(|update| update.removed.clone()).collect();
        let recorded: BTreeSet<String> = names(expected, "updated").into_iter().collect();
        for name in updated.difference(&recorded) {
            found.push(Difference::new(format!("{place}/updated/{name}"), ABSENT, "the resource"));
        }
        let recorded_removals = names(expected, "removed").into_iter().collect();
        compare(&recorded_removals, &removed, &format!("{place}/removed"), found);
        if of_type.is_empty() || updated.len() < recorded.len() {
            less = Less::Yes;
        }
    }
    less
}

/// The types a proxy was sent came in the recorded order.
fn in_order(order: &[Node], heard: &[Update], place: &str, found: &mut Vec<Difference>) {
    let recorded: Vec<&str> = order.iter().filter_map(Node::as_str).collect();
    let mut sent: Vec<String> = Vec::new();
    for update in heard {
        let kind = Type::from_url(&update.type_url).map(|kind| kind.to_string());
        if let Some(kind) = kind.filter(|kind| !sent.contains(kind)) {
            sent.push(kind);
        }
    }
    let expected: Vec<&str> =
        recorded.iter().copied().filter(|kind| sent.iter().any(|sent| sent == kind)).collect();
    if expected != sent {
        found.push(Difference::new(format!("{place}/order"), format!("{expected:?}"), format!("{sent:?}")));
    }
}

/// Everything the proxies hold is what the world, computed anew, has for them.
fn current(
    live: &Live,
    proxies: &BTreeMap<String, Following>,
    place: &str,
    found: &mut Vec<Difference>,
) -> anyhow::Result<()> {
    let generated = Generated::generate(&live.scenario)?;
    for recorded in &live.scenario.proxies {
        let following = &proxies[&recorded.name];
        for kind in &recorded.recorded {
            let place = format!("{place}/{}/held/{kind}", recorded.name);
            let held: BTreeMap<&str, _> = following.follower.held(&kind.url()).collect();
            let resources = generated.resources(&recorded.name, *kind)?;
            let wanted: BTreeSet<String> =
                resources.iter().map(|resource| resource.name.to_string()).collect();
            let holds: BTreeSet<String> = held.keys().map(|name| (*name).to_owned()).collect();
            // Parity: a proxy keeps a secret or an extension that is gone until nothing refers to it.
            if !matches!(kind, Type::Sds | Type::Ecds) {
                compare(&wanted, &holds, &place, found);
            }
            for resource in resources {
                let same = held.get(&*resource.name).is_none_or(|held| held.body.value == resource.body);
                if !same {
                    let place = format!("{place}/{}", resource.name);
                    found.push(Difference::new(place, "the current resource", "an old one"));
                }
            }
        }
    }
    Ok(())
}
