//! Generates the wire types from the descriptor set in `schema/` and our own files in `protos/`, without network or
//! external compiler, and leaves the complete descriptor set beside them for reflection.

#![expect(clippy::print_stdout, reason = "build scripts talk to cargo by printing")]

mod fields;

use std::error::Error;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use prost::Message;
use prost_types::FileDescriptorSet;
use protox::file::{ChainFileResolver, DescriptorSetFileResolver, GoogleFileResolver, IncludeFileResolver};

const SCHEMA: &str = "schema/schema.binpb.gz";
const PROTOS: &str = "protos";
/// The file whose messages the agent reads. The agent must not pay for the descriptors of everything else.
const PROXY_CONFIG: &str = "mesh/v1alpha1/proxy.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed={SCHEMA}");
    println!("cargo::rerun-if-changed={PROTOS}");
    #[expect(clippy::disallowed_methods, reason = "cargo's way to say where generated files go")]
    let out = PathBuf::from(std::env::var("OUT_DIR")?);

    let set = with_own_files(published()?)?;
    write_compressed(&out.join("descriptors.binpb.gz"), &set)?;
    std::fs::write(out.join("proxy_config.binpb"), closure(&set, PROXY_CONFIG)?.encode_to_vec())?;
    std::fs::write(out.join("fields.rs"), fields::generate(&set)?)?;
    generate(set)
}

/// The APIs other projects publish, collected by `cargo xtask gen proto`.
fn published() -> Result<FileDescriptorSet, Box<dyn Error>> {
    let mut raw = Vec::new();
    GzDecoder::new(std::fs::File::open(SCHEMA)?).read_to_end(&mut raw)?;
    Ok(FileDescriptorSet::decode(raw.as_slice())?)
}

/// Adds the messages nobody publishes as a package.
fn with_own_files(mut set: FileDescriptorSet) -> Result<FileDescriptorSet, Box<dyn Error>> {
    let mut resolver = ChainFileResolver::new();
    resolver.add(IncludeFileResolver::new(PROTOS.into()));
    resolver.add(DescriptorSetFileResolver::new(set.clone()));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(false);
    compiler.open_files(own_files(Path::new(PROTOS))?)?;
    set.file.extend(compiler.file_descriptor_set().file);
    Ok(set)
}

fn own_files(root: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path.strip_prefix(root)?.to_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// A file with everything it imports, imports first, without comments.
fn closure(set: &FileDescriptorSet, file: &str) -> Result<FileDescriptorSet, Box<dyn Error>> {
    let mut wanted = std::collections::BTreeSet::from([file]);
    let mut open = vec![file];
    while let Some(name) = open.pop() {
        let found = set.file.iter().find(|candidate| candidate.name() == name);
        let found = found.ok_or_else(|| format!("{name} is not in the descriptor set"))?;
        open.extend(found.dependency.iter().map(String::as_str).filter(|import| wanted.insert(import)));
    }
    let mut chosen: Vec<_> = set.file.iter().filter(|file| wanted.contains(file.name())).cloned().collect();
    chosen.iter_mut().for_each(|file| file.source_code_info = None);
    Ok(FileDescriptorSet { file: chosen })
}

fn write_compressed(path: &Path, set: &FileDescriptorSet) -> Result<(), Box<dyn Error>> {
    let mut gz = GzEncoder::new(std::fs::File::create(path)?, Compression::best());
    gz.write_all(&set.encode_to_vec())?;
    gz.finish()?;
    Ok(())
}

fn generate(set: FileDescriptorSet) -> Result<(), Box<dyn Error>> {
    let mut config = prost_build::Config::new();
    config
        // Ordered maps make encoding deterministic: equal messages are equal bytes.
        .btree_map(["."])
        // Shared buffers let one encoded resource be part of many responses without a copy.
        .bytes(["."])
        // Well-known types are generated too, so that `Any.value` is a shared buffer.
        .compile_well_known_types()
        .enable_type_names()
        .type_name_domain(["."], "type.googleapis.com")
        .include_file("generated.rs");
    tonic_prost_build::configure().build_transport(false).compile_fds_with_config(set, config)?;
    Ok(())
}
