//! From an IstioOperator to Helm: the values of each chart, and the commands that hand objects over to Helm.

use std::fmt::Write as _;

use canopus_base::tree::Node;
use canopus_base::yaml;

use crate::component::COMPONENTS;
use crate::manifest::{self, Manifest};
use crate::package::Package;
use crate::{Error, Operator, post_process, render, validate};

/// Files to write, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translated {
    /// Names and texts. Those that end in `.sh` are programs.
    pub files: Vec<(String, String)>,
}

/// Translates an operator for those who move to Helm.
pub fn translate(package: &Package, operator: &Operator) -> Result<Translated, Error> {
    let checked = validate::check(operator);
    if !checked.errors.is_empty() {
        return Err(Error::Invalid(checked.errors));
    }
    let operator = render::with_unvalidated(operator);
    let mut translated = Translated::default();
    let mut results = Vec::new();
    for component in &COMPONENTS {
        for instance in component.instances(&operator)? {
            let name = if instance.name.is_empty() { component.key } else { &instance.name };
            let Some(chart) = component.helm_chart else {
                results.push(format!("* ❌ **Component `{name}`**: there is no chart for it; install a gateway with the chart `gateway`"));
                continue;
            };
            let rendered = render::render(package, &operator, component, &instance, None)?;
            let values_file = format!("{name}-values.yaml");
            let values = yaml::node_to_string(&Node::from(rendered.values.clone()));
            translated.files.push((values_file.clone(), values));
            let script = script(name, &instance.namespace, &values_file, chart, &rendered.manifests);
            translated.files.push((format!("install-{name}.sh"), script));
            let patched =
                post_process::apply(component, &instance, rendered.manifests.clone(), &rendered.values)?;
            let note = differences(name, rendered.manifests, patched.manifests, &mut translated.files);
            results.push(format!(
                "* ✅ **Component `{name}`**: the values are in `{values_file}`; `install-{name}.sh` hands it over.{note}"
            ));
        }
    }
    let readme = format!(
        "# From IstioOperator to Helm\n\n{}\n\nRead each script before you run it. It marks the objects as Helm's, then installs the chart with the values beside it.\n",
        results.join("\n")
    );
    translated.files.push(("README.md".to_owned(), readme));
    Ok(translated)
}

/// Writes down where Helm would render something else than the operator did.
fn differences(
    name: &str,
    helm: Vec<Manifest>,
    own: Vec<Manifest>,
    files: &mut Vec<(String, String)>,
) -> String {
    let text = |mut manifests: Vec<Manifest>| {
        Manifest::sort(&mut manifests);
        manifest::to_yaml(&manifests)
    };
    let (helm, own) = (text(helm), text(own));
    if helm == own {
        return String::new();
    }
    let (helm_file, own_file) =
        (format!("diff-{name}-helm-output.yaml"), format!("diff-{name}-istioctl-output.yaml"));
    let note = format!(
        " ⚠️ Settings under `k8s` have no counterpart in the chart: see `diff {helm_file} {own_file}`."
    );
    files.push((helm_file, helm));
    files.push((own_file, own));
    note
}

fn script(name: &str, namespace: &str, values_file: &str, chart: &str, manifests: &[Manifest]) -> String {
    let mut text =
        "#!/usr/bin/env bash\nset -euo pipefail\n\n# Mark the objects as parts of the Helm release.\n"
            .to_owned();
    for manifest in manifests {
        let kind = match manifest.group() {
            "" => manifest.kind().to_owned(),
            group => format!("{}.{group}", manifest.kind()),
        };
        let flag = match manifest.namespace() {
            "" => String::new(),
            namespace => format!(" --namespace={namespace}"),
        };
        let object = format!("{kind}{flag} {}", manifest.name());
        let _ = writeln!(
            text,
            "kubectl annotate --overwrite {object} meta.helm.sh/release-name={name} meta.helm.sh/release-namespace={namespace}"
        );
        let _ = writeln!(text, "kubectl label --overwrite {object} app.kubernetes.io/managed-by=Helm");
    }
    let _ = writeln!(
        text,
        "\n# Install the chart.\nhelm upgrade --install {name} --namespace {namespace} -f {values_file} oci://registry.istio.io/release/charts/{chart}"
    );
    text
}
