//! Services and workloads that Kubernetes does not know, and proxies' own settings.

use super::Entry;

pub(super) const WORDS: &[Entry] = &[
    (
        "ServiceEntry",
        "A service that the mesh would not know otherwise.",
        &[
            ("hosts", "Its names."),
            ("addresses", "Its virtual addresses, alone or as CIDR blocks."),
            ("ports", "Its ports."),
            ("location", "Whether it is outside the mesh or part of it."),
            ("resolution", "How the addresses of its endpoints are found."),
            ("endpoints", "Its endpoints."),
            ("workload_selector", "Which pods and workload entries are its endpoints."),
            ("export_to", "The namespaces that see this object: `.` for its own, `*` for all."),
            ("subject_alt_names", "Names of which the certificates of its endpoints have to have one."),
        ],
    ),
    (
        "ServicePort",
        "A port of a service.",
        &[
            ("number", "The number."),
            ("protocol", "What is spoken: HTTP, HTTPS, GRPC, HTTP2, MONGO, TCP or TLS."),
            ("name", "A name, unique within the service."),
            ("target_port", "The port of the endpoints; the same by default."),
        ],
    ),
    (
        "WorkloadEntry",
        "A workload outside Kubernetes, such as a virtual machine.",
        &[
            ("address", "Its IP address, host name, or Unix socket as `unix:///path`."),
            ("ports", "Its ports by the names of the service's ports."),
            ("labels", "Its labels."),
            ("network", "The network it is in; workloads of other networks reach it through a gateway."),
            ("locality", "Where it is, as `region/zone/sub-zone`."),
            ("weight", "Its share of traffic, relative to the weights of others."),
            ("service_account", "The account it runs as, in the namespace of the object."),
        ],
    ),
    (
        "WorkloadGroup",
        "What workload entries of a group have in common, so that they can be made when workloads register.",
        &[
            ("metadata", "Labels and annotations of the entries."),
            ("template", "What the entries are like."),
            ("probe", "How it is found out whether a workload is ready."),
        ],
    ),
    (
        "WorkloadGroup.ObjectMeta",
        "Metadata of workload entries.",
        &[("labels", "Labels."), ("annotations", "Annotations.")],
    ),
    (
        "ReadinessProbe",
        "How it is found out whether a workload is ready.",
        &[
            ("initial_delay_seconds", "How long after the start the first probe is made."),
            ("timeout_seconds", "How long a probe may take; 1 by default."),
            ("period_seconds", "How long between two probes; 10 by default."),
            ("success_threshold", "After so many successes in a row it is ready; 1 by default."),
            ("failure_threshold", "After so many failures in a row it is not; 3 by default."),
            ("http_get", "By an HTTP request."),
            ("tcp_socket", "By a connection."),
            ("exec", "By a command."),
            ("grpc", "By gRPC's health service."),
        ],
    ),
    (
        "HTTPHealthCheckConfig",
        "A probe by an HTTP request.",
        &[
            ("path", "The path."),
            ("port", "The port."),
            ("host", "The host; that of the workload by default."),
            ("scheme", "HTTP or HTTPS; HTTP by default."),
            ("http_headers", "Headers of the request."),
        ],
    ),
    ("HTTPHeader", "A header.", &[("name", "Its name."), ("value", "Its value.")]),
    (
        "TCPHealthCheckConfig",
        "A probe by a connection.",
        &[("host", "The host; localhost by default."), ("port", "The port.")],
    ),
    (
        "ExecHealthCheckConfig",
        "A probe by a command.",
        &[("command", "Program and arguments; no shell is involved. Success is to exit with 0.")],
    ),
    (
        "GrpcHealthCheckConfig",
        "A probe by gRPC's health service.",
        &[("port", "The port."), ("service", "The service to ask about.")],
    ),
];

pub(super) const PROXY_CONFIG: &[Entry] = &[
    (
        "ProxyConfig",
        "Settings of proxies; they take effect when a proxy starts.",
        &[
            ("selector", "Which workloads it is for; all of the namespace by default."),
            ("concurrency", "How many threads a proxy has; 0 for one for each core."),
            ("environment_variables", "Variables in the environment of the proxy."),
            ("image", "Which image of the proxy is used."),
        ],
    ),
    ("ProxyImage", "An image of the proxy.", &[("image_type", "The variant: default, debug or distroless.")]),
];
