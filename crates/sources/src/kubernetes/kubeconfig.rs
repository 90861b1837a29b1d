//! Kubeconfigs that somebody else wrote.
//!
//! A Secret that leads to a remote cluster may be written by people who are not trusted with the control plane's own file
//! system and processes. A kubeconfig can name programs to run and files to send, so those fields are refused unless
//! `PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS` allows them. Error texts name fields, never values: most are secret.

use std::collections::BTreeSet;

use kube::config::{AuthInfo, Config, KubeConfigOptions, Kubeconfig};

use super::limit::RateLimit;
use super::server::Cluster;

/// A kubeconfig larger than this is refused. A Secret holds a mebibyte at most.
const MAX_BYTES: usize = 1 << 20;

/// The provider of tokens that neither reads files nor runs programs.
const SAFE_PROVIDER: &str = "oidc";

/// Why a kubeconfig of a remote cluster is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    /// The kubeconfig is too large.
    #[error("it is larger than {MAX_BYTES} bytes")]
    TooLarge,
    /// The text is not a kubeconfig, or the context it points to is incomplete.
    #[error("it is not a usable kubeconfig: {0}")]
    Malformed(String),
    /// The kubeconfig has a field that reads files or runs programs.
    #[error(
        "user {user:?} has {field}, which is not allowed; write the credentials into the kubeconfig itself, or allow {option} in \
         PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS"
    )]
    NotAllowed {
        /// The name of the user entry.
        user: String,
        /// The field.
        field: String,
        /// The word that allows it.
        option: String,
    },
}

/// The names of the fields that are allowed although they read files or run programs.
pub type AllowedFields = BTreeSet<String>;

/// Reads a kubeconfig and refuses what is not allowed.
pub(crate) fn parse(bytes: &[u8], allowed: &AllowedFields) -> Result<Kubeconfig, KubeconfigError> {
    if bytes.len() > MAX_BYTES {
        return Err(KubeconfigError::TooLarge);
    }
    let text =
        std::str::from_utf8(bytes).map_err(|_| KubeconfigError::Malformed("it is not text".to_owned()))?;
    // The parser's own words may repeat a part of the content.
    let kubeconfig = Kubeconfig::from_yaml(text)
        .map_err(|_| KubeconfigError::Malformed("it cannot be read as YAML of a kubeconfig".to_owned()))?;
    for user in &kubeconfig.auth_infos {
        let refused = user.auth_info.as_ref().and_then(|credentials| refused_field(credentials, allowed));
        if let Some((field, option)) = refused {
            return Err(KubeconfigError::NotAllowed { user: user.name.clone(), field, option });
        }
    }
    Ok(kubeconfig)
}

/// The first field that reads a file or runs a program without being allowed to, and the word that would allow it.
fn refused_field(credentials: &AuthInfo, allowed: &AllowedFields) -> Option<(String, String)> {
    let provider = credentials.auth_provider.as_ref().map(|provider| provider.name.as_str());
    if let Some(name) = provider.filter(|name| *name != SAFE_PROVIDER && !allowed.contains(*name)) {
        return Some((format!("auth-provider {name:?}"), name.to_owned()));
    }
    let fields = [
        ("client-key", "clientKey", credentials.client_key.is_some()),
        ("client-certificate", "clientCertificate", credentials.client_certificate.is_some()),
        ("tokenFile", "tokenFile", credentials.token_file.is_some()),
        ("exec", "exec", credentials.exec.is_some()),
    ];
    let refused = fields.into_iter().find(|(_, option, is_set)| *is_set && !allowed.contains(*option));
    refused.map(|(field, option, _)| (field.to_owned(), option.to_owned()))
}

/// The name that a kubeconfig gives its cluster: that of its current context, else that of the first context, else of the first
/// cluster.
pub(crate) fn cluster_name(kubeconfig: &Kubeconfig) -> Option<String> {
    let cluster_of = |name: &str| {
        let context = kubeconfig.contexts.iter().find(|context| context.name == name)?;
        context.context.as_ref().map(|context| context.cluster.clone()).filter(|cluster| !cluster.is_empty())
    };
    let mut contexts: Vec<&str> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
    contexts.sort_unstable();
    let current = kubeconfig.current_context.as_deref();
    let named = current.into_iter().chain(contexts).find_map(cluster_of);
    let first =
        || kubeconfig.clusters.iter().map(|cluster| &cluster.name).filter(|name| !name.is_empty()).min();
    named.or_else(|| first().cloned())
}

impl Cluster {
    /// Prepares to reach a remote cluster as a kubeconfig says that was checked before.
    pub(crate) async fn connect_remote(
        kubeconfig: Kubeconfig,
        limit: RateLimit,
    ) -> Result<Self, KubeconfigError> {
        let malformed = |error: &dyn std::fmt::Display| KubeconfigError::Malformed(error.to_string());
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let config = config.map_err(|error| malformed(&error))?;
        Self::new(config, limit).map_err(|error| malformed(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(credentials: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: west, cluster: {{server: 'https://192.0.2.1'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: west, user: u}}}}]\n\
             users: [{{name: u, user: {credentials}}}]\n"
        )
    }

    fn refused(credentials: &str, allowed: &[&str]) -> Option<String> {
        let allowed = allowed.iter().map(ToString::to_string).collect();
        parse(kubeconfig(credentials).as_bytes(), &allowed).err().map(|error| error.to_string())
    }

    #[test]
    fn credentials_in_the_file_itself_are_taken() {
        assert_eq!(refused("{token: secret}", &[]), None);
        assert_eq!(refused("{client-certificate-data: QQ==, client-key-data: QQ==}", &[]), None);
        assert_eq!(refused("{auth-provider: {name: oidc, config: {}}}", &[]), None);
    }

    #[test]
    fn files_and_programs_are_refused_unless_allowed() {
        let cases = [
            ("{exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}}", "exec"),
            ("{tokenFile: /etc/shadow}", "tokenFile"),
            ("{client-key: /etc/key}", "clientKey"),
            ("{client-certificate: /etc/cert}", "clientCertificate"),
            ("{auth-provider: {name: gcp, config: {}}}", "gcp"),
        ];
        for (credentials, option) in cases {
            let error = refused(credentials, &[]).unwrap();
            assert!(error.contains(option), "{error}");
            assert_eq!(refused(credentials, &[option]), None);
        }
    }

    #[test]
    fn errors_do_not_repeat_the_content() {
        let error =
            parse(b"users: [{name: u, user: {token: [hunter2]}}]", &AllowedFields::new()).unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
        let binary = parse(&[0xff], &AllowedFields::new()).unwrap_err();
        assert!(binary.to_string().contains("not text"), "{binary}");
        let large = parse(&vec![b' '; MAX_BYTES + 1], &AllowedFields::new()).unwrap_err();
        assert_eq!(large, KubeconfigError::TooLarge);
    }

    #[test]
    fn cluster_is_named_by_the_current_context() {
        let parsed = parse(kubeconfig("{token: t}").as_bytes(), &AllowedFields::new()).unwrap();
        assert_eq!(cluster_name(&parsed).as_deref(), Some("west"));
        let elsewhere = Kubeconfig { current_context: Some("gone".to_owned()), ..parsed };
        assert_eq!(cluster_name(&elsewhere).as_deref(), Some("west"));
        assert_eq!(cluster_name(&Kubeconfig::default()), None);
    }
}
