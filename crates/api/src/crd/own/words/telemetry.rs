//! What proxies report.

use super::Entry;

const PROVIDERS: &str =
    "Providers in the configuration of the mesh; those it has as default, if there is none.";
const MODE: &[(&str, &str)] =
    &[("mode", "Whether for traffic the workload sends or receives; both by default.")];

pub(super) const WORDS: &[Entry] = &[
    (
        "Telemetry",
        "What proxies report about traffic.",
        &[
            ("selector", "Which workloads it is for; all of the namespace by default."),
            ("targetRef", "Replaced by `targetRefs`."),
            ("targetRefs", "Gateways or services it is for."),
            ("tracing", "Traces."),
            ("metrics", "Metrics."),
            ("access_logging", "Access logs."),
        ],
    ),
    ("ProviderRef", "A provider.", &[("name", "Its name in the configuration of the mesh.")]),
    (
        "Tracing",
        "What is traced.",
        &[
            ("match", "For which traffic."),
            ("providers", PROVIDERS),
            ("random_sampling_percentage", "Which share of requests is traced, if no trace came with them."),
            ("disable_span_reporting", "Reports nothing; traces are passed on all the same."),
            ("custom_tags", "More tags, by name."),
            ("enable_istio_tags", "Adds the mesh's own tags; true by default."),
            ("use_request_id_for_trace_sampling", "Lets the id of a request decide; true by default."),
            ("disable_context_propagation", "Does not pass traces on."),
        ],
    ),
    ("Tracing.TracingSelector", "For which traffic.", MODE),
    (
        "Tracing.CustomTag",
        "A tag.",
        &[
            ("literal", "Always the same."),
            ("environment", "From the environment of the proxy."),
            ("header", "From a header of the request."),
            ("formatter", "From the operators of access logs."),
        ],
    ),
    ("Tracing.Literal", "A fixed value.", &[("value", "The value.")]),
    (
        "Tracing.Environment",
        "A value from the environment.",
        &[("name", "The name of the variable."), ("default_value", "The value if it is not there.")],
    ),
    (
        "Tracing.RequestHeader",
        "A value from a header.",
        &[("name", "The name of the header."), ("default_value", "The value if it is not there.")],
    ),
    (
        "Tracing.Formatter",
        "A value made like those of access logs.",
        &[("value", "Text with operators such as `%PROTOCOL%`.")],
    ),
    (
        "Metrics",
        "What is counted.",
        &[
            ("providers", PROVIDERS),
            ("overrides", "What is different for some metrics, in this order."),
            ("reporting_interval", "How often metrics of connections are updated; every 5 s by default."),
        ],
    ),
    (
        "MetricsOverrides",
        "What is different for some metrics.",
        &[
            ("match", "Which metrics; all by default."),
            ("disabled", "Does not report them."),
            ("tag_overrides", "Tags to change, by name."),
        ],
    ),
    (
        "MetricSelector",
        "Which metrics.",
        &[
            ("metric", "One of the mesh's own."),
            ("custom_metric", "One of another name."),
            ("mode", "Whether for traffic the workload sends or receives; both by default."),
        ],
    ),
    (
        "MetricsOverrides.TagOverride",
        "What is done with a tag.",
        &[("operation", "Whether it is set or taken out."), ("value", "A CEL expression for its value.")],
    ),
    (
        "AccessLogging",
        "What is logged.",
        &[
            ("match", "For which traffic."),
            ("providers", PROVIDERS),
            ("disabled", "Logs nothing."),
            ("filter", "Which requests."),
        ],
    ),
    (
        "AccessLogging.Filter",
        "Which requests are logged.",
        &[("expression", "A CEL expression that is true for them.")],
    ),
    ("AccessLogging.LogSelector", "For which traffic.", MODE),
];
