//! Admission webhooks.

super::flags! {
    Injection

    /// Whether the proxy is a native sidecar container; `auto` makes it one where nodes can run it.
    // Parity: another word counts as false, not as the default.
    ENABLE_NATIVE_SIDECARS: Choice = "auto", one_of(&["auto", "true", "false"]), otherwise("false");

    /// MutatingWebhookConfiguration whose CA bundle is kept.
    INJECTION_WEBHOOK_CONFIG_NAME: Text = "istio-sidecar-injector";

    /// Whether injection is served.
    INJECT_ENABLED: Bool = "true";

    /// ValidatingWebhookConfiguration whose CA bundle is kept; empty keeps none.
    VALIDATION_WEBHOOK_CONFIG_NAME: Text = "istio-istio-system";
}
