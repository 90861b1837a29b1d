//! Copies of requests sent elsewhere.

use canopus_proto::istio::networking::v1alpha3::{HttpMirrorPolicy, HttpRoute, Percent};

use crate::text::fixed;
use crate::validate::code::codes;
use crate::validate::destination;
use crate::validate::scope::Scope;

codes! {
    OUT_OF_RANGE: error "mirror-percentage-out-of-range", "give a number from 0 to 100";
    DEPRECATED: warning "mirror-percent-deprecated", "use mirrorPercentage";
    NO_DESTINATION: error "mirror-without-destination", "give a destination";
}

/// The shares of what `mirror` gets.
pub(super) fn percentages(route: &HttpRoute, mut scope: Scope<'_>) {
    #[expect(deprecated, reason = "this is where its use is found")]
    let whole = route.mirror_percent;
    if let Some(percent) = whole {
        let mut scope = scope.field("mirrorPercent");
        let value = percent.value;
        scope.add_if(value > 100, || {
            let message = format!("mirror_percent must have a max value of 100 (it has {value})");
            OUT_OF_RANGE.says(message).with_value(value)
        });
        let message = r#"using deprecated setting "mirrorPercent", use "mirrorPercentage" instead"#;
        scope.add(DEPRECATED.says(message));
    }
    scope.optional("mirrorPercentage", route.mirror_percentage.as_ref(), |percent, scope| {
        share(percent, "mirror_percentage", scope);
    });
}

fn share(percent: &Percent, name: &str, mut scope: Scope<'_>) {
    let value = percent.value;
    let shown = fixed(value);
    scope.add_if(value > 100.0, || {
        OUT_OF_RANGE.says(format!("{name} must have a max value of 100 (it has {shown})")).with_value(value)
    });
    scope.add_if(value < 0.0, || {
        OUT_OF_RANGE.says(format!("{name} must have a min value of 0 (it has {shown})")).with_value(value)
    });
}

/// Checks one of several mirrors.
pub(super) fn check(mirror: &HttpMirrorPolicy, mut scope: Scope<'_>) {
    let Some(destination) = &mirror.destination else {
        let message = "destination is required for mirrors";
        return scope.field("destination").add(NO_DESTINATION.says(message));
    };
    destination::check(destination, scope.field("destination"));
    scope.optional("percentage", mirror.percentage.as_ref(), |percent, scope| {
        share(percent, "mirror percentage", scope);
    });
}
