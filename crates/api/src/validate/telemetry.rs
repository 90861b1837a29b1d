//! Telemetry: metrics, traces and access logs.

use canopus_proto::istio::telemetry::v1alpha1::access_logging::Filter;
use canopus_proto::istio::telemetry::v1alpha1::metric_selector::MetricMatch;
use canopus_proto::istio::telemetry::v1alpha1::metrics_overrides::TagOverride;
use canopus_proto::istio::telemetry::v1alpha1::metrics_overrides::tag_override::Operation;
use canopus_proto::istio::telemetry::v1alpha1::tracing::{CustomTag, custom_tag::Type};
use canopus_proto::istio::telemetry::v1alpha1::{Metrics, MetricsOverrides, ProviderRef, Tracing};

use super::code::{Fault, codes};
use super::scope::Scope;
use super::selector;
use crate::crd::check_expression;
use crate::istio::Telemetry;

codes! {
    UNNAMED_PROVIDER: error "telemetry-provider-without-name", "name an extension provider of the mesh config";
    SEVERAL_TRACINGS: warning "telemetry-tracing-twice", "keep one item of tracing";
    SEVERAL_PROVIDERS: warning "telemetry-tracing-providers", "keep one provider of traces";
    BAD_SAMPLING: error "telemetry-sampling-out-of-range", "give a percentage from 0 to 100";
    UNNAMED_TAG: error "telemetry-tag-without-name", "name the tag";
    EMPTY_TAG: error "telemetry-tag-empty", "give the tag something to say";
    UNNAMED_OVERRIDE: warning "telemetry-override-without-name", "name the tag";
    NO_OVERRIDE_VALUE: error "telemetry-override-without-value", "give a value, or use operation REMOVE";
    UNUSED_OVERRIDE_VALUE: error "telemetry-override-value-unused", "remove the value, or use operation UPSERT";
    UNNAMED_METRIC: error "telemetry-metric-without-name", "name the metric";
    BAD_FILTER: error "telemetry-filter-invalid", "give an expression in CEL, such as response.code >= 400";
}

/// Checks a Telemetry.
pub fn check(telemetry: &Telemetry, mut scope: Scope<'_>) {
    let spec = &telemetry.spec;
    let mut scope = scope.field("spec");
    let (selector, target) = (spec.selector.as_ref(), spec.target_ref.as_ref());
    selector::one_way(selector, target, &spec.target_refs, scope.again());
    scope.optional("selector", selector, selector::workload);
    selector::target_refs(target, &spec.target_refs, scope.again());
    scope.each("metrics", &spec.metrics, metrics);
    scope.field("tracing").add_if(spec.tracing.len() > 1, || {
        SEVERAL_TRACINGS.says("multiple tracing is not currently supported")
    });
    scope.each("tracing", &spec.tracing, tracing);
    scope.each("accessLogging", &spec.access_logging, |logging, mut scope| {
        scope.optional("filter", logging.filter.as_ref(), |filter, mut scope| {
            scope.field("expression").require(self::filter(filter));
        });
        providers(&logging.providers, scope);
    });
}

fn providers(providers: &[ProviderRef], mut scope: Scope<'_>) {
    scope.first_only(|mut scope| {
        scope.each("providers", providers, |provider, mut scope| {
            scope.field("name").add_if(provider.name.is_empty(), || {
                UNNAMED_PROVIDER.says("providers.name may not be empty")
            });
        });
    });
}

/// Which requests are logged: an expression that can be read. What it names is known only to the proxy.
pub fn filter(filter: &Filter) -> Result<(), Fault> {
    check_expression(&filter.expression).map_err(|error| {
        let message = format!("must be a valid CEL expression, {error}");
        BAD_FILTER.says(message).with_value(&filter.expression)
    })
}

fn tracing(tracing: &Tracing, mut scope: Scope<'_>) {
    scope.field("providers").add_if(tracing.providers.len() > 1, || {
        SEVERAL_PROVIDERS.says("multiple providers is not currently supported")
    });
    providers(&tracing.providers, scope.again());
    let sampling = tracing.random_sampling_percentage.unwrap_or_default().value;
    scope.field("randomSamplingPercentage").add_if(!(0.0..=100.0).contains(&sampling), || {
        BAD_SAMPLING.says("randomSamplingPercentage must be in range [0.0, 100.0]").with_value(sampling)
    });
    scope.each_entry("customTags", &tracing.custom_tags, custom_tag);
}

fn custom_tag(name: &str, tag: &CustomTag, mut scope: Scope<'_>) {
    scope.add_if(name.is_empty(), || UNNAMED_TAG.says("tag name may not be empty"));
    let (text, field, what) = match &tag.r#type {
        Some(Type::Literal(literal)) => (&literal.value, "literal", "literal tag value"),
        Some(Type::Header(header)) => (&header.name, "header", "header tag name"),
        Some(Type::Environment(environment)) => (&environment.name, "environment", "environment tag name"),
        Some(Type::Formatter(_)) | None => return,
    };
    scope.field(field).add_if(text.is_empty(), || EMPTY_TAG.says(format!("{what} may not be empty")));
}

fn metrics(metrics: &Metrics, mut scope: Scope<'_>) {
    providers(&metrics.providers, scope.again());
    scope.each("overrides", &metrics.overrides, overrides);
}

fn overrides(overrides: &MetricsOverrides, mut scope: Scope<'_>) {
    scope.each_entry("tagOverrides", &overrides.tag_overrides, |name, tag, mut scope| {
        scope.add_if(name.is_empty(), || UNNAMED_OVERRIDE.says("tagOverrides.name may not be empty"));
        scope.field("value").require(tag_override(tag));
    });
    let metric = overrides.r#match.as_ref().and_then(|selector| selector.metric_match.as_ref());
    if matches!(metric, Some(MetricMatch::CustomMetric(name)) if name.is_empty()) {
        let fault = UNNAMED_METRIC.says("customMetric may not be empty");
        scope.field("match").field("customMetric").add(fault);
    }
}

fn tag_override(tag: &TagOverride) -> Result<(), Fault> {
    match Operation::try_from(tag.operation) {
        Ok(Operation::Upsert) if tag.value.is_empty() => {
            Err(NO_OVERRIDE_VALUE.says("tagOverrides.value must be set when operation is UPSERT"))
        }
        Ok(Operation::Remove) if !tag.value.is_empty() => {
            let message = "tagOverrides.value may only be set when operation is UPSERT";
            Err(UNUSED_OVERRIDE_VALUE.says(message).with_value(&tag.value))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(expression: &str) -> Option<String> {
        filter(&Filter { expression: expression.into() }).err().map(|fault| fault.to_string())
    }

    #[test]
    fn filter_is_an_expression_that_can_be_read() {
        for fine in
            ["response.code >= 400", "has(request.auth) && !(a in ['b', \"c\"])", "a.exists(x, x > 1.5)"]
        {
            assert_eq!(said(fine), None, "{fine}");
        }
        for broken in [")++++", "a b", "'open", "a ? b"] {
            let message = said(broken).unwrap();
            assert!(message.starts_with("must be a valid CEL expression, ERROR: <input>:1:"), "{message}");
        }
    }

    #[test]
    fn filter_that_is_endless_is_refused_or_read() {
        let long = 100_000;
        for part in ["(", "[", "!", "-", "a.", "a+", "a?b:", "a[", "{1:", "a(", "a&&", "a||"] {
            _ = said(&part.repeat(long / part.len()));
            _ = said(&format!("{}a", part.repeat(long / part.len())));
        }
        _ = said(&format!("{}a{}", "(".repeat(long), ")".repeat(long)));
        _ = said(&"a".repeat(long));
        _ = said(&format!("'{}'", "é".repeat(long)));
    }
}
