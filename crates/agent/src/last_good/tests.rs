use std::os::unix::fs::PermissionsExt as _;

use proptest::prelude::*;

use super::*;

fn state(directory: &Path, owner: &str, max_bytes: u64) -> LastGood {
    let settings = LastGoodSettings { directory: directory.to_owned(), max_bytes, owner: owner.to_owned() };
    LastGood::open(&settings, &Registry::new()).unwrap()
}

fn put<'a>(name: &'a str, version: &'a str, body: &'a [u8]) -> Change<'a> {
    Change::Put { name, version, body }
}

fn contents(state: &LastGood, type_url: &str) -> BTreeMap<String, (String, Vec<u8>)> {
    let Some(catalogue) = state.catalogue(type_url) else { return BTreeMap::new() };
    let read =
        |name: &str| catalogue.read(name).map(|stored| (stored.version, stored.body.to_vec())).unwrap();
    catalogue.names().map(|name| (name.to_owned(), read(name))).collect()
}

fn file(directory: &Path) -> PathBuf {
    fs::read_dir(directory.join("xds")).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn state_survives_a_restart_of_its_owner_and_of_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let first = state(directory.path(), "a", 1 << 20);
    first.append("t", &[put("x", "1", b"one"), put("y", "1", b"two")]);
    first.append("t", &[put("x", "2", b"three"), Change::Remove { name: "y" }]);
    drop(first);
    let mode = fs::metadata(file(directory.path())).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = state(directory.path(), "a", 1 << 20);
    assert_eq!(contents(&again, "t"), [("x".into(), ("2".into(), b"three".to_vec()))].into());
    let other = state(directory.path(), "b", 1 << 20);
    assert!(contents(&other, "t").is_empty());
}

#[test]
fn log_is_used_up_to_the_first_broken_record() {
    let directory = tempfile::tempdir().unwrap();
    state(directory.path(), "a", 1 << 20).append("t", &[put("x", "1", b"one"), put("y", "1", b"two")]);
    let path = file(directory.path());
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let again = state(directory.path(), "a", 1 << 20);
    assert_eq!(contents(&again, "t").keys().collect::<Vec<_>>(), ["x"]);
    again.append("t", &[put("z", "1", b"three")]);
    assert_eq!(contents(&again, "t").keys().collect::<Vec<_>>(), ["x", "z"]);
}

#[test]
fn garbage_is_removed_and_the_limit_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let state = state(directory.path(), "a", 4 << 20);
    let body = vec![7; 100_000];
    for number in 0..200 {
        state.append("t", &[put("x", &number.to_string(), &body)]);
        assert!(fs::metadata(file(directory.path())).unwrap().len() < 4 << 20);
    }
    assert_eq!(contents(&state, "t")["x"].0, "199");
    let large = vec![7; 5 << 20];
    state.append("t", &[put("y", "1", &large)]);
    assert!(contents(&state, "t").is_empty(), "what is not whole is not kept");
    state.append("u", &[put("x", "1", b"one")]);
    assert_eq!(contents(&state, "u").len(), 1, "other types are");
}

#[test]
fn state_is_done_without_when_the_directory_cannot_be_made() {
    let directory = tempfile::tempdir().unwrap();
    let blocked = directory.path().join("file");
    fs::write(&blocked, "").unwrap();
    let settings = LastGoodSettings { directory: blocked, max_bytes: 1, owner: String::new() };
    assert!(open_or_warn(&settings, &Registry::new()).is_none());
}

proptest! {
    #[test]
    fn log_says_what_a_map_would(
        changes in proptest::collection::vec((0u8..4, "[a-d]", "[0-9]{1,3}", proptest::collection::vec(any::<u8>(), 0..50)), 0..40),
        restarts in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut model: BTreeMap<String, (String, Vec<u8>)> = BTreeMap::new();
        let mut current = state(directory.path(), "a", 1 << 20);
        for (kind, name, version, body) in &changes {
            let change = match kind {
                0 | 1 => {
                    model.insert(name.clone(), (version.clone(), body.clone()));
                    put(name, version, body)
                }
                2 => {
                    model.remove(name);
                    Change::Remove { name }
                }
                _ => {
                    model.clear();
                    Change::Clear
                }
            };
            current.append("t", &[change]);
            if restarts {
                current = state(directory.path(), "a", 1 << 20);
            }
        }
        prop_assert_eq!(contents(&current, "t"), model);
    }

    #[test]
    fn any_file_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400), ours in any::<bool>()) {
        let directory = tempfile::tempdir().unwrap();
        state(directory.path(), "a", 1 << 20).append("t", &[put("x", "1", b"one")]);
        let path = file(directory.path());
        let mut content = if ours { fs::read(&path).unwrap() } else { Vec::new() };
        content.extend_from_slice(&bytes);
        fs::write(&path, content).unwrap();
        let again = state(directory.path(), "a", 1 << 20);
        prop_assert_eq!(contents(&again, "t").contains_key("x"), ours);
    }
}
