//! Istio's charts rendered here and by real Helm, with several values; the results must be equal byte for byte.
//!
//! The charts are those of the conformance corpus: `CANOPUS_CORPUS`, or `shared/conformance` beside the repository.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test may panic, print and read the environment"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use canopus_base::tree::Limits;
use canopus_base::yaml;
use canopus_gotemplate::Value;
use canopus_gotemplate::chart::{Chart, Release, render};
use canopus_parts::Part;

/// Values that switch on different corners of the charts.
const VALUES: [&str; 9] = [
    "",
    "defaults: {hub: example.com}\n",
    "profile: ambient\n",
    "profile: demo\nglobal: {proxy: {logLevel: debug}}\n",
    "compatibilityVersion: \"1.30\"\nrevision: canary\n",
    "replicaCount: 2\npdb: {minAvailable: 1}\nautoscaling: {enabled: false}\n",
    "meshConfig: {accessLogFile: /dev/stdout, defaultConfig: {tracing: {sampling: 12.5}}}\nenv: {A: 1, B: \"x\", C: true}\n",
    "pilot: {autoscaleEnabled: false, env: {PILOT_X: true}, resources: {requests: {cpu: 100m}}}\n",
    "global: {platform: openshift, multiCluster: {enabled: true, clusterName: a}, network: n1, imagePullSecrets: [s]}\n\
     istio_cni: {enabled: true}\ncni: {ambient: {enabled: true}}\nlabels: {a: b}\nannotations: {c: \"1\"}\n",
];

fn corpus() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance");
    let root = std::env::var_os("CANOPUS_CORPUS").map_or(beside, PathBuf::from).join("charts");
    root.is_dir().then_some(root)
}

/// The directories below `root` that hold a chart.
fn charts(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        if directory.join("Chart.yaml").is_file() {
            found.push(directory);
            continue;
        }
        let entries = fs::read_dir(&directory).unwrap();
        pending.extend(entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()));
    }
    found.sort();
    found
}

fn read_files(root: &Path, directory: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_files(root, &path, files);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            files.insert(name, fs::read(&path).unwrap());
        }
    }
}

/// What `helm template` prints, or the error it ends with.
fn helm(program: &Path, chart: &Path, values: &str) -> Result<String, String> {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("values.yaml");
    fs::write(&file, values).unwrap();
    let output = Command::new(program)
        .args(["template", "rel", "-n", "istio-system", "--skip-schema-validation", "-f"])
        .arg(&file)
        .arg(chart)
        .env("HELM_CACHE_HOME", home.path().join("cache"))
        .env("HELM_CONFIG_HOME", home.path().join("config"))
        .env("HELM_DATA_HOME", home.path().join("data"))
        .env_remove("KUBECONFIG")
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// The same from this crate.
fn ours(chart: &Path, values: &str) -> Result<String, String> {
    let mut files = BTreeMap::new();
    read_files(chart, chart, &mut files);
    let chart = Chart::from_files(files).unwrap();
    let values = yaml::parse_one(values, &Limits::default()).unwrap();
    let manifests = render(&chart, &Value::from(&values), &Release::new("rel", "istio-system"))
        .map_err(|error| error.to_string())?;
    let print = |hooks: bool| {
        let chosen = manifests.iter().filter(|manifest| manifest.is_hook == hooks);
        chosen
            .map(|manifest| format!("---\n# Source: {}\n{}\n", manifest.source, manifest.text))
            .collect::<String>()
    };
    let out = format!("{}\n{}", print(false).trim(), print(true));
    Ok(out)
}

#[test]
fn charts_render_as_helm_renders_them() {
    let Some(root) = corpus() else {
        println!("skipped: no charts (set CANOPUS_CORPUS)");
        return;
    };
    if Command::new("go").arg("version").output().is_err() {
        println!("skipped: Go is missing, and Helm is built with it");
        return;
    }
    canopus_parts::ensure_in_lines(&[Part::Helm]).unwrap();
    let program = canopus_parts::find(Part::Helm).unwrap().join("helm");
    let (mut compared, mut failed) = (0, 0);
    let mut differences = Vec::new();
    for chart in charts(&root) {
        for (at, values) in VALUES.iter().enumerate() {
            let (expected, actual) = (helm(&program, &chart, values), ours(&chart, values));
            compared += 1;
            let equal = match (&expected, &actual) {
                (Ok(expected), Ok(actual)) => expected == actual,
                (Err(expected), Err(actual)) => {
                    failed += 1;
                    let message = expected.split("\n\nUse --debug").next().unwrap_or_default();
                    message.strip_prefix("Error: ") == Some(actual)
                }
                _ => false,
            };
            if !equal {
                let name = format!("{} with values {at}", chart.strip_prefix(&root).unwrap().display());
                differences.push(describe(&name, expected, actual));
            }
        }
    }
    println!("{compared} renderings compared, of which {failed} fail in both");
    assert!(differences.is_empty(), "{} differ\n{}", differences.len(), differences.join("\n"));
    assert!(compared > 0 && failed < compared);
}

/// A chart with dependencies: one switched by a condition, one by tags, one used twice, and globals for all.
const NESTED: [(&str, &str); 12] = [
    (
        "Chart.yaml",
        "apiVersion: v2\nname: parent\nversion: 1.0.0\nappVersion: \"7\"\ndependencies:\n- {name: one, version: 1.x, condition: one.enabled}\n- {name: two, version: 1.0.0, tags: [extra]}\n- {name: one, alias: again, version: 1.0.0}\n",
    ),
    (
        "values.yaml",
        "global: {a: 1, t: {x: 1, y: null}}\none: {enabled: true, v: parent, gone: 1}\nown: {a: 1, b: {c: 2, d: null}}\nlist: [1, 2.5, x]\n",
    ),
    ("files/a.txt", "first\nsecond\n"),
    ("files/b.txt", "b"),
    ("templates/_helpers.tpl", "{{ define \"name\" }}parent-{{ .Chart.Name }}{{ end }}"),
    (
        "templates/all.yaml",
        "kind: ConfigMap\nmetadata: {name: {{ include \"name\" . }}}\nvalues:\n{{ toYaml .Values | indent 2 }}\nfiles:\n{{ (.Files.Glob \"files/*\").AsConfig | indent 2 }}\nsecrets:\n{{ (.Files.Glob \"**.txt\").AsSecrets | indent 2 }}\nlines: {{ .Files.Lines \"files/a.txt\" | toJson }}\nsub: {{ keys .Subcharts | sortAlpha | toJson }}\ntemplate: {{ .Template | toJson }}\nhas: {{ .Capabilities.APIVersions.Has \"apps/v1\" }} {{ .Capabilities.KubeVersion.Minor }} {{ .Capabilities.KubeVersion }}\nchart: {{ .Chart.AppVersion }} {{ .Chart.IsRoot }} {{ printf \"%T\" .Values }}\n---\nkind: Service\n---\nkind: Widget\n---\nkind: Job\nmetadata: {name: h, annotations: {helm.sh/hook: \"pre-install, post-install\"}}\n",
    ),
    ("templates/NOTES.txt", "notes {{ .Release.Name }}"),
    ("charts/one/Chart.yaml", "apiVersion: v2\nname: one\nversion: 1.0.0\n"),
    ("charts/one/values.yaml", "v: child\nw: child\ngone: 2\nglobal: {a: 9, b: 3, t: {z: 1}}\n"),
    (
        "charts/one/templates/c.yaml",
        "kind: ConfigMap\nmetadata: {name: {{ include \"name\" . }}}\nvalues: {{ toJson .Values }}\ntemplate: {{ .Template.Name }}\n",
    ),
    ("charts/two/Chart.yaml", "apiVersion: v2\nname: two\nversion: 1.0.0\n"),
    ("charts/two/templates/d.yaml", "kind: Secret\nvalues: {{ toJson .Values }}\n"),
];

#[test]
fn dependencies_and_values_combine_as_in_helm() {
    if Command::new("go").arg("version").output().is_err() {
        println!("skipped: Go is missing, and Helm is built with it");
        return;
    }
    canopus_parts::ensure_in_lines(&[Part::Helm]).unwrap();
    let program = canopus_parts::find(Part::Helm).unwrap().join("helm");
    let directory = tempfile::tempdir().unwrap();
    for (path, text) in NESTED {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let values = [
        "",
        "one: {enabled: false}\n",
        "tags: {extra: false}\n",
        "tags: {extra: true}\nglobal: {a: 5, t: {x: 2, w: {q: 1}}}\n",
        "one: {v: null, w: user, gone: null, deep: {a: null}}\nagain: {v: again}\n",
        "own: null\n",
        "own: {a: null, b: {c: null, e: 1}, f: null}\nlist: []\n",
        "own: 3\none: {global: {b: user}}\n",
        "one: 3\n",
    ];
    for values in values {
        let (expected, actual) = (helm(&program, directory.path(), values), ours(directory.path(), values));
        match (&expected, &actual) {
            (Ok(expected), Ok(actual)) => assert_eq!(actual, expected, "{values}"),
            (Err(_), Err(_)) => {}
            _ => panic!("{}", describe(values, expected, actual)),
        }
    }
}

/// The first line where two renderings part.
fn describe(name: &str, expected: Result<String, String>, actual: Result<String, String>) -> String {
    let (Ok(expected), Ok(actual)) = (&expected, &actual) else {
        let short = |result: Result<String, String>| result.map(|text| format!("{} bytes", text.len()));
        return format!("{name}:\n  helm: {:?}\n  ours: {:?}", short(expected), short(actual));
    };
    let line = expected.lines().zip(actual.lines()).position(|(a, b)| a != b).unwrap_or(0);
    let around =
        |text: &str| text.lines().skip(line.saturating_sub(2)).take(4).collect::<Vec<_>>().join("\n    ");
    format!("{name}: line {line}\n  helm:\n    {}\n  ours:\n    {}", around(expected), around(actual))
}
