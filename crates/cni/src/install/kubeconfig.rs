//! The kubeconfig that the plugin asks the API server with.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Where the API server is and how to trust it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiServer {
    /// `https` unless said otherwise.
    pub protocol: String,
    /// The host.
    pub host: String,
    /// The port.
    pub port: String,
    /// The certificates to trust; `None` to trust anyone.
    pub ca: Option<Vec<u8>>,
}

/// Why no kubeconfig can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    /// The address of the API server is not known.
    #[error("{0} is not set; the installer has to run in a pod")]
    Unset(&'static str),
    /// The token file holds no valid token.
    #[error("the token of the service account is empty or has characters that no token has")]
    Token,
}

/// The text of the kubeconfig.
pub fn render(server: &ApiServer, token: &str) -> Result<String, KubeconfigError> {
    for (value, name) in
        [(&server.host, "KUBERNETES_SERVICE_HOST"), (&server.port, "KUBERNETES_SERVICE_PORT")]
    {
        if value.is_empty() {
            return Err(KubeconfigError::Unset(name));
        }
    }
    let token = token.trim();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if token.is_empty() || !token.bytes().all(is_plain) {
        return Err(KubeconfigError::Token);
    }
    let protocol = if server.protocol.is_empty() { "https" } else { &server.protocol };
    let host = if server.host.contains(':') { format!("[{}]", server.host) } else { server.host.clone() };
    let trust = match &server.ca {
        Some(ca) => format!("certificate-authority-data: {}", STANDARD.encode(ca)),
        None => "insecure-skip-tls-verify: true".to_owned(),
    };
    let port = &server.port;
    Ok(format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    {trust}\n    server: {protocol}://{host}:{port}\n  name: local\n\
         contexts:\n- context:\n    cluster: local\n    user: istio-cni\n  name: istio-cni-context\n\
         current-context: istio-cni-context\nkind: Config\nusers:\n- name: istio-cni\n  user:\n    token: {token}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families_become_urls() {
        let server = ApiServer { host: "fd00::1".into(), port: "443".into(), ..ApiServer::default() };
        let text = render(&server, "abc\n").unwrap();
        assert!(
            text.contains("server: https://[fd00::1]:443\n")
                && text.contains("insecure-skip-tls-verify: true\n")
        );
        assert!(text.ends_with("    token: abc\n"));
    }

    #[test]
    fn token_cannot_add_lines() {
        let server = ApiServer { host: "h".into(), port: "1".into(), ..ApiServer::default() };
        assert_eq!(render(&server, "a\nusers: []"), Err(KubeconfigError::Token));
        assert_eq!(
            render(&ApiServer::default(), "a"),
            Err(KubeconfigError::Unset("KUBERNETES_SERVICE_HOST"))
        );
    }
}
