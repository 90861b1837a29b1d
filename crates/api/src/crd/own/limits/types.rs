//! Selectors and references.

use super::Limit::{Each, MaxLength, MaxProperties, Maximum, MinLength, Minimum, Pattern, Required};
use super::{Entry, rule};

pub(super) const LIMITS: &[Entry] = &[
    (
        "WorkloadSelector.match_labels",
        &[
            MaxProperties(4096),
            rule(r#"self.all(key, !key.contains("*"))"#, "wildcard not allowed in label key match"),
            rule("self.all(key, key.size() != 0)", "key must not be empty"),
            Each(&[
                MaxLength(63),
                rule(r#"!self.contains("*")"#, "wildcard not allowed in label value match"),
            ]),
        ],
    ),
    ("PortSelector.number", &[Required, Minimum(1), Maximum(65535)]),
    (
        "PolicyTargetReference.group",
        &[MaxLength(253), Pattern(r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")],
    ),
    (
        "PolicyTargetReference.kind",
        &[Required, MinLength(1), MaxLength(63), Pattern("^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$")],
    ),
    ("PolicyTargetReference.name", &[Required, MinLength(1), MaxLength(253)]),
    (
        "PolicyTargetReference.namespace",
        &[rule("self.size() == 0", "cross namespace referencing is not currently supported")],
    ),
];
