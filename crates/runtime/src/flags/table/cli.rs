//! The command line and the installer.

super::flags! {
    Cli

    /// Whether installation finds out by itself that it runs on GKE.
    AUTO_GKE_DETECTION: Bool = "true";

    /// Registry of images built from source.
    HUB: Text = "localhost:5000";

    /// File with defaults for command-line flags.
    ISTIOCONFIG: Text = "$HOME/.istioctl/config.yaml";

    /// Default of `--authority`.
    ISTIOCTL_AUTHORITY: Text = "";

    /// Default of `--cert-dir`.
    ISTIOCTL_CERT_DIR: Text = "";

    /// Default of `--insecure`.
    ISTIOCTL_INSECURE: Bool = "false";

    /// Default of `--istioNamespace`.
    ISTIOCTL_ISTIONAMESPACE: Text = "istio-system";

    /// Default of `--plaintext`.
    ISTIOCTL_PLAINTEXT: Bool = "false";

    /// Whether commands that have an experimental variant run it.
    ISTIOCTL_PREFER_EXPERIMENTAL: Bool = "false";

    /// Default of `--xds-address`.
    ISTIOCTL_XDS_ADDRESS: Text = "";

    /// Default of `--xds-port`.
    ISTIOCTL_XDS_PORT: Int = "15012";

    /// Tag of images built from source.
    TAG: Text = "latest";

    /// Kind of terminal; `dumb` prints without colours.
    TERM: Text = "";
}
