//! Code of the users' own that runs in proxies.

use super::Entry;

const PHASE: &str = "Before which of the mesh's own filters it runs.";
const PRIORITY: &str = "Within a phase, larger numbers run first; 0 by default.";
const SELECTOR: &str = "Which workloads it is for; all of the namespace by default.";
const TARGET_REFS: &str = "Gateways or services it is for.";
const TRAFFIC: &[(&str, &str)] = &[
    ("mode", "Whether for traffic the workload sends or receives."),
    ("ports", "For which ports; all by default."),
];

const URL: &str =
    "Where the module is: an OCI image, a web address or a file. `oci://` is taken if there is no scheme.";
const SHA256: &str = "The checksum of the module.";
const PULL_POLICY: &str = "When it is fetched again.";
const PULL_SECRET: &str = "The secret with credentials for the registry, in the namespace of the object.";
const VERIFICATION_KEY: &str = "Has no effect.";
const PLUGIN_CONFIG: &str = "What the module is configured with.";
const PLUGIN_NAME: &str = "The name of the plugin within the module.";
const FAIL_STRATEGY: &str = "What becomes of requests if it fails.";
const VM_CONFIG: &str = "How the machine that runs it is set up.";
const TYPE: &str = "Whether it filters HTTP or connections.";

pub(super) const WORDS: &[Entry] = &[
    (
        "WasmPlugin",
        "A WebAssembly module that runs in proxies.",
        &[
            ("selector", SELECTOR),
            ("targetRef", "Replaced by `targetRefs`."),
            ("targetRefs", TARGET_REFS),
            ("url", URL),
            ("sha256", SHA256),
            ("image_pull_policy", PULL_POLICY),
            ("image_pull_secret", PULL_SECRET),
            ("verification_key", VERIFICATION_KEY),
            ("plugin_config", PLUGIN_CONFIG),
            ("plugin_name", PLUGIN_NAME),
            ("phase", PHASE),
            ("priority", PRIORITY),
            ("fail_strategy", FAIL_STRATEGY),
            ("vm_config", VM_CONFIG),
            ("match", "For which traffic: that which fits one of these. All, if there is none."),
            ("type", TYPE),
        ],
    ),
    ("WasmPlugin.TrafficSelector", "For which traffic; everything that is set has to fit.", TRAFFIC),
    (
        "TrafficExtension",
        "A WebAssembly module or a Lua script that runs in proxies.",
        &[
            ("selector", SELECTOR),
            ("targetRefs", TARGET_REFS),
            ("phase", PHASE),
            ("priority", PRIORITY),
            ("match", "For which traffic: that which fits one of these. All, if there is none."),
            ("wasm", "The module."),
            ("lua", "The script."),
        ],
    ),
    ("TrafficSelector", "For which traffic; everything that is set has to fit.", TRAFFIC),
    (
        "WasmConfig",
        "A WebAssembly module.",
        &[
            ("url", URL),
            ("sha256", SHA256),
            ("image_pull_policy", PULL_POLICY),
            ("image_pull_secret", PULL_SECRET),
            ("verification_key", VERIFICATION_KEY),
            ("plugin_config", PLUGIN_CONFIG),
            ("plugin_name", PLUGIN_NAME),
            ("fail_strategy", FAIL_STRATEGY),
            ("vm_config", VM_CONFIG),
            ("type", TYPE),
        ],
    ),
    ("LuaConfig", "A Lua script.", &[("inline_code", "The script itself.")]),
    ("VmConfig", "How the machine that runs a module is set up.", &[("env", "Its environment.")]),
    (
        "EnvVar",
        "A variable of an environment.",
        &[
            ("name", "Its name."),
            ("value_from", "Where its value comes from."),
            ("value", "Its value, if it is given here."),
        ],
    ),
];
