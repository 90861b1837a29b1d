//! What the control plane says about objects.

use super::Entry;

pub(super) const WORDS: &[Entry] = &[
    (
        "IstioStatus",
        "What the control plane says about the object.",
        &[
            ("conditions", "What holds of it."),
            ("validation_messages", "What analysis found."),
            ("observed_generation", "The generation of the object that this is about."),
        ],
    ),
    (
        "IstioCondition",
        "Something that holds, or does not.",
        &[
            ("type", "What it is."),
            ("status", "Whether it holds: True, False or Unknown."),
            ("last_probe_time", "When it was looked at last."),
            ("last_transition_time", "When it changed last."),
            ("reason", "Why it changed last, in one word."),
            ("message", "Why it changed last, for people."),
            ("observed_generation", "The generation of the object that this is about."),
        ],
    ),
];

pub(super) const ANALYSIS: &[Entry] = &[
    (
        "AnalysisMessageBase",
        "Something analysis found.",
        &[
            ("type", "What sort of thing."),
            ("level", "How bad it is."),
            ("documentation_url", "Where it is explained."),
        ],
    ),
    (
        "AnalysisMessageBase.Type",
        "A sort of message.",
        &[("name", "Its name."), ("code", "Its code, such as `IST0101`.")],
    ),
];
