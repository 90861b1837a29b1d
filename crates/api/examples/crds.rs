//! Writes our definitions of Istio's kinds into a directory, a file for each, and removes what is no definition of ours.

use std::ffi::OsStr;
use std::path::Path;
use std::{env, fs, io};

use canopus_api::crd::own;

fn main() -> io::Result<()> {
    let directory = env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: crds DIRECTORY"))?;
    let directory = Path::new(&directory);
    fs::create_dir_all(directory)?;
    let manifests = own::manifests();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if !manifests.iter().any(|manifest| path.file_name() == Some(OsStr::new(&manifest.file))) {
            fs::remove_file(path)?;
        }
    }
    for manifest in manifests {
        fs::write(directory.join(manifest.file), manifest.text)?;
    }
    Ok(())
}
