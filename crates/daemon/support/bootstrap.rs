//! The bootstrap of an Envoy that asks a control plane for everything else.

use std::net::SocketAddr;
use std::path::Path;

/// Identity of an Envoy and the control plane that it asks.
pub(crate) struct Bootstrap<'a> {
    /// `router` or `sidecar`.
    pub(crate) kind: &'a str,
    /// Address of the proxy's workload in the mesh.
    pub(crate) address: &'a str,
    /// The name of its pod.
    pub(crate) name: &'a str,
    /// The namespace of its pod.
    pub(crate) namespace: &'a str,
    /// The rest of its metadata, as the inside of a flow mapping.
    pub(crate) metadata: &'a str,
    /// The variant of xDS, by Envoy's name for it.
    pub(crate) variant: &'a str,
    /// Where the control plane is.
    pub(crate) xds: SocketAddr,
    /// A directory with `root.crt`, and with `<name>.crt` and `<name>.key` to show to the control plane; without, TLS is
    /// not spoken to it.
    pub(crate) certificates: Option<&'a Path>,
    /// The socket on which an agent serves certificates for other workloads.
    pub(crate) agent: Option<&'a Path>,
}

impl Default for Bootstrap<'_> {
    fn default() -> Self {
        Self {
            kind: "router",
            address: "127.0.0.1",
            name: "gateway",
            namespace: "demo",
            metadata: "",
            variant: "DELTA_GRPC",
            xds: SocketAddr::from(([127, 0, 0, 1], 15010)),
            certificates: None,
            agent: None,
        }
    }
}

impl Bootstrap<'_> {
    /// The bootstrap in YAML.
    pub(crate) fn yaml(&self) -> String {
        let Self { kind, address, name, namespace, metadata, variant, xds, .. } = self;
        let (host, port) = (xds.ip(), xds.port());
        let control_plane = cluster(
            "xds-grpc",
            &format!("socket_address: {{address: \"{host}\", port_value: {port}}}"),
            &self.certificates.map(|files| tls(files, name)).unwrap_or_default(),
        );
        let agent = self
            .agent
            .map(|socket| cluster("sds-grpc", &format!("pipe: {{path: \"{}\"}}", socket.display()), ""));
        let agent = agent.unwrap_or_default();
        format!(
            r#"
node:
  id: {kind}~{address}~{name}.{namespace}~{namespace}.svc.cluster.local
  cluster: {name}.{namespace}
  metadata: {{NAMESPACE: {namespace}, MESH_ID: cluster.local, {metadata}}}
dynamic_resources:
  ads_config:
    api_type: {variant}
    transport_api_version: V3
    set_node_on_first_message_only: true
    grpc_services: [{{envoy_grpc: {{cluster_name: xds-grpc}}}}]
  cds_config: {{ads: {{}}, resource_api_version: V3, initial_fetch_timeout: 0s}}
  lds_config: {{ads: {{}}, resource_api_version: V3, initial_fetch_timeout: 0s}}
static_resources:
  clusters:
{control_plane}{agent}"#
        )
    }
}

/// A cluster of one gRPC server.
fn cluster(name: &str, address: &str, transport: &str) -> String {
    format!(
        r#"  - name: {name}
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    load_assignment:
      cluster_name: {name}
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{{address}}}}}
{transport}"#
    )
}

fn tls(files: &Path, name: &str) -> String {
    let files = files.display();
    format!(
        r#"    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: istiod.istio-system.svc
        common_tls_context:
          alpn_protocols: [h2]
          tls_certificates:
          - certificate_chain: {{filename: "{files}/{name}.crt"}}
            private_key: {{filename: "{files}/{name}.key"}}
          validation_context:
            trusted_ca: {{filename: "{files}/root.crt"}}
"#
    )
}
