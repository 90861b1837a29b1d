use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tar::{Builder, Header};

use crate::layer::digest;
use crate::{Compression, Layer};

/// Labels of an image.
pub type Labels = BTreeMap<String, String>;

/// The moment that images are dated to: an image says what is in it, not when it was made.
const EPOCH: &str = "1970-01-01T00:00:00Z";

/// A container image.
#[derive(Debug)]
pub struct Image {
    /// All its names, such as `localhost/canopus/canopusd:0.1.0`.
    pub names: Vec<String>,
    /// Layers of the image, the lowest first.
    pub layers: Vec<Arc<Layer>>,
    /// What is run.
    pub entrypoint: Vec<String>,
    /// User and group that it runs as.
    pub user: String,
    /// Labels.
    pub labels: Labels,
}

impl Image {
    /// Writes an archive: an OCI layout that containerd, kind, k3d, skopeo and podman read, with the list that `docker load`
    /// looks for beside it.
    pub fn write(&self, path: &Path) -> Result<()> {
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut out = BufWriter::new(file);
        self.write_to(&mut out).with_context(|| format!("cannot write {}", path.display()))?;
        out.flush()?;
        Ok(())
    }

    fn write_to(&self, out: impl Write) -> Result<()> {
        let config = self.config().to_string().into_bytes();
        let manifest = self.manifest(&config).to_string().into_bytes();
        let mut tar = Builder::new(out);
        add(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        add(&mut tar, "index.json", self.index(&manifest).to_string().as_bytes())?;
        add(&mut tar, "manifest.json", self.docker_manifest(&config).to_string().as_bytes())?;
        add(&mut tar, &blob(&digest(&config)), &config)?;
        add(&mut tar, &blob(&digest(&manifest)), &manifest)?;
        let mut written = Vec::new();
        for layer in &self.layers {
            if !written.contains(&&layer.digest) {
                add_from(&mut tar, &blob(&layer.digest), layer.size, BufReader::new(layer.open()?))?;
                written.push(&layer.digest);
            }
        }
        tar.finish()?;
        Ok(())
    }

    fn config(&self) -> Value {
        let history = |layer: &Arc<Layer>| json!({"created": EPOCH, "created_by": layer.purpose});
        json!({
            "architecture": architecture(),
            "os": "linux",
            "created": EPOCH,
            "config": {
                "User": self.user,
                "Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "Entrypoint": self.entrypoint,
                "WorkingDir": "/",
                "Labels": self.labels,
            },
            "rootfs": {"type": "layers", "diff_ids": self.layers.iter().map(|layer| &layer.diff_id).collect::<Vec<_>>()},
            "history": self.layers.iter().map(history).collect::<Vec<_>>(),
        })
    }

    fn manifest(&self, config: &[u8]) -> Value {
        let layer = |layer: &Arc<Layer>| {
            let media_type = match layer.compression {
                Compression::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
                Compression::None => "application/vnd.oci.image.layer.v1.tar",
            };
            json!({"mediaType": media_type, "digest": layer.digest, "size": layer.size})
        };
        json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest(config),
                "size": config.len(),
            },
            "layers": self.layers.iter().map(layer).collect::<Vec<_>>(),
        })
    }

    fn index(&self, manifest: &[u8]) -> Value {
        let entry = |name: &String| {
            let tag = name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
            json!({
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": digest(manifest),
                "size": manifest.len(),
                "platform": {"architecture": architecture(), "os": "linux"},
                "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag},
            })
        };
        json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": self.names.iter().map(entry).collect::<Vec<_>>(),
        })
    }

    fn docker_manifest(&self, config: &[u8]) -> Value {
        let layers: Vec<String> = self.layers.iter().map(|layer| blob(&layer.digest)).collect();
        json!([{"Config": blob(&digest(config)), "RepoTags": self.names, "Layers": layers}])
    }
}

/// The architecture of this machine as images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn blob(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

fn add(tar: &mut Builder<impl Write>, path: &str, bytes: &[u8]) -> io::Result<()> {
    add_from(tar, path, bytes.len() as u64, bytes)
}

fn add_from(tar: &mut Builder<impl Write>, path: &str, size: u64, from: impl Read) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(size);
    header.set_mtime(0);
    tar.append_data(&mut header, path, from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rootfs;

    fn image() -> Image {
        let mut rootfs = Rootfs::default();
        rootfs.text("/hello", "world");
        let layer = Arc::new(Layer::new("a file", &rootfs, Compression::Gzip).unwrap());
        Image {
            names: vec!["localhost/canopus/x:1".into(), "localhost/canopus/y:1".into()],
            layers: vec![layer],
            entrypoint: vec!["/hello".into()],
            user: "1337:1337".into(),
            labels: Labels::new(),
        }
    }

    fn files(image: &Image) -> BTreeMap<String, Vec<u8>> {
        let mut bytes = Vec::new();
        image.write_to(&mut bytes).unwrap();
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(entry.path().unwrap().display().to_string(), content);
        }
        files
    }

    #[test]
    fn every_blob_is_named_by_its_digest_and_every_reference_leads_to_one() {
        let files = files(&image());
        for (path, content) in files.iter().filter(|(path, _)| path.starts_with("blobs/")) {
            assert_eq!(*path, blob(&digest(content)));
        }
        let read = |path: &str| -> Value { serde_json::from_slice(&files[path]).unwrap() };
        let index = read("index.json");
        let names: Vec<_> = (0..2)
            .map(|at| index["manifests"][at]["annotations"]["io.containerd.image.name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["localhost/canopus/x:1", "localhost/canopus/y:1"]);
        let manifest = read(&blob(index["manifests"][0]["digest"].as_str().unwrap()));
        let config = read(&blob(manifest["config"]["digest"].as_str().unwrap()));
        assert_eq!(config["config"]["User"], "1337:1337");
        assert!(files.contains_key(&blob(manifest["layers"][0]["digest"].as_str().unwrap())));
        assert_eq!(read("manifest.json")[0]["RepoTags"][1], "localhost/canopus/y:1");
    }

    #[test]
    fn equal_images_are_equal_bytes() {
        let bytes = |image: &Image| {
            let mut bytes = Vec::new();
            image.write_to(&mut bytes).unwrap();
            bytes
        };
        assert_eq!(bytes(&image()), bytes(&image()));
    }
}
