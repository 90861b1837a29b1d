//! Telemetry.

use super::Limit::{MaxItems, Maximum, MinLength, Minimum, Required};
use super::{Entry, ONE_TARGET, rule};

pub(super) const LIMITS: &[Entry] = &[
    ("Telemetry", &[ONE_TARGET]),
    ("Telemetry.targetRefs", &[MaxItems(16)]),
    ("Tracing.random_sampling_percentage", &[Minimum(0), Maximum(100)]),
    ("Tracing.Literal.value", &[Required, MinLength(1)]),
    ("Tracing.Environment.name", &[Required, MinLength(1)]),
    ("Tracing.RequestHeader.name", &[Required, MinLength(1)]),
    ("Tracing.Formatter.value", &[Required, MinLength(1)]),
    ("ProviderRef.name", &[Required, MinLength(1)]),
    ("MetricSelector.custom_metric", &[MinLength(1)]),
    (
        "MetricsOverrides.TagOverride",
        &[
            rule(
                r#"((has(self.operation) ? self.operation : "") == "UPSERT") ? (self.value != "") : true"#,
                "value must be set when operation is UPSERT",
            ),
            rule(
                r#"((has(self.operation) ? self.operation : "") == "REMOVE") ? !has(self.value) : true"#,
                "value must not be set when operation is REMOVE",
            ),
        ],
    ),
];
