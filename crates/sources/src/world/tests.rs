use canopus_api::istio::ServiceEntry;
use canopus_api::kube::ConfigMap;
use canopus_api::{Kind, Typed as _};
use proptest::prelude::*;

use super::*;

use crate::status::Severity;

fn source(name: &str, rank: u16) -> Arc<SourceInfo> {
    Arc::new(SourceInfo::new(name, "east", rank))
}

fn entry(name: &str, host: &str) -> Object {
    let mut entry = ServiceEntry::new("a", name, Default::default());
    entry.spec.hosts.push(host.to_owned());
    entry.into()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::ServiceEntry, "a", name)
}

fn take(world: &mut World, source: &Arc<SourceInfo>, events: Vec<Change>) -> Update {
    let mut update = Update::default();
    world.take(Batch { source: Arc::clone(source), events }, &mut update);
    update
}

fn changed(update: &Update) -> Vec<(String, Option<String>)> {
    let host =
        |object: &Object| ServiceEntry::downcast(object).and_then(|entry| entry.spec.hosts.first().cloned());
    let change = |((_, key), object): (&(Arc<str>, ObjectKey), &Option<Object>)| {
        (key.name.to_string(), object.as_ref().and_then(host))
    };
    update.changes.iter().map(change).collect()
}

fn gone(name: &str) -> (String, Option<String>) {
    (name.to_owned(), None)
}

fn there(name: &str, host: &str) -> (String, Option<String>) {
    (name.to_owned(), Some(host.to_owned()))
}

#[test]
fn lower_rank_counts_and_the_other_comes_back_when_it_goes() {
    let (first, second) = (source("files:mesh", 0), source("kubernetes:east", 1));
    let mut world = World::default();
    let update = take(&mut world, &second, vec![Change::Set(entry("one", "second"))]);
    assert_eq!(changed(&update), [there("one", "second")]);

    let update = take(&mut world, &first, vec![Change::Set(entry("one", "first"))]);
    assert_eq!(changed(&update), [there("one", "first")]);
    assert_eq!(update.notices.len(), 1);
    assert_eq!(update.notices[0].severity, Severity::Warning);
    assert_eq!(&*update.notices[0].source, "kubernetes:east");
    assert_eq!(update.notices[0].text, "ServiceEntry a/one is also in files:mesh, which counts");
    let told = |world: &World| world.status().iter().map(|status| status.problems.len()).sum::<usize>();
    assert_eq!(told(&world), 1);

    // What waits behind may change: nothing that counts does.
    let update = take(&mut world, &second, vec![Change::Set(entry("one", "changed"))]);
    assert_eq!((changed(&update), update.notices.len()), (vec![], 0));

    let update = take(&mut world, &first, vec![Change::Remove(key("one"))]);
    assert_eq!(changed(&update), [there("one", "changed")]);
    assert_eq!(told(&world), 0);
    assert_eq!(changed(&take(&mut world, &second, vec![Change::Remove(key("one"))])), [gone("one")]);
}

#[test]
fn age_of_an_object_does_not_decide_which_counts() {
    let (first, second) = (source("a", 0), source("b", 1));
    let dated = |host: &str, created: &str| {
        let mut object = ServiceEntry::downcast(&entry("one", host)).unwrap().as_ref().clone();
        object.meta.creation_timestamp = Some(created.parse().unwrap());
        Object::from(object)
    };
    let mut world = World::default();
    take(&mut world, &second, vec![Change::Set(dated("old", "1970-01-01T00:00:00Z"))]);
    let update = take(&mut world, &first, vec![Change::Set(dated("future", "9999-01-01T00:00:00Z"))]);
    assert_eq!(changed(&update), [there("one", "future")]);
}

#[test]
fn equal_ranks_are_told_apart_by_name() {
    let (a, b) = (source("a", 0), source("b", 0));
    let mut world = World::default();
    take(&mut world, &b, vec![Change::Set(entry("one", "of b"))]);
    take(&mut world, &a, vec![Change::Set(entry("one", "of a"))]);
    let one = world.get("east", &key("one")).unwrap();
    assert_eq!(ServiceEntry::downcast(one).unwrap().spec.hosts, ["of a"]);
}

#[test]
fn clusters_do_not_stand_in_each_others_way() {
    let west = Arc::new(SourceInfo::new("kubernetes:west", "west", 0));
    let mut world = World::default();
    take(&mut world, &source("kubernetes:east", 0), vec![Change::Set(entry("one", "east"))]);
    let update = take(&mut world, &west, vec![Change::Set(entry("one", "west"))]);
    assert_eq!((changed(&update), update.notices.len()), (vec![there("one", "west")], 0));
}

#[test]
fn listing_takes_away_what_it_does_not_name() {
    let kubernetes = source("kubernetes:east", 0);
    let mut world = World::default();
    let map = Object::from(ConfigMap::new("a", "map", Default::default()));
    let before = vec![
        Change::Set(entry("gone", "x")),
        Change::Set(entry("same", "x")),
        Change::Set(entry("unreadable", "x")),
        Change::Set(map),
    ];
    take(&mut world, &kubernetes, before);
    let part = SourcePart::Kind(Kind::ServiceEntry);
    let update = take(&mut world, &kubernetes, vec![Change::Begin(part), Change::Set(entry("same", "x"))]);
    assert_eq!(changed(&update), [], "an unfinished listing takes nothing away");
    let rest = vec![Change::Keep(key("unreadable")), Change::Set(entry("new", "x")), Change::End(part)];
    let update = take(&mut world, &kubernetes, rest);
    assert_eq!(changed(&update), [gone("gone"), there("new", "x")]);
    assert!(world.get("east", &ObjectKey::new(Kind::ConfigMap, "a", "map")).is_some());
}

#[test]
fn listing_that_begins_again_starts_over() {
    let kubernetes = source("kubernetes:east", 0);
    let part = SourcePart::Kind(Kind::ServiceEntry);
    let mut world = World::default();
    take(&mut world, &kubernetes, vec![Change::Begin(part), Change::Set(entry("one", "x"))]);
    let update = take(&mut world, &kubernetes, vec![Change::Begin(part), Change::End(part)]);
    assert_eq!(changed(&update), [gone("one")]);
    assert_eq!(changed(&take(&mut world, &kubernetes, vec![Change::End(part)])), []);
}

#[test]
fn version_alone_changes_nothing() {
    let kubernetes = source("kubernetes:east", 0);
    let versioned = |version: &str| {
        let mut object = ServiceEntry::downcast(&entry("one", "x")).unwrap().as_ref().clone();
        object.meta.resource_version = version.into();
        Object::from(object)
    };
    let mut world = World::default();
    take(&mut world, &kubernetes, vec![Change::Set(versioned("1"))]);
    assert_eq!(take(&mut world, &kubernetes, vec![Change::Set(versioned("2"))]), Update::default());
}

#[test]
fn lost_source_is_stale_and_keeps_everything() {
    let kubernetes = source("kubernetes:east", 0);
    let mut world = World::default();
    world.add(Arc::clone(&kubernetes));
    assert!(!world.is_whole());
    let lost = || vec![Change::Lost(SourcePart::Whole, "connection refused".to_owned())];
    take(&mut world, &kubernetes, lost());
    assert!(!world.is_whole(), "nothing is known yet, and nothing is not an empty world");

    take(
        &mut world,
        &kubernetes,
        vec![
            Change::Begin(SourcePart::Whole),
            Change::Set(entry("one", "x")),
            Change::End(SourcePart::Whole),
        ],
    );
    assert!(world.is_whole() && world.status()[0].is_live());
    let update = take(&mut world, &kubernetes, lost());
    assert_eq!((changed(&update), update.notices.len()), (vec![], 1));
    assert!(world.is_whole() && !world.status()[0].is_live());
    assert_eq!(take(&mut world, &kubernetes, lost()), Update::default(), "told once");

    let update = take(&mut world, &kubernetes, vec![Change::Live(SourcePart::Whole)]);
    assert_eq!(update.notices[0].text, "all objects: up to date again");
}

#[test]
fn restored_objects_serve_until_their_source_was_listed() {
    let kubernetes = source("kubernetes:east", 0);
    let part = SourcePart::Kind(Kind::ServiceEntry);
    let mut world = World::default();
    world.add(Arc::clone(&kubernetes));
    let mut update = Update::default();
    let objects = vec![entry("gone", "x"), entry("same", "x")];
    let kinds = Some([Kind::ServiceEntry].into());
    world.restore(&kubernetes, Saved { objects, kinds, unreadable: Vec::new() }, &mut update);
    assert_eq!(changed(&update), [there("gone", "x"), there("same", "x")]);
    assert!(world.is_whole());

    take(&mut world, &kubernetes, vec![Change::Expect(part), Change::Lost(part, "no route".to_owned())]);
    assert!(world.is_whole(), "what was restored is served while the source is away");
    let listing = vec![Change::Begin(part), Change::Set(entry("same", "x")), Change::End(part)];
    assert_eq!(changed(&take(&mut world, &kubernetes, listing)), [gone("gone")]);
}

#[test]
fn kind_that_no_snapshot_had_is_waited_for() {
    let kubernetes = source("kubernetes:east", 0);
    let mut world = World::default();
    let saved = Saved { kinds: Some([Kind::ServiceEntry].into()), ..Saved::default() };
    world.restore(&kubernetes, saved, &mut Update::default());
    assert!(world.is_whole());
    let (old, new) = (SourcePart::Kind(Kind::ServiceEntry), SourcePart::Kind(Kind::VirtualService));
    take(&mut world, &kubernetes, vec![Change::Expect(old)]);
    assert!(world.is_whole());
    take(&mut world, &kubernetes, vec![Change::Expect(new)]);
    assert!(!world.is_whole(), "nothing is known of it");
    take(&mut world, &kubernetes, vec![Change::Begin(new), Change::End(new)]);
    assert!(world.is_whole());
}

#[test]
fn absent_kind_holds_nothing_up_and_takes_nothing_away() {
    let kubernetes = source("kubernetes:east", 0);
    let part = SourcePart::Kind(Kind::ServiceEntry);
    let absent = || Change::Absent(part, "not found".to_owned());
    let mut world = World::default();
    take(&mut world, &kubernetes, vec![Change::Expect(part), Change::Live(SourcePart::Whole)]);
    assert!(!world.is_whole());
    take(&mut world, &kubernetes, vec![absent()]);
    assert!(world.is_whole() && world.status()[0].is_live());

    let listing = vec![Change::Begin(part), Change::Set(entry("one", "x")), Change::End(part)];
    take(&mut world, &kubernetes, listing);
    assert_eq!(changed(&take(&mut world, &kubernetes, vec![absent()])), []);
    assert!(world.is_whole() && !world.status()[0].is_live());
}

#[test]
fn withdrawn_kind_and_deselected_namespace_take_their_objects_along() {
    let kubernetes = source("kubernetes:east", 0);
    let other = Object::from(ServiceEntry::new("b", "two", Default::default()));
    let map = Object::from(ConfigMap::new("a", "map", Default::default()));
    let mut world = World::default();
    let objects = vec![Change::Set(entry("one", "x")), Change::Set(other), Change::Set(map)];
    take(&mut world, &kubernetes, objects);
    assert_eq!(
        changed(&take(&mut world, &kubernetes, vec![Change::Deselect("a".into())])),
        [gone("one"), gone("map")]
    );
    let update = take(&mut world, &kubernetes, vec![Change::Withdraw(Kind::ServiceEntry)]);
    assert_eq!(changed(&update), [gone("two")]);
}

#[test]
fn forgotten_source_leaves_the_field_to_the_next() {
    let (first, second) = (source("a", 0), source("b", 1));
    let mut world = World::default();
    take(&mut world, &first, vec![Change::Set(entry("one", "first")), Change::Set(entry("two", "first"))]);
    take(&mut world, &second, vec![Change::Set(entry("one", "second"))]);
    let mut update = Update::default();
    world.forget("a", &mut update);
    assert_eq!(changed(&update), [there("one", "second"), gone("two")]);
    assert_eq!(world.status().len(), 1);
}

#[test]
fn problems_are_told_once_and_end_with_the_object_or_its_repair() {
    let files = source("files:mesh", 0);
    let complain = || vec![Change::Problems(ProblemScope::Object(key("one")), vec!["is odd".to_owned()])];
    let mut world = World::default();
    take(&mut world, &files, vec![Change::Set(entry("one", "x"))]);
    assert_eq!(take(&mut world, &files, complain()).notices.len(), 1);
    assert_eq!(take(&mut world, &files, complain()), Update::default());
    assert_eq!(world.status()[0].problems, ["is odd"]);
    take(&mut world, &files, vec![Change::Set(entry("one", "y"))]);
    assert_eq!(world.status()[0].problems, [""; 0]);
    take(&mut world, &files, complain());
    take(&mut world, &files, vec![Change::Remove(key("one"))]);
    assert_eq!(world.status()[0].problems, [""; 0]);
}

#[test]
fn flood_of_problems_is_bounded() {
    let files = source("files:mesh", 0);
    let mut world = World::default();
    for number in 0..MAX_PROBLEMS + 100 {
        let place = ProblemScope::Object(key(&number.to_string()));
        take(&mut world, &files, vec![Change::Problems(place, vec![format!("{number} is odd")])]);
    }
    assert_eq!(world.status()[0].problems.len(), MAX_PROBLEMS);
}

/// What two sources may do to three objects.
#[derive(Clone, Debug)]
enum Step {
    Set(usize, u8, u8),
    Remove(usize, u8),
    List(usize, Vec<(u8, u8)>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..2usize, 0..3u8, 0..3u8).prop_map(|(source, name, host)| Step::Set(source, name, host)),
        (0..2usize, 0..3u8).prop_map(|(source, name)| Step::Remove(source, name)),
        (0..2usize, prop::collection::vec((0..3u8, 0..3u8), 0..3))
            .prop_map(|(source, objects)| Step::List(source, objects)),
    ];
    prop::collection::vec(step, 0..24)
}

proptest! {
    /// Whoever applies the updates has at every time what counts: the objects of the first source, then the second's.
    #[test]
    fn updates_add_up_to_what_counts(steps in steps()) {
        let sources = [source("a", 0), source("b", 1)];
        let mut world = World::default();
        let mut model = [BTreeMap::new(), BTreeMap::new()];
        let mut applied = BTreeMap::new();
        for step in steps {
            let (index, events) = match step {
                Step::Set(index, name, host) => {
                    model[index].insert(name.to_string(), host.to_string());
                    (index, vec![Change::Set(entry(&name.to_string(), &host.to_string()))])
                }
                Step::Remove(index, name) => {
                    model[index].remove(&name.to_string());
                    (index, vec![Change::Remove(key(&name.to_string()))])
                }
                Step::List(index, objects) => {
                    model[index].clear();
                    let mut events = vec![Change::Begin(SourcePart::Whole)];
                    for (name, host) in objects {
                        model[index].insert(name.to_string(), host.to_string());
                        events.push(Change::Set(entry(&name.to_string(), &host.to_string())));
                    }
                    events.push(Change::End(SourcePart::Whole));
                    (index, events)
                }
            };
            for (name, host) in changed(&take(&mut world, &sources[index], events)) {
                match host {
                    Some(host) => applied.insert(name, host),
                    None => applied.remove(&name),
                };
            }
            let mut expected = model[1].clone();
            expected.extend(model[0].clone());
            prop_assert_eq!(&applied, &expected);
        }
    }
}
