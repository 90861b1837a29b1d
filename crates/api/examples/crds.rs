//! Writes our definitions of Istio's kinds, a file for each, into a directory.

use std::path::Path;
use std::{env, fs, io};

use canopus_api::crd::own;
use canopus_base::tree::Node;
use canopus_base::yaml;

const HEADER: &str = "# Made by `cargo xtask gen crds` from the registry of kinds. Do not edit.\n";

fn main() -> io::Result<()> {
    let directory = env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: crds DIRECTORY"))?;
    let directory = Path::new(&directory);
    fs::create_dir_all(directory)?;
    for definition in own::definitions() {
        let name = definition.pointer("/metadata/name").and_then(Node::as_str);
        let name = name.ok_or_else(|| io::Error::other("a definition has a name"))?;
        let content = format!("{HEADER}{}", yaml::node_to_string(&definition));
        fs::write(directory.join(format!("{name}.yaml")), content)?;
    }
    Ok(())
}
