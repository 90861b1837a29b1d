//! Extensions of proxies.

use super::Limit::{self, AtMostOne, Keyed, MaxItems, MaxLength, MinLength, Pattern, Required};
use super::{Entry, ONE_TARGET, rule};

const SHA256: Limit = Pattern("(^$|^[a-f0-9]{64}$)");
const URL: &str = "url must have schema one of [http, https, file, oci]";

pub(super) const LIMITS: &[Entry] = &[
    (
        "TrafficExtension",
        &[
            AtMostOne {
                of: &["selector", "targetRefs"],
                message: "only one of targetRefs or selector can be set",
            },
            rule("has(self.wasm) != has(self.lua)", "exactly one of wasm or lua must be set"),
        ],
    ),
    ("TrafficExtension.targetRefs", &[MaxItems(16)]),
    (
        "WasmConfig.url",
        &[
            Required,
            MinLength(1),
            rule(
                "isURL(self) ? (url(self).getScheme() in [\"\", \"http\", \"https\", \"file\", \"oci\"]) : \
                 (isURL(\"http://\" + self) &&\n\
                 url(\"http://\" + self).getScheme() in [\"\", \"http\", \"https\", \"file\", \"oci\"])",
                URL,
            ),
        ],
    ),
    ("WasmConfig.sha256", &[SHA256]),
    ("WasmConfig.image_pull_secret", &[MinLength(1), MaxLength(253)]),
    ("WasmConfig.plugin_name", &[MinLength(1), MaxLength(256)]),
    ("LuaConfig.inline_code", &[Required, MinLength(1), MaxLength(65536)]),
    ("TrafficSelector.ports", &[Keyed("number")]),
    ("WasmPlugin", &[ONE_TARGET]),
    ("WasmPlugin.targetRefs", &[MaxItems(16)]),
    (
        "WasmPlugin.url",
        &[
            Required,
            MinLength(1),
            rule(
                "isURL(self) ? (url(self).getScheme() in [\"\", \"http\", \"https\", \"oci\", \"file\"]) : \
                 (isURL(\"http://\" + self) &&\n\
                 url(\"http://\" + self).getScheme() in [\"\", \"http\", \"https\", \"oci\", \"file\"])",
                URL,
            ),
        ],
    ),
    ("WasmPlugin.sha256", &[SHA256]),
    ("WasmPlugin.image_pull_secret", &[MinLength(1), MaxLength(253)]),
    ("WasmPlugin.plugin_name", &[MinLength(1), MaxLength(256)]),
    ("WasmPlugin.TrafficSelector.ports", &[Keyed("number")]),
    ("VmConfig.env", &[MaxItems(256), Keyed("name")]),
    (
        "EnvVar",
        &[rule(
            r#"(has(self.valueFrom) ? self.valueFrom : "") != "HOST" || !has(self.value)"#,
            "value may only be set when valueFrom is INLINE",
        )],
    ),
    ("EnvVar.name", &[Required, MinLength(1), MaxLength(256)]),
    ("EnvVar.value", &[MaxLength(2048)]),
];
