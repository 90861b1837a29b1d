//! Credentials for registries, in the form of Docker's configuration (`.dockerconfigjson`).

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use zeroize::Zeroizing;

/// The name that Docker has for its own registry.
const DOCKER: &str = "https://index.docker.io/v1/";

/// The JSON of a pull secret.
#[derive(Clone)]
pub struct PullSecret(Zeroizing<String>);

impl fmt::Debug for PullSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PullSecret(..)")
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DockerConfig {
    auths: BTreeMap<String, Entry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
}

/// A user and a password.
#[derive(Clone)]
pub(super) struct Credentials(Zeroizing<String>);

impl Credentials {
    /// The value of a header that proves who asks.
    pub(super) fn basic(&self) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(self.0.as_bytes()))
    }
}

impl PullSecret {
    /// Takes the JSON of a secret.
    pub fn new(json: String) -> Self {
        Self(Zeroizing::new(json))
    }

    /// The credentials for a registry, if the secret has any.
    pub(super) fn credentials(&self, registry: &str) -> Option<Credentials> {
        let config: DockerConfig = serde_json::from_str(&self.0).ok()?;
        let is_meant = |name: &str| {
            let bare =
                name.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
            bare == registry || (registry == "index.docker.io" && (name == DOCKER || bare == "docker.io"))
        };
        let entry = config.auths.into_iter().find(|(name, _)| is_meant(name))?.1;
        if !entry.username.is_empty() {
            return Some(Credentials(Zeroizing::new(format!("{}:{}", entry.username, entry.password))));
        }
        let decoded = String::from_utf8(BASE64_STANDARD.decode(entry.auth.trim()).ok()?).ok()?;
        decoded.contains(':').then(|| Credentials(Zeroizing::new(decoded)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_found_by_registry() {
        let secret = PullSecret::new(
            r#"{"auths": {"https://r.io/": {"auth": "dTpw"}, "s.io": {"username": "a", "password": "b:c"}, "https://index.docker.io/v1/": {"auth": "ZDpk"}}}"#.into(),
        );
        let basic = |registry: &str| secret.credentials(registry).map(|credentials| credentials.basic());
        assert_eq!(basic("r.io").as_deref(), Some("Basic dTpw"));
        assert_eq!(basic("s.io"), Some(format!("Basic {}", BASE64_STANDARD.encode("a:b:c"))));
        assert_eq!(basic("index.docker.io").as_deref(), Some("Basic ZDpk"));
        assert_eq!(basic("evil-r.io"), None);
        assert!(PullSecret::new("null".into()).credentials("r.io").is_none());
        assert_eq!(format!("{secret:?}"), "PullSecret(..)");
    }
}
