//! Names of images: `[REGISTRY/]REPOSITORY[:TAG][@DIGEST]`.

/// The registry that images without one are in.
const DEFAULT_REGISTRY: &str = "index.docker.io";

/// A name, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageReference {
    /// Host and port of the registry.
    pub registry: String,
    /// The repository in it.
    pub repository: String,
    /// The tag; `latest` if there is neither tag nor digest.
    pub tag: String,
    /// Digest, such as `sha256:0123…`.
    pub digest: Option<String>,
}

impl ImageReference {
    /// Takes a name apart.
    pub fn parse(text: &str) -> Result<Self, String> {
        let invalid = |reason: &str| {
            format!("image {text:?}: {reason}; expected REGISTRY/REPOSITORY:TAG or …@sha256:DIGEST")
        };
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(invalid("the digest is not sha256 with 64 hexadecimal digits"));
        }
        let (registry, rest) = match name.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
            _ => (DEFAULT_REGISTRY, name),
        };
        let (repository, tag) = match rest.rsplit_once(':') {
            Some((repository, tag)) if !tag.contains('/') => (repository, tag),
            _ => (rest, "latest"),
        };
        let is_registry = registry.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]".contains(c));
        let is_path = !repository.is_empty()
            && repository.split('/').all(|part| {
                !part.is_empty()
                    && part != ".."
                    && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c))
            });
        let is_tag = (1..=128).contains(&tag.len())
            && tag.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
        if !is_registry || !is_path || !is_tag || text.len() > 512 {
            return Err(invalid("it has characters that names of images do not have"));
        }
        let is_official = registry == DEFAULT_REGISTRY && !repository.contains('/');
        let repository = if is_official { format!("library/{repository}") } else { repository.to_owned() };
        Ok(Self {
            registry: registry.to_owned(),
            repository,
            tag: tag.to_owned(),
            digest: digest.map(str::to_ascii_lowercase),
        })
    }

    /// What the registry is asked for.
    pub fn identifier(&self) -> &str {
        self.digest.as_deref().unwrap_or(&self.tag)
    }
}

/// Whether this is a digest that can be checked.
pub(super) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_taken_apart() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        for (text, expected) in [
            ("ghcr.io/a/b:v1", "ghcr.io a/b v1".to_owned()),
            ("localhost:5000/b", "localhost:5000 b latest".to_owned()),
            ("b:v1", "index.docker.io library/b v1".to_owned()),
            ("a/b", "index.docker.io a/b latest".to_owned()),
            (&format!("r.io/a@{digest}"), format!("r.io a {digest}")),
            (&format!("r.io/a:v1@{digest}"), format!("r.io a {digest}")),
        ] {
            let found = ImageReference::parse(text).unwrap();
            assert_eq!(format!("{} {} {}", found.registry, found.repository, found.identifier()), expected);
        }
        for broken in [
            "",
            "r.io/",
            "r.io/A",
            "r.io/a/../b",
            "r.io/a:b c",
            "r.io/a@sha256:12",
            "r.io/a@md5:x",
            "r.io/a?b=c",
        ] {
            assert!(ImageReference::parse(broken).is_err(), "{broken}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in ".{0,80}") {
            if let Ok(reference) = ImageReference::parse(&text) {
                // What is accepted can be put into a URL as it is.
                prop_assert!(!reference.repository.contains(['?', '#', ' ', '%']));
            }
        }
    }
}
