//! Admission: injection, validation, and care of the webhook configurations.

super::metrics! {
    WEBHOOK

    /// Injection requests received.
    Counter SIDECAR_INJECTION_REQUESTS_TOTAL = "sidecar_injection_requests_total"[];

    /// Injection requests answered.
    Counter SIDECAR_INJECTION_SUCCESS_TOTAL = "sidecar_injection_success_total"[];

    /// Injection requests that failed.
    Counter SIDECAR_INJECTION_FAILURE_TOTAL = "sidecar_injection_failure_total"[];

    /// Pods left as they were.
    Counter SIDECAR_INJECTION_SKIP_TOTAL = "sidecar_injection_skip_total"[];

    /// Seconds taken by an injection.
    Histogram SIDECAR_INJECTION_TIME_SECONDS = "sidecar_injection_time_seconds"[]
        in [0.1, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0];

    /// Objects found valid.
    Counter GALLEY_VALIDATION_PASSED = "galley_validation_passed"["group", "resource", "version"];

    /// Objects found invalid, by reason.
    Counter GALLEY_VALIDATION_FAILED = "galley_validation_failed"["group", "reason", "resource", "version"];

    /// Validation requests answered with an HTTP error.
    Counter GALLEY_VALIDATION_HTTP_ERROR = "galley_validation_http_error"["status"];

    /// Updates of the validation webhook's configuration.
    Counter GALLEY_VALIDATION_CONFIG_UPDATES = "galley_validation_config_updates"[];

    /// Updates of the validation webhook's configuration that failed, by reason.
    Counter GALLEY_VALIDATION_CONFIG_UPDATE_ERROR = "galley_validation_config_update_error"["reason"];

    /// Reads of the validation webhook's configuration that failed, by reason.
    Counter GALLEY_VALIDATION_CONFIG_LOAD_ERROR = "galley_validation_config_load_error"["reason"];

    /// Attempts to patch a webhook configuration.
    Counter WEBHOOK_PATCH_ATTEMPTS_TOTAL = "webhook_patch_attempts_total"["name"];

    /// Repeated attempts to patch a webhook configuration.
    Counter WEBHOOK_PATCH_RETRIES_TOTAL = "webhook_patch_retries_total"["name"];

    /// Failures to patch a webhook configuration, by reason.
    Counter WEBHOOK_PATCH_FAILURES_TOTAL = "webhook_patch_failures_total"["name", "reason"];
}
