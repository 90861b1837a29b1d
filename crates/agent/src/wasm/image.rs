//! Images in OCI registries: the manifest, and the one layer that has the module.
//!
//! Written by hand because existing clients do not let the address of a connection be checked, see [`crate::fetch`].

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;

use super::archive::plugin_of_layer;
use super::credentials::Credentials;
use super::reference::{ImageReference, is_digest};
use super::{WasmError, sha256};
use crate::fetch::{self, Fetch, FetchError, Fetcher};

const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// A layer that is the module itself.
const WASM_LAYER: &str = "application/vnd.module.wasm.content.layer.v1+wasm";

/// Manifests are small.
const MAX_MANIFEST: usize = 4 << 20;
const MAX_TOKEN: usize = 1 << 20;
const MAX_LAYERS: usize = 1024;

/// A manifest and what it is called.
#[derive(Debug)]
pub(super) struct Manifest {
    /// The hexadecimal SHA-256 of the bytes.
    pub(super) digest: String,
    content: Content,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Content {
    media_type: String,
    layers: Vec<Descriptor>,
    /// Manifests of an image index.
    manifests: Vec<Descriptor>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<Platform>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Platform {
    os: String,
    architecture: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Token {
    token: String,
    access_token: String,
}

/// Asks the registry of one image.
pub(super) struct ImageClient<'a> {
    fetcher: &'a Fetcher,
    reference: ImageReference,
    credentials: Option<Credentials>,
    is_insecure: bool,
    max_bytes: usize,
    scheme: &'static str,
    authorization: Option<String>,
}

impl<'a> ImageClient<'a> {
    pub(super) fn new(
        fetcher: &'a Fetcher,
        reference: ImageReference,
        credentials: Option<Credentials>,
        is_insecure: bool,
        max_bytes: usize,
    ) -> Self {
        Self { fetcher, reference, credentials, is_insecure, max_bytes, scheme: "https", authorization: None }
    }

    /// The manifest of the image. Of an index it is that of the usual platform, as for containers.
    pub(super) async fn manifest(&mut self) -> Result<Manifest, WasmError> {
        let identifier = self.reference.identifier().to_owned();
        let manifest = self.fetch_manifest(&identifier).await?;
        if manifest.content.manifests.is_empty() {
            return Ok(manifest);
        }
        let is_usual = |descriptor: &&Descriptor| {
            descriptor.platform.as_ref().is_none_or(|platform| {
                platform.architecture == "wasm"
                    || (platform.os == "linux" && platform.architecture == "amd64")
            })
        };
        let chosen = manifest.content.manifests.iter().find(is_usual).map(|found| found.digest.clone());
        let chosen = chosen.filter(|digest| is_digest(digest));
        let chosen = chosen.ok_or_else(|| self.unusable("the index has no image for linux/amd64"))?;
        self.fetch_manifest(&chosen).await
    }

    async fn fetch_manifest(&mut self, identifier: &str) -> Result<Manifest, WasmError> {
        let accepted = format!("{DOCKER_MANIFEST}, {DOCKER_LIST}, {OCI_MANIFEST}, {OCI_INDEX}");
        let bytes = self.get(&format!("manifests/{identifier}"), &accepted, MAX_MANIFEST).await?;
        let digest = sha256(&bytes);
        if let Some(expected) = identifier.strip_prefix("sha256:")
            && expected != digest
        {
            return Err(
                self.unusable(&format!("the manifest has the digest sha256:{digest}, not {identifier}"))
            );
        }
        let content: Content = serde_json::from_slice(&bytes)
            .map_err(|error| self.unusable(&format!("the manifest cannot be read: {error}")))?;
        if content.layers.len() > MAX_LAYERS || content.manifests.len() > MAX_LAYERS {
            return Err(self.unusable("the manifest is too long"));
        }
        Ok(Manifest { digest, content })
    }

    /// The module of an image in one of the three forms there are.
    pub(super) async fn module(&mut self, manifest: &Manifest) -> Result<Bytes, WasmError> {
        let layers = &manifest.content.layers;
        let last = layers.last().ok_or_else(|| self.unusable("it has no layers"))?.clone();
        let is_docker = manifest.content.media_type == DOCKER_MANIFEST;
        let expected = if is_docker { DOCKER_LAYER } else { OCI_LAYER };
        if last.media_type == expected {
            let blob = self.blob(&last).await?;
            return plugin_of_layer(&blob, self.max_bytes).map_err(|reason| self.unusable(&reason));
        }
        let raw = layers.iter().find(|layer| layer.media_type == WASM_LAYER).filter(|_| !is_docker).cloned();
        match raw {
            Some(layer) => self.blob(&layer).await,
            None => Err(self.unusable(&format!(
                "its last layer is of the type {:?}; expected {expected}, or a layer of the type {WASM_LAYER}",
                last.media_type
            ))),
        }
    }

    async fn blob(&mut self, layer: &Descriptor) -> Result<Bytes, WasmError> {
        if !is_digest(&layer.digest) {
            return Err(self.unusable(&format!("{:?} is not the digest of a layer", layer.digest)));
        }
        if usize::try_from(layer.size).map_or(true, |size| size > self.max_bytes) {
            let (size, limit) = (layer.size, self.max_bytes);
            return Err(self.unusable(&format!(
                "its layer has {size} bytes; the limit is {limit} (ISTIO_WASM_MAX_BINARY_SIZE_BYTES)"
            )));
        }
        let bytes = self.get(&format!("blobs/{}", layer.digest), "*/*", self.max_bytes).await?;
        let digest = format!("sha256:{}", sha256(&bytes));
        if !digest.eq_ignore_ascii_case(&layer.digest) {
            return Err(self.unusable(&format!("its layer has the digest {digest}, not {}", layer.digest)));
        }
        Ok(bytes)
    }

    /// A page of the registry, asked for again with a token if the registry wants one.
    async fn get(&mut self, path: &str, accepted: &str, limit: usize) -> Result<Bytes, WasmError> {
        let mut is_retry = false;
        loop {
            let request = self.request(path, accepted)?;
            let answer = match self.fetcher.follow(request).await {
                // Parity: a registry without TLS is asked without; here only where it was named as insecure.
                Err(FetchError::Network { .. }) if self.is_insecure && self.scheme == "https" => {
                    self.scheme = "http";
                    continue;
                }
                answer => answer?,
            };
            let status = answer.status();
            match status {
                StatusCode::OK => return Ok(fetch::body(answer, limit).await?),
                StatusCode::UNAUTHORIZED if !is_retry => {
                    is_retry = true;
                    self.authorization = Some(self.authorize(answer.headers()).await?);
                }
                status => {
                    let hint = match status {
                        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                            "; check imagePullSecret of the WasmPlugin"
                        }
                        StatusCode::NOT_FOUND => "; there is no such image, or it is not for everybody",
                        _ => "",
                    };
                    return Err(WasmError::Status { url: self.url(path), status, hint });
                }
            }
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}://{}/v2/{}/{path}", self.scheme, self.reference.registry, self.reference.repository)
    }

    fn request(&self, path: &str, accepted: &str) -> Result<Fetch, WasmError> {
        let mut request = Fetch::get(&self.url(path))?;
        request.unverified = self.is_insecure;
        if let Ok(accepted) = HeaderValue::from_str(accepted) {
            request.headers.insert(header::ACCEPT, accepted);
        }
        if let Some(Ok(mut value)) = self.authorization.as_deref().map(HeaderValue::from_str) {
            value.set_sensitive(true);
            request.headers.insert(header::AUTHORIZATION, value);
        }
        Ok(request)
    }

    /// What the registry's challenge asks for: the credentials themselves, or a token from the server it names.
    async fn authorize(&self, headers: &HeaderMap) -> Result<String, WasmError> {
        let challenges =
            headers.get_all(header::WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let challenges: Vec<&str> = challenges.collect();
        if let Some(parameters) = challenges.iter().find_map(|challenge| scheme(challenge, "bearer")) {
            return self.token(parameters).await;
        }
        let basic = challenges.iter().any(|challenge| scheme(challenge, "basic").is_some());
        match &self.credentials {
            Some(credentials) if basic => Ok(credentials.basic()),
            _ => Err(self.unusable("the registry wants credentials; set imagePullSecret of the WasmPlugin")),
        }
    }

    async fn token(&self, parameters: &str) -> Result<String, WasmError> {
        let realm = parameter(parameters, "realm").unwrap_or_default();
        // Credentials go to the server that the registry names, so never in the clear.
        let is_safe = realm.starts_with("https://") || (self.is_insecure && realm.starts_with("http://"));
        if !is_safe {
            return Err(self.unusable(&format!("the token server {realm:?} is not https://")));
        }
        let mut query = Vec::new();
        for name in ["service", "scope"] {
            query.extend(
                parameter(parameters, name).map(|value| format!("{name}={}", percent_encode(&value))),
            );
        }
        let separator = if realm.contains('?') { '&' } else { '?' };
        let mut request = Fetch::get(&format!("{realm}{separator}{}", query.join("&")))?;
        request.unverified = self.is_insecure;
        if let Some(Ok(mut value)) =
            self.credentials.as_ref().map(|credentials| HeaderValue::from_str(&credentials.basic()))
        {
            value.set_sensitive(true);
            request.headers.insert(header::AUTHORIZATION, value);
        }
        let answer = self.fetcher.send(&request).await?;
        let status = answer.status();
        if status != StatusCode::OK {
            let hint = "; check imagePullSecret of the WasmPlugin";
            return Err(WasmError::Status { url: realm, status, hint });
        }
        let bytes = fetch::body(answer, MAX_TOKEN).await?;
        let token: Token = serde_json::from_slice(&bytes).unwrap_or_default();
        let token = if token.token.is_empty() { token.access_token } else { token.token };
        if token.is_empty() {
            return Err(self.unusable(&format!("the token server {realm} gives no token")));
        }
        Ok(format!("Bearer {token}"))
    }

    fn unusable(&self, reason: &str) -> WasmError {
        let ImageReference { registry, repository, .. } = &self.reference;
        let separator = if self.reference.digest.is_some() { '@' } else { ':' };
        let image = format!("{registry}/{repository}{separator}{}", self.reference.identifier());
        WasmError::Image { image, reason: reason.to_owned() }
    }
}

/// How many layers a manifest has.
pub(super) fn count_layers(bytes: &[u8]) -> Option<usize> {
    serde_json::from_slice::<Content>(bytes).ok().map(|content| content.layers.len())
}

/// The parameters of a challenge of this scheme.
fn scheme<'a>(challenge: &'a str, wanted: &str) -> Option<&'a str> {
    let (scheme, parameters) = challenge.trim().split_once(' ').unwrap_or((challenge.trim(), ""));
    scheme.eq_ignore_ascii_case(wanted).then_some(parameters)
}

/// The value of a parameter, which may be quoted.
fn parameter(parameters: &str, wanted: &str) -> Option<String> {
    let mut rest = parameters;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([' ', ',']);
        let (value, tail) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_once(',').unwrap_or((after, "")),
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value.trim().to_owned());
        }
        rest = tail;
    }
    None
}

/// Text as part of a query.
pub(crate) fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn challenges_are_taken_apart() {
        let challenge =
            r#"Bearer realm="https://auth.io/token",service="r.io",scope="repository:a/b:pull,push""#;
        let parameters = scheme(challenge, "bearer").unwrap();
        assert_eq!(parameter(parameters, "realm").as_deref(), Some("https://auth.io/token"));
        assert_eq!(parameter(parameters, "scope").as_deref(), Some("repository:a/b:pull,push"));
        assert_eq!(parameter(parameters, "none"), None);
        assert_eq!(percent_encode("repository:a/b:pull"), "repository%3Aa%2Fb%3Apull");
    }

    proptest! {
        #[test]
        fn any_challenge_and_manifest_are_survived(text in ".{0,120}") {
            let _ = scheme(&text, "bearer").map(|parameters| parameter(parameters, "realm"));
            let _ = serde_json::from_str::<Content>(&text);
        }
    }
}
