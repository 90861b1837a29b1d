//! Modules in archives: gzip and tar, with bounds on what comes out of them.

use std::io::Read;

use bytes::Bytes;
use flate2::read::GzDecoder;

use super::MAGIC;

/// The file that images have the module in.
const PLUGIN: &str = "plugin.wasm";
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Archives in archives in archives are no modules.
const MAX_LAYERS: usize = 4;
/// Files of an archive that are looked at.
const MAX_FILES: usize = 10_000;

/// Takes a module out of the archives around it, as far as there are any.
pub(super) fn unbox(bytes: Bytes, limit: usize) -> Bytes {
    let mut current = bytes.clone();
    for _ in 0..MAX_LAYERS {
        if current.starts_with(&MAGIC) {
            return current;
        }
        let inner = if current.starts_with(&GZIP) {
            read(GzDecoder::new(&*current), limit).ok()
        } else if current.get(257..262) == Some(b"ustar") {
            first_file(&current, limit)
        } else {
            None
        };
        match inner {
            Some(inner) => current = inner,
            None => return bytes,
        }
    }
    bytes
}

/// The module in a compressed layer of an image.
pub(super) fn plugin_of_layer(layer: &[u8], limit: usize) -> Result<Bytes, String> {
    let broken = |error: std::io::Error| format!("the layer cannot be read: {error}");
    // The archive around the module may have other files; all of it is bounded as the module is.
    let bounded = GzDecoder::new(layer).take(u64::try_from(limit).unwrap_or(u64::MAX));
    let mut archive = tar::Archive::new(bounded);
    for entry in archive.entries().map_err(broken)?.take(MAX_FILES) {
        let entry = entry.map_err(broken)?;
        let is_plugin = entry.path().is_ok_and(|path| path.file_name().is_some_and(|name| name == PLUGIN));
        if is_plugin && entry.header().entry_type().is_file() {
            let size = usize::try_from(entry.size()).unwrap_or(usize::MAX);
            let bytes = read(entry, limit)?;
            return if bytes.len() == size { Ok(bytes) } else { Err(format!("{PLUGIN} is cut off")) };
        }
    }
    Err(format!("there is no {PLUGIN} in the last layer"))
}

fn first_file(archive: &[u8], limit: usize) -> Option<Bytes> {
    let mut archive = tar::Archive::new(archive);
    let entry = archive.entries().ok()?.next()?.ok()?;
    read(entry, limit).ok()
}

fn read(reader: impl Read, limit: usize) -> Result<Bytes, String> {
    let mut bytes = Vec::new();
    let bound = u64::try_from(limit).unwrap_or(u64::MAX);
    reader.take(bound.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() > limit {
        return Err(format!("there are more than {limit} bytes in it (ISTIO_WASM_MAX_BINARY_SIZE_BYTES)"));
    }
    Ok(bytes.into())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use std::io::Write as _;

    pub(in crate::wasm) fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    pub(in crate::wasm) fn tar(name: &str, bytes: &[u8]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, bytes).unwrap();
        builder.into_inner().unwrap()
    }

    const MODULE: &[u8] = b"\0asm\x01\0\0\0";

    #[test]
    fn module_is_found_in_archives() {
        for boxed in [MODULE.to_vec(), gzip(MODULE), tar("m.wasm", MODULE), gzip(&tar("m.wasm", MODULE))] {
            assert_eq!(&*unbox(boxed.into(), 1 << 20), MODULE);
        }
        assert_eq!(&*unbox(Bytes::from_static(b"else"), 1 << 20), b"else");
        let layer = gzip(&tar("a/b/plugin.wasm", MODULE));
        assert_eq!(&*plugin_of_layer(&layer, 1 << 20).unwrap(), MODULE);
        assert!(
            plugin_of_layer(&gzip(&tar("other", MODULE)), 1 << 20).unwrap_err().contains("no plugin.wasm")
        );
    }

    #[test]
    fn bombs_do_not_go_off() {
        let zeros = vec![0; 10 << 20];
        let bomb = gzip(&zeros);
        assert_eq!(unbox(bomb.clone().into(), 1 << 20).len(), bomb.len());
        assert!(plugin_of_layer(&gzip(&tar("plugin.wasm", &zeros)), 1 << 20).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let _ = plugin_of_layer(&bytes, 1 << 16);
            let _ = plugin_of_layer(&gzip(&bytes), 1 << 16);
            let _ = unbox(bytes.into(), 1 << 16);
        }
    }
}
