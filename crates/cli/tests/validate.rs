//! `canopus validate` as people and scripts meet it.
#![expect(clippy::unwrap_used, reason = "a test that cannot run the program has failed")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const BROKEN: &str = "\
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: bad
  namespace: shop
spec:
  hosts:
  - bad host
  http:
  - route:
    - destination:
        host: reviews
      weight: -1
";

const GOOD: &str = "\
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: ok, namespace: shop}
spec: {hosts: [reviews], http: [{route: [{destination: {host: reviews}}]}]}
";

struct Files(TempDir);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Self(folder)
    }

    fn run(&self, program: &Path, arguments: &[&str]) -> Output {
        Command::new(program).args(arguments).current_dir(self.0.path()).output().unwrap()
    }

    fn canopus(&self, arguments: &[&str]) -> Output {
        self.run(Path::new(env!("CARGO_BIN_EXE_canopus")), arguments)
    }

    /// The same program under the name that scripts call.
    fn istioctl(&self, arguments: &[&str]) -> Output {
        let name = self.0.path().join("istioctl");
        if !name.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_canopus"), &name).unwrap();
        }
        self.run(&name, arguments)
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_broken_object_is_shown_with_the_line_to_change() {
    let files = Files::new(&[("bad.yaml", BROKEN)]);
    let output = files.canopus(&["validate", "-f", "bad.yaml"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1));
    for expected in [
        "bad.yaml:8:5",
        "- bad host",
        "bad.yaml:13:15",
        "weight: -1",
        "spec.http[0].route[0].weight",
        "2 errors",
    ] {
        assert!(text.contains(expected), "{expected:?} is missing from:\n{text}");
    }
    assert!(output.stdout.is_empty(), "words for people go to standard error");
}

#[test]
fn findings_are_data_for_programs() {
    let files = Files::new(&[("bad.yaml", BROKEN), ("ok.yaml", GOOD)]);
    let output = files.canopus(&["validate", "-f", ".", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json["valid"], false);
    assert_eq!(json["files"][1]["name"], "./ok.yaml");
    assert_eq!(json["files"][1]["valid"], true);
    let weight =
        json["findings"].as_array().unwrap().iter().find(|f| f["path"] == "spec.http[0].route[0].weight");
    assert_eq!(weight.unwrap()["line"], 13);
}

#[test]
fn called_istioctl_it_speaks_istioctls_words() {
    let files = Files::new(&[("bad.yaml", BROKEN), ("ok.yaml", GOOD), ("empty.yaml", "")]);
    let output = files.istioctl(&["validate", "-f", "bad.yaml"]);
    assert_eq!(
        stderr(&output),
        "Error: 2 errors occurred:\n\t* VirtualService/shop/bad: domain name \"bad host\" invalid (label \"bad host\" \
         invalid)\n\t* VirtualService/shop/bad: weight -1 < 0\n\n\n"
    );
    assert_eq!(output.status.code(), Some(1));
    let output = files.istioctl(&["v", "-f", "ok.yaml,empty.yaml"]);
    assert_eq!(
        (stderr(&output).as_str(), output.status.code()),
        ("\"ok.yaml\" is valid\n\"empty.yaml\" is valid\n", Some(0))
    );
}

#[test]
fn unreadable_input_is_named_and_the_rest_is_checked() {
    let files = Files::new(&[("bad.yaml", BROKEN)]);
    fs::write(files.0.path().join("binary.yaml"), [0xff, 0xfe, 0x00, 0x01]).unwrap();
    let output = files.canopus(&["validate", "-f", "nowhere.yaml,binary.yaml,bad.yaml"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1));
    for expected in
        ["cannot stat file \"nowhere.yaml\"", "failed to decode file binary.yaml", "weight -1 < 0"]
    {
        assert!(text.contains(expected), "{expected:?} is missing from:\n{text}");
    }
}

#[test]
fn one_broken_document_does_not_hide_the_others() {
    let files = Files::new(&[("many.yaml", &format!("{GOOD}---\nkind: [unclosed\n---\n{BROKEN}"))]);
    let text = stderr(&files.canopus(&["validate", "-f", "many.yaml"]));
    assert!(text.contains("many.yaml:6:") && text.contains("weight -1 < 0"), "{text}");
}

#[test]
fn other_programs_objects_are_skipped_with_a_note() {
    let files =
        Files::new(&[("other.yaml", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n")]);
    let output = files.canopus(&["validate", "-f", "other.yaml"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("not a kind the mesh reads: skipped"));
}

#[test]
fn a_command_line_that_makes_no_sense_is_told_apart() {
    let files = Files::new(&[]);
    assert_eq!(files.canopus(&["validate", "routes.yaml"]).status.code(), Some(64));
    assert_eq!(files.canopus(&["validate"]).status.code(), Some(1));
    assert_eq!(files.canopus(&["--help"]).status.code(), Some(0));
}

#[test]
fn a_very_long_stream_is_checked() {
    let files = Files::new(&[("many.yaml", &format!("{GOOD}---\n").repeat(20_000))]);
    let output = files.canopus(&["validate", "-f", "many.yaml"]);
    assert_eq!(stderr(&output), "many.yaml: valid (20000 objects)\n");
}
