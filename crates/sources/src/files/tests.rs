use std::fs;

use canopus_api::Kind;
use canopus_api::istio::ServiceEntry;
use tempfile::TempDir;

use super::*;
use crate::{Intake, Source as _, SourceInfo, Update};

fn entry(name: &str, host: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata:\n  name: {name}\n  namespace: a\n\
         spec:\n  hosts:\n  - {host}\n  ports:\n  - {{number: 80, name: http, protocol: HTTP}}\n  resolution: DNS\n---\n"
    )
}

/// The changes of a look in short: `+one` and `-two`, then the problems.
fn said(look: &Look) -> Vec<String> {
    let said = |event: &Change| match event {
        Change::Set(object) => vec![format!("+{}", object.meta().name)],
        Change::Remove(key) => vec![format!("-{}", key.name)],
        Change::Problems(_, problems) => problems.clone(),
        _ => Vec::new(),
    };
    look.events.iter().flat_map(said).collect()
}

#[test]
fn only_differences_are_told() {
    let folder = TempDir::new().unwrap();
    let mut files = Files::new(folder.path());
    fs::write(folder.path().join("a.yaml"), entry("one", "one.example.com")).unwrap();
    fs::write(folder.path().join("b.yml"), entry("two", "two.example.com")).unwrap();
    fs::write(folder.path().join("notes.txt"), "not a document").unwrap();
    let look = files.look().unwrap();
    assert_eq!(said(&look), ["+one", "+two"]);
    assert_eq!(look.events.first(), Some(&Change::Begin(SourcePart::Whole)));
    assert_eq!(look.events.last(), Some(&Change::End(SourcePart::Whole)));
    assert_eq!(files.look().unwrap(), Look { events: Vec::new(), settled: true });

    fs::write(folder.path().join("b.yml"), entry("two", "changed.example.com")).unwrap();
    assert_eq!(said(&files.look().unwrap()), ["+two"]);
}

#[test]
fn what_is_missing_goes_at_the_second_look() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.yaml");
    let both = entry("one", "one.example.com") + &entry("two", "two.example.com");
    let mut files = Files::new(folder.path());
    fs::write(&path, &both).unwrap();
    files.look().unwrap();

    // Half written, then whole: nothing was ever gone.
    fs::write(&path, entry("one", "one.example.com")).unwrap();
    assert_eq!(files.look().unwrap(), Look { events: Vec::new(), settled: false });
    fs::write(&path, &both).unwrap();
    assert_eq!(files.look().unwrap(), Look { events: Vec::new(), settled: true });

    // Really shorter, then really gone.
    fs::write(&path, entry("one", "one.example.com")).unwrap();
    files.look().unwrap();
    assert_eq!(said(&files.look().unwrap()), ["-two"]);
    fs::remove_file(&path).unwrap();
    assert_eq!(files.look().unwrap(), Look { events: Vec::new(), settled: false });
    assert_eq!(said(&files.look().unwrap()), ["-one"]);
    assert_eq!(files.look().unwrap(), Look { events: Vec::new(), settled: true });
}

#[test]
fn object_may_move_from_file_to_file() {
    let folder = TempDir::new().unwrap();
    let (a, b) = (folder.path().join("a.yaml"), folder.path().join("b.yaml"));
    let mut files = Files::new(folder.path());
    fs::write(&b, entry("one", "one.example.com")).unwrap();
    files.look().unwrap();
    fs::rename(&b, &a).unwrap();
    assert_eq!(files.look().unwrap().events, []);
    assert_eq!(files.look().unwrap(), Look { events: Vec::new(), settled: true });
}

#[test]
fn broken_document_keeps_its_object_and_the_others_live() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.yaml");
    let mut files = Files::new(folder.path());
    fs::write(&path, entry("one", "one.example.com") + &entry("two", "two.example.com")).unwrap();
    files.look().unwrap();

    fs::write(&path, entry("one", "[unclosed") + &entry("two", "new.example.com")).unwrap();
    let look = files.look().unwrap();
    let said = said(&look);
    assert_eq!((said.len(), said[0].as_str(), look.settled), (2, "+two", true), "{said:?}");
    assert!(said[1].contains("a.yaml") && said[1].contains("line"), "{said:?}");
}

#[test]
fn broken_document_that_says_its_name_keeps_no_other_object() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.yaml");
    let mut files = Files::new(folder.path());
    fs::write(&path, entry("one", "one.example.com") + &entry("two", "two.example.com")).unwrap();
    files.look().unwrap();
    fs::write(&path, entry("one", "{a: map}")).unwrap();
    files.look().unwrap();
    assert_eq!(said(&files.look().unwrap()), ["-two"]);
}

#[test]
fn invalid_object_keeps_its_last_valid_version() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.yaml");
    let mut files = Files::new(folder.path());
    fs::write(&path, entry("one", "one.example.com")).unwrap();
    files.look().unwrap();
    fs::write(&path, entry("one", "'*'") + &entry("new", "'*'")).unwrap();
    let said = said(&files.look().unwrap());
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said.iter().all(|problem| problem.contains("is not valid")), "{said:?}");
}

#[test]
fn bytes_that_are_not_text_are_reported_and_the_rest_lives() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("a.yaml"), b"apiVersion: v1\nkind: \xff\xfe\n").unwrap();
    fs::write(folder.path().join("b.yaml"), entry("two", "two.example.com")).unwrap();
    let said = said(&Files::new(folder.path()).look().unwrap());
    assert_eq!(said[0], "+two");
    assert!(said[1].contains("invalid UTF-8"), "{said:?}");
}

#[test]
fn unreadable_time_is_reported_with_its_field() {
    let folder = TempDir::new().unwrap();
    let dated =
        entry("one", "one.example.com").replace("  name: one", "  creationTimestamp: soon\n  name: one");
    fs::write(folder.path().join("a.yaml"), dated).unwrap();
    let said = said(&Files::new(folder.path()).look().unwrap());
    assert!(said.len() == 1 && said[0].contains("metadata.creationTimestamp"), "{said:?}");
}

#[test]
fn huge_file_is_refused_without_being_read() {
    let folder = TempDir::new().unwrap();
    let huge = fs::File::create(folder.path().join("a.yaml")).unwrap();
    huge.set_len(MAX_FILE_BYTES + 1).unwrap();
    fs::write(folder.path().join("b.yaml"), entry("two", "two.example.com")).unwrap();
    let said = said(&Files::new(folder.path()).look().unwrap());
    assert_eq!(said[0], "+two");
    assert!(said[1].ends_with("larger than 64 MiB"), "{said:?}");
}

#[test]
fn missing_directory_takes_nothing_away() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("mesh");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("a.yaml"), entry("one", "one.example.com")).unwrap();
    let mut files = Files::new(&root);
    files.look().unwrap();

    fs::rename(&root, folder.path().join("away")).unwrap();
    assert!(files.look().is_err());
    fs::rename(folder.path().join("away"), &root).unwrap();
    assert_eq!(files.look().unwrap(), Look { events: Vec::new(), settled: true });
}

#[test]
fn first_of_two_definitions_counts() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("a.yaml"), entry("one", "first.example.com")).unwrap();
    fs::write(folder.path().join("b.yaml"), entry("one", "second.example.com")).unwrap();
    let said = said(&Files::new(folder.path()).look().unwrap());
    assert_eq!((said.len(), said[0].as_str()), (2, "+one"));
    assert!(said[1].ends_with("ServiceEntry a/one is already defined in another file"));
}

#[test]
fn single_file_is_enough() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("mesh.conf");
    fs::write(&path, entry("one", "one.example.com")).unwrap();
    fs::write(folder.path().join("other.yaml"), entry("two", "two.example.com")).unwrap();
    assert_eq!(said(&Files::new(&path).look().unwrap()), ["+one"]);
}

#[cfg(unix)]
#[test]
fn mounted_config_map_is_read_once_and_its_swap_is_seen() {
    use std::os::unix::fs::symlink;
    let folder = TempDir::new().unwrap();
    let version = |name: &str, host: &str| {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("a.yaml"), entry("one", host)).unwrap();
    };
    version("..v1", "first.example.com");
    symlink("..v1", folder.path().join("..data")).unwrap();
    symlink("..data/a.yaml", folder.path().join("a.yaml")).unwrap();
    let mut files = Files::new(folder.path());
    assert_eq!(said(&files.look().unwrap()), ["+one"]);

    version("..v2", "second.example.com");
    symlink("..v2", folder.path().join("..tmp")).unwrap();
    fs::rename(folder.path().join("..tmp"), folder.path().join("..data")).unwrap();
    assert_eq!(said(&files.look().unwrap()), ["+one"]);
}

/// Updates until an object has this host, or is gone.
async fn host_becomes(intake: &mut Intake, host: Option<&str>) -> Update {
    loop {
        let update = intake.next().await;
        let key = ObjectKey::new(Kind::ServiceEntry, "a", "one");
        let now = intake.world().get("local", &key).and_then(|object| object.get::<ServiceEntry>());
        if now.map(|entry| entry.spec.hosts[0].as_str()) == host {
            return update;
        }
    }
}

#[tokio::test]
async fn changes_are_told_without_being_asked_for() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.yaml");
    fs::write(&path, entry("one", "one.example.com")).unwrap();
    let mut intake = Intake::new();
    let feed = intake.feed(SourceInfo::new("files", "local", 0));
    let watching = tokio::spawn(Files::new(folder.path()).run(feed));
    host_becomes(&mut intake, Some("one.example.com")).await;
    assert!(intake.world().is_whole());

    fs::write(&path, entry("one", "two.example.com")).unwrap();
    host_becomes(&mut intake, Some("two.example.com")).await;
    fs::remove_file(&path).unwrap();
    host_becomes(&mut intake, None).await;
    drop(intake);
    watching.await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn directory_behind_a_link_may_be_swapped_and_lost() {
    use std::os::unix::fs::symlink;
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("current");
    let version = |name: &str, host: &str| {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("a.yaml"), entry("one", host)).unwrap();
        let link = folder.path().join("link");
        symlink(name, &link).unwrap();
        fs::rename(link, &root).unwrap();
    };
    version("v1", "first.example.com");
    let mut intake = Intake::new();
    let feed = intake.feed(SourceInfo::new("files", "local", 0));
    let watching = tokio::spawn(Files::new(&root).run(feed));
    host_becomes(&mut intake, Some("first.example.com")).await;
    version("v2", "second.example.com");
    host_becomes(&mut intake, Some("second.example.com")).await;

    fs::rename(folder.path().join("v2"), folder.path().join("v3")).unwrap();
    while intake.world().status()[0].is_live() {
        assert_eq!(intake.next().await.changes.len(), 0);
    }
    fs::rename(folder.path().join("v3"), folder.path().join("v2")).unwrap();
    while !intake.world().status()[0].is_live() {
        assert_eq!(intake.next().await.changes.len(), 0);
    }
    drop(intake);
    watching.await.unwrap();
}
