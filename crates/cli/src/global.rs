//! Flags of every command.

use clap::Args;

/// Flags of every command.
#[derive(Args, Debug)]
pub(crate) struct Global {
    /// Namespace of objects that name none.
    #[arg(
        short,
        long,
        global = true,
        value_name = "NAMESPACE",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) namespace: String,
    /// Namespace of the control plane.
    #[arg(
        short,
        long = "istioNamespace",
        global = true,
        value_name = "NAMESPACE",
        default_value = "istio-system"
    )]
    pub(crate) istio_namespace: String,
}
