//! Commands that only have further commands, as istioctl describes them.
//!
//! Parity: scripts and people read these pages, so they are istioctl's, word for word. A group that is not listed here is
//! described by our own words in the same layout.

/// A group of commands.
pub(super) struct Group {
    /// The commands that lead to it; empty for the program itself.
    pub(super) path: &'static str,
    pub(super) about: &'static str,
    pub(super) example: &'static str,
    pub(super) commands: &'static [(&'static str, &'static str)],
    pub(super) flags: &'static [Flag],
    pub(super) globals: &'static [Flag],
    /// What is said of a command that is not there; without, the help is printed.
    pub(super) unknown: Option<&'static str>,
}

/// A flag as Go's flag library prints it.
pub(super) struct Flag {
    pub(super) short: Option<char>,
    pub(super) name: &'static str,
    /// The type word; empty for flags without a value.
    pub(super) kind: &'static str,
    pub(super) usage: &'static str,
    /// As printed; empty for a zero value.
    pub(super) default: &'static str,
}

const fn flag(
    short: Option<char>,
    name: &'static str,
    kind: &'static str,
    usage: &'static str,
    default: &'static str,
) -> Flag {
    Flag { short, name, kind, usage, default }
}

const AS: Flag = flag(
    None,
    "as",
    "string",
    "Username to impersonate for the operation. User could be a regular user or a service account in a namespace",
    "",
);
const AS_GROUP: Flag = flag(
    None,
    "as-group",
    "stringArray",
    "Group to impersonate for the operation, this flag can be repeated to specify multiple groups.",
    "",
);
const AS_UID: Flag = flag(None, "as-uid", "string", "UID to impersonate for the operation.", "");
const CONTEXT: Flag = flag(None, "context", "string", "Kubernetes configuration context", "");
const SYSTEM_NAMESPACE: Flag =
    flag(Some('i'), "istioNamespace", "string", "Istio system namespace", "\"istio-system\"");
const TIMEOUT: Flag = flag(
    None,
    "kubeclient-timeout",
    "string",
    "Kubernetes client timeout as a time.Duration string, defaults to 15 seconds.",
    "\"15s\"",
);
const KUBECONFIG: Flag = flag(Some('c'), "kubeconfig", "string", "Kubernetes configuration file", "");
const NAMESPACE: Flag = flag(Some('n'), "namespace", "string", "Kubernetes namespace", "");
const VERBOSITY: Flag =
    flag(None, "vklog", "Level", "number for the log level verbosity. Like -v flag. ex: --vklog=9", "");
const HELP: Flag = flag(Some('h'), "help", "", "", "");

/// Flags of every command.
pub(super) static GLOBALS: [Flag; 9] =
    [AS, AS_GROUP, AS_UID, CONTEXT, SYSTEM_NAMESPACE, TIMEOUT, KUBECONFIG, NAMESPACE, VERBOSITY];

/// The same without namespaces.
static CLUSTER_GLOBALS: [Flag; 7] = [AS, AS_GROUP, AS_UID, CONTEXT, TIMEOUT, KUBECONFIG, VERBOSITY];

/// Flags of a group without any of its own.
pub(super) static HELP_ONLY: [Flag; 1] = [HELP];

pub(super) static GROUPS: [Group; 7] = [
    Group {
        path: "",
        about: "Istio configuration command line utility for service operators to\n\
                debug and diagnose their Istio mesh.",
        example: "",
        commands: &[
            ("admin", "Manage control plane (istiod) configuration"),
            ("analyze", "Analyze Istio configuration and print validation messages"),
            ("authz", "(authz is experimental. Use `istioctl experimental authz`)"),
            ("bug-report", "Cluster information and log capture support tool."),
            ("completion", "Generate the autocompletion script for the specified shell"),
            (
                "create-remote-secret",
                "Create a secret with credentials to allow Istio to access remote Kubernetes apiservers",
            ),
            ("dashboard", "Access to Istio web UIs"),
            ("experimental", "Experimental commands that may be modified or deprecated"),
            ("help", "Help about any command"),
            ("install", "Applies an Istio manifest, installing or reconfiguring Istio on a cluster."),
            ("kube-inject", "Inject Istio sidecar into Kubernetes pod resources"),
            ("manifest", "Commands related to Istio manifests"),
            ("proxy-config", "Retrieve information about proxy configuration from Envoy [kube only]"),
            ("proxy-status", "Retrieves the synchronization status of each Envoy in the mesh"),
            ("remote-clusters", "Lists the remote clusters each istiod instance is connected to."),
            ("tag", "Command group used to interact with revision tags"),
            ("uninstall", "Uninstall Istio from a cluster"),
            ("upgrade", "Upgrade Istio control plane in-place"),
            ("validate", "Validate Istio policy and rules files"),
            ("version", "Prints out build version information"),
            ("waypoint", "Manage waypoint configuration"),
            ("ztunnel-config", "Update or retrieve current Ztunnel configuration."),
        ],
        flags: &[
            AS,
            AS_GROUP,
            AS_UID,
            CONTEXT,
            HELP,
            SYSTEM_NAMESPACE,
            TIMEOUT,
            KUBECONFIG,
            NAMESPACE,
            VERBOSITY,
        ],
        globals: &[],
        unknown: None,
    },
    Group {
        path: "completion",
        about: "Generate the autocompletion script for istioctl for the specified shell.\n\
                See each sub-command's help for details on how to use the generated script.\n",
        example: "",
        commands: &[
            ("bash", "Generate the autocompletion script for bash"),
            ("fish", "Generate the autocompletion script for fish"),
            ("powershell", "Generate the autocompletion script for powershell"),
            ("zsh", "Generate the autocompletion script for zsh"),
        ],
        flags: &HELP_ONLY,
        globals: &GLOBALS,
        unknown: None,
    },
    Group {
        path: "dashboard",
        about: "Access to Istio web UIs",
        example: "",
        commands: &[
            ("controlz", "Open ControlZ web UI"),
            ("envoy", "Open Envoy admin web UI"),
            ("grafana", "Open Grafana web UI"),
            ("istiod-debug", "Open Istio debug web UI"),
            ("jaeger", "Open Jaeger web UI"),
            ("kiali", "Open Kiali web UI"),
            ("prometheus", "Open Prometheus web UI"),
            ("proxy", "Open admin web UI for a proxy"),
            ("skywalking", "Open SkyWalking UI"),
            ("zipkin", "Open Zipkin web UI"),
        ],
        flags: &[
            flag(
                None,
                "address",
                "string",
                "Address to listen on. Only accepts IP address or localhost as a value. When localhost is supplied, \
                 istioctl will try to bind on both 127.0.0.1 and ::1 and will fail if neither of these address are \
                 available to bind.",
                "\"localhost\"",
            ),
            flag(
                None,
                "browser",
                "",
                "When --browser is supplied as false, istioctl dashboard will not open the browser. Default is true \
                 which means istioctl dashboard will always open a browser to view the dashboard.",
                "true",
            ),
            HELP,
            flag(Some('p'), "port", "int", "Local port to listen to", ""),
        ],
        globals: &CLUSTER_GLOBALS,
        unknown: Some("unknown dashboard"),
    },
    Group {
        path: "experimental",
        about: "Experimental commands that may be modified or deprecated",
        example: "",
        commands: &[
            ("authz", "Inspect Istio AuthorizationPolicy"),
            (
                "check-inject",
                "Check the injection status or inject-ability of a given resource, explains why it is (or will be) \
                 injected or not",
            ),
            ("config", "Configure istioctl defaults"),
            ("describe", "Describe resource and related Istio configuration"),
            ("envoy-stats", "Retrieves Envoy metrics in the specified pod"),
            ("injector", "List sidecar injector and sidecar versions"),
            ("internal-debug", "Retrieves the debug information of istio"),
            ("metrics", "Prints the metrics for the specified workload(s) when running in Kubernetes."),
            ("precheck", "Check whether Istio can safely be installed or upgraded"),
            ("proxy-status", "Retrieves the synchronization status of each Envoy in the mesh"),
            ("version", "Prints out build version information"),
            (
                "workload",
                "Commands to assist in configuring and deploying workloads running on VMs and other non-Kubernetes \
                 environments",
            ),
        ],
        flags: &HELP_ONLY,
        globals: &GLOBALS,
        unknown: None,
    },
    Group {
        path: "proxy-config",
        about: "A group of commands used to retrieve information about proxy configuration from the Envoy config dump",
        example: "  # Retrieve information about proxy configuration from an Envoy instance.\n  istioctl proxy-config \
                  <clusters|listeners|routes|endpoints|ecds|bootstrap|log|secret> <pod-name[.namespace]>",
        commands: &[
            ("all", "Retrieves all configuration for the Envoy in the specified pod"),
            ("bootstrap", "Retrieves bootstrap configuration for the Envoy in the specified pod"),
            ("cluster", "Retrieves cluster configuration for the Envoy in the specified pod"),
            ("ecds", "Retrieves typed extension configuration for the Envoy in the specified pod"),
            ("endpoint", "Retrieves endpoint configuration for the Envoy in the specified pod"),
            ("listener", "Retrieves listener configuration for the Envoy in the specified pod"),
            ("log", "Retrieves logging levels of the Envoy in the specified pod"),
            ("rootca-compare", "Compare ROOTCA values for the two given pods"),
            ("route", "Retrieves route configuration for the Envoy in the specified pod"),
            ("secret", "Retrieves secret configuration for the Envoy in the specified pod"),
        ],
        flags: &[
            HELP,
            flag(Some('o'), "output", "string", "Output format: one of json|yaml|short", "\"short\""),
            flag(None, "proxy-admin-port", "int", "Envoy proxy admin port", "15000"),
        ],
        globals: &GLOBALS,
        unknown: None,
    },
    Group {
        path: "tag",
        about: "Command group used to interact with revision tags. Revision tags allow for the creation of mutable aliases\n\
                referring to control plane revisions for sidecar injection.\n\
                \n\
                With revision tags, rather than relabeling a namespace from \"istio.io/rev=revision-a\" to \
                \"istio.io/rev=revision-b\" to\n\
                change which control plane revision handles injection, it's possible to create a revision tag \"prod\" \
                and label our\n\
                namespace \"istio.io/rev=prod\". The \"prod\" revision tag could point to \"1-7-6\" initially and then \
                be changed to point to \"1-8-1\"\n\
                at some later point.\n\
                \n\
                This allows operators to change which Istio control plane revision should handle injection for a \
                namespace or set of namespaces\n\
                without manual relabeling of the \"istio.io/rev\" tag.\n",
        example: "",
        commands: &[
            ("generate", "Generate configuration for a revision tag to stdout"),
            ("list", "List existing revision tags"),
            ("remove", "Remove Istio control plane revision tag"),
            ("set", "Create or modify revision tags"),
        ],
        flags: &HELP_ONLY,
        globals: &GLOBALS,
        unknown: Some("unknown subcommand"),
    },
    Group {
        path: "waypoint",
        about: "A group of commands used to manage waypoint configuration",
        example: "  # Apply a waypoint to the current namespace\n  istioctl waypoint apply\n\n  # Generate a waypoint as \
                  yaml\n  istioctl waypoint generate --namespace default\n\n  # List all waypoints in a specific \
                  namespace\n  istioctl waypoint list --namespace default",
        commands: &[
            ("apply", "Apply a waypoint configuration"),
            ("delete", "Delete a waypoint configuration"),
            ("generate", "Generate a waypoint configuration"),
            ("list", "List managed waypoint configurations"),
            ("status", "Show the status of waypoints"),
        ],
        flags: &[HELP, flag(None, "name", "string", "name of the waypoint", "\"waypoint\"")],
        globals: &GLOBALS,
        unknown: Some("unknown subcommand"),
    },
];
