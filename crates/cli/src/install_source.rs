//! What an installation is made from, as commands that render or install one are told: charts, files and flags.

use anyhow::Context as _;
use canopus_install::{Error, Input, Operator, Package, merge_for_install, merge_inputs};

use crate::input;

/// How files and flags become one configuration.
type Merge = fn(&Package, &[Input], &[String]) -> Result<Operator, Error>;

/// What is installed: charts, files and flags.
#[derive(clap::Args, Debug)]
pub(crate) struct Source {
    /// File with an IstioOperator, or `-` for standard input; may be repeated, the later one counts more.
    #[arg(short, long = "filename", value_name = "FILE", value_delimiter = ',')]
    filenames: Vec<String>,
    /// Setting by its path, such as `values.global.hub=example.com/mesh`; may be repeated.
    #[arg(short, long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Directory with `charts` and `profiles`, as releases of Istio have it; without, the charts that are built in.
    #[arg(short = 'd', long, value_name = "DIR", alias = "charts")]
    manifests: Option<String>,
    /// Revision of the control plane.
    #[arg(short, long, value_name = "REVISION")]
    revision: Option<String>,
}

impl Source {
    /// What one file says.
    pub(crate) fn from_file(file: &str) -> Self {
        Self { filenames: vec![file.to_owned()], set: Vec::new(), manifests: None, revision: None }
    }

    /// The default profile, with nothing changed.
    pub(crate) fn default_profile() -> Self {
        Self { filenames: Vec::new(), set: Vec::new(), manifests: None, revision: None }
    }

    /// Like [`Source::load`]; the default revision also becomes the one that checks objects which name no revision.
    pub(crate) fn load_for_install(&self) -> anyhow::Result<(Package, Operator)> {
        self.merge(&self.read()?, merge_for_install)
    }

    /// The charts and the configuration that flags and files name.
    pub(crate) fn load(&self) -> anyhow::Result<(Package, Operator)> {
        self.merge(&self.read()?, merge_inputs)
    }

    fn read(&self) -> anyhow::Result<Vec<Input>> {
        let mut inputs = Vec::new();
        for input in input::find(&self.filenames) {
            let bytes = input.read().map_err(anyhow::Error::msg)?;
            let text = String::from_utf8(bytes).with_context(|| format!("{}: not a text", input.name()))?;
            inputs.push(Input { file: input.name(), text });
        }
        Ok(inputs)
    }

    fn merge(&self, inputs: &[Input], merge: Merge) -> anyhow::Result<(Package, Operator)> {
        let mut flags = self.set.clone();
        let aliases = [("installPackagePath", &self.manifests), ("revision", &self.revision)];
        flags.extend(aliases.iter().filter_map(|(path, value)| Some(format!("{path}={}", value.as_ref()?))));
        // The directory may be named by a file or by a flag, so it takes a first look to know where profiles are.
        let named = merge_inputs(&Package::built_in(), inputs, &without_profile(&flags)).ok();
        let directory = named.and_then(|operator| {
            let path = operator.to_json().pointer("/spec/installPackagePath")?.as_str()?.to_owned();
            (!path.is_empty()).then_some(path)
        });
        let package = directory.map_or_else(Package::built_in, Package::open);
        let operator = merge(&package, inputs, &flags)?;
        Ok((package, operator))
    }
}

/// The flags without the profile, which may be one that only the directory has.
fn without_profile(flags: &[String]) -> Vec<String> {
    let mut flags: Vec<String> =
        flags.iter().filter(|flag| !flag.trim().starts_with("profile=")).cloned().collect();
    flags.push("profile=default".to_owned());
    flags
}
