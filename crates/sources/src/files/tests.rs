use std::fs;

use tempfile::TempDir;

use super::*;

fn entry(name: &str, host: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata:\n  name: {name}\n  namespace: a\n\
         spec:\n  hosts:\n  - {host}\n---\n"
    )
}

fn names(update: &Update) -> Vec<String> {
    update.set.iter().map(|object| object.key().to_string()).collect()
}

#[test]
fn only_differences_are_reported() {
    let folder = TempDir::new().unwrap();
    let mut files = Files::new(folder.path());
    fs::write(folder.path().join("a.yaml"), entry("one", "one.example.com")).unwrap();
    fs::write(folder.path().join("b.yml"), entry("two", "two.example.com")).unwrap();
    fs::write(folder.path().join("notes.txt"), "not a document").unwrap();
    assert_eq!(names(&files.read().unwrap()), ["ServiceEntry a/one", "ServiceEntry a/two"]);
    assert_eq!(files.read().unwrap(), Update::default());

    fs::write(folder.path().join("b.yml"), entry("two", "changed.example.com")).unwrap();
    assert_eq!(names(&files.read().unwrap()), ["ServiceEntry a/two"]);

    fs::remove_file(folder.path().join("a.yaml")).unwrap();
    let update = files.read().unwrap();
    assert_eq!(update.removed.iter().map(ToString::to_string).collect::<Vec<_>>(), ["ServiceEntry a/one"]);
}

#[test]
fn a_broken_document_keeps_its_object_and_the_others_live() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.yaml");
    let mut files = Files::new(folder.path());
    fs::write(&path, entry("one", "one.example.com") + &entry("two", "two.example.com")).unwrap();
    files.read().unwrap();

    let broken = entry("one", "[unclosed");
    fs::write(&path, broken + &entry("two", "new.example.com")).unwrap();
    let update = files.read().unwrap();
    assert_eq!(names(&update), ["ServiceEntry a/two"]);
    assert_eq!(update.removed, []);
    assert_eq!(update.problems.len(), 1, "{:?}", update.problems);
    assert!(
        update.problems[0].contains("a.yaml") && update.problems[0].contains("line"),
        "{:?}",
        update.problems
    );
}

#[test]
fn a_missing_directory_takes_nothing_away() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("mesh");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("a.yaml"), entry("one", "one.example.com")).unwrap();
    let mut files = Files::new(&root);
    files.read().unwrap();

    fs::rename(&root, folder.path().join("away")).unwrap();
    assert!(files.read().is_err());
    fs::rename(folder.path().join("away"), &root).unwrap();
    assert_eq!(files.read().unwrap(), Update::default());
}

#[test]
fn the_first_of_two_definitions_counts() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("a.yaml"), entry("one", "first.example.com")).unwrap();
    fs::write(folder.path().join("b.yaml"), entry("one", "second.example.com")).unwrap();
    let update = Files::new(folder.path()).read().unwrap();
    assert_eq!(update.set.len(), 1);
    assert!(update.problems[0].ends_with("ServiceEntry a/one is already defined in another file"));
}

#[cfg(unix)]
#[test]
fn a_mounted_config_map_is_read_once_and_its_swap_is_seen() {
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
    let update = files.read().unwrap();
    assert_eq!((update.set.len(), update.problems.len()), (1, 0));

    version("..v2", "second.example.com");
    symlink("..v2", folder.path().join("..tmp")).unwrap();
    fs::rename(folder.path().join("..tmp"), folder.path().join("..data")).unwrap();
    assert_eq!(names(&files.read().unwrap()), ["ServiceEntry a/one"]);
}

#[tokio::test]
async fn a_change_is_sent_without_being_asked_for() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("a.yaml"), entry("one", "one.example.com")).unwrap();
    let (sender, mut updates) = tokio::sync::mpsc::channel(1);
    let watching = tokio::spawn(watch(Files::new(folder.path()), sender));
    assert_eq!(names(&updates.recv().await.unwrap()), ["ServiceEntry a/one"]);

    fs::write(folder.path().join("b.yaml"), entry("two", "two.example.com")).unwrap();
    assert_eq!(names(&updates.recv().await.unwrap()), ["ServiceEntry a/two"]);
    drop(updates);
    watching.await.unwrap();
}
