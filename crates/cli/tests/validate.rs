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

#[test]
fn called_istioctl_it_refuses_command_lines_in_istioctls_words() {
    let files = Files::new(&[("ok.yaml", GOOD)]);
    for (arguments, words) in [
        (&["v", "ok.yaml"][..], "Error: unknown command \"ok.yaml\" for \"istioctl validate\"\n"),
        (&["validate", "--banana"], "Error: unknown flag: --banana\n"),
        (&["validate", "-q"], "Error: unknown shorthand flag: 'q' in -q\n"),
        (&["banana"], "Error: unknown command \"banana\" for \"istioctl\"\n"),
    ] {
        let output = files.istioctl(arguments);
        assert_eq!((stderr(&output).as_str(), output.status.code()), (words, Some(64)));
    }
}

#[test]
fn called_istioctl_it_stops_where_istioctl_stops() {
    let list = format!("apiVersion: v1\nkind: List\nitems:\n- {}\n", BROKEN.trim_end().replace('\n', "\n  "));
    let files = Files::new(&[
        ("list.yaml", list.as_str()),
        ("twice.yaml", "kind: A\nkind: B\n---\n"),
        ("text.yaml", &format!("just a text\n---\n{BROKEN}")),
        ("nothing.yaml", "null\n"),
    ]);
    let said = |file| {
        let output = files.istioctl(&["validate", "-f", file]);
        (stderr(&output), output.status.code())
    };
    assert_eq!(said("list.yaml"), ("\"list.yaml\" is valid\n".to_owned(), Some(0)));
    assert_eq!(said("nothing.yaml"), ("\"nothing.yaml\" is valid\n".to_owned(), Some(0)));
    let (words, code) = said("twice.yaml");
    assert!(words.contains("line 2: key \"kind\" already set in map"), "{words}");
    assert_eq!(code, Some(1));
    assert_eq!(
        said("text.yaml").0,
        "Error: 1 error occurred:\n\t* failed to decode file text.yaml:  error unmarshaling JSON: while decoding JSON: \
         json: cannot unmarshal string into Go value of type map[string]interface {}\n\n\n"
    );
    assert_eq!(files.canopus(&["validate", "-f", "list.yaml"]).status.code(), Some(1), "we look further");
}

#[test]
fn fields_nobody_knows_are_named_in_the_words_of_either_tool() {
    let routes = GOOD.replace("hosts: [reviews]", "hosts: [reviews], htp: []");
    let route =
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: r}\nspec: {rulez: []}\n";
    let operator = "apiVersion: install.istio.io/v1alpha1\nkind: IstioOperator\nspec: {dummy: 1}\n";
    let files = Files::new(&[("vs.yaml", &routes), ("route.yaml", route), ("iop.yaml", operator)]);
    for (file, words) in [
        (
            "vs.yaml",
            "VirtualService/shop/ok: cannot parse proto message: unknown field \"htp\" in \
             istio.networking.v1alpha3.VirtualService",
        ),
        ("route.yaml", "HTTPRoute//r: cannot parse proto message: unknown field \"rulez\""),
        ("iop.yaml", "IstioOperator//: could not unmarshal: json: unknown field \"dummy\""),
    ] {
        let output = files.istioctl(&["validate", "-f", file]);
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(files.canopus(&["validate", "-f", file]).status.code(), Some(1));
    }
}

#[test]
fn installation_is_checked_as_far_as_it_is_not_the_charts_business() {
    let operator = "\
apiVersion: install.istio.io/v1alpha1
kind: IstioOperator
metadata: {name: mesh}
spec:
  revision: Not-A-Label
  meshConfig: {connectTimeout: 1us}
  components:
    pilot: {enabled: true, k8s: {replicaCount: 2}}
    ingressGateways: [{name: Edge, enabled: true}]
  values: {anything: goes}
";
    let files = Files::new(&[("iop.yaml", operator)]);
    let text = stderr(&files.canopus(&["validate", "-f", "iop.yaml"]));
    for expected in
        ["iop.yaml:5:13", "invalid revision specified", "iop.yaml:9:30", "invalid connect timeout"]
    {
        assert!(text.contains(expected), "{expected:?} is missing from:\n{text}");
    }
}
