//! Parts that several kinds share.

use super::Entry;

pub(super) const WORDS: &[Entry] = &[
    (
        "WorkloadSelector",
        "Which workloads it is for.",
        &[(
            "match_labels",
            "Labels that a workload in the object's namespace has to have, every one of them.",
        )],
    ),
    ("PortSelector", "A port.", &[("number", "The number of the port.")]),
    (
        "PolicyTargetReference",
        "An object that a policy is attached to.",
        &[
            ("group", "The API group of the object; empty for Kubernetes' core group."),
            ("kind", "The kind of the object."),
            ("name", "The name of the object."),
            ("namespace", "Has to be empty: the object is in the namespace of the policy."),
        ],
    ),
];

pub(super) const NETWORKING: &[Entry] = &[
    (
        "WorkloadSelector",
        "Which workloads it is for.",
        &[("labels", "Labels that a workload has to have, every one of them.")],
    ),
    ("PortSelector", "A port.", &[("number", "The number of the port.")]),
    (
        "StringMatch",
        "A text that is matched in one of three ways.",
        &[
            ("exact", "The whole text."),
            ("prefix", "What the text begins with."),
            ("regex", "An RE2 expression that the whole text matches."),
        ],
    ),
    ("Percent", "A share of a hundred.", &[("value", "From 0 to 100; fractions count.")]),
    (
        "Destination",
        "A service, or a part of it, that traffic goes to.",
        &[
            ("host", "The name of the service; a short name is taken as one in the object's own namespace."),
            ("subset", "The name of a subset in the destination rule of the service."),
            ("port", "The port of the service; needed if it has several."),
        ],
    ),
];
