//! What objects keep a proxy from is counted while it lasts, under Istio's names.

use anyhow::Result;

use crate::{FILE, Lab};

/// Every gauge, with what it is while [`CONFLICTS`] last.
const GAUGES: [(&str, &str); 7] = [
    ("pilot_conflict_inbound_listener", "1"),
    ("pilot_conflict_outbound_listener_tcp_over_current_tcp", "1"),
    ("pilot_duplicate_envoy_clusters", "1"),
    ("pilot_vservice_dup_domain", "1"),
    ("pilot_destrule_subsets", "1"),
    ("pilot_no_ip", "0"),
    ("pilot_eds_no_instances", "1"),
];

/// Beside [`MENDED`], a service that disagrees with it on the protocol of the proxy's port, two that share a port without an
/// address, one with a port twice, and two routes, and two rules, for one host.
const CONFLICTS: &str = "
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: inbound-tcp, namespace: demo}
spec:
  hosts: [tcp.demo]
  addresses: [10.1.0.1]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 81, name: tcp, protocol: TCP, targetPort: 8080}]
  endpoints: [{address: 10.0.0.1}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: outbound-one, namespace: demo}
spec:
  hosts: [one.example.com]
  resolution: NONE
  ports: [{number: 9000, name: tcp, protocol: TCP}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: outbound-other, namespace: demo}
spec:
  hosts: [other.example.com]
  resolution: NONE
  ports: [{number: 9000, name: tcp, protocol: TCP}]
---
apiVersion: v1
kind: Service
metadata: {name: twice, namespace: demo}
spec:
  clusterIP: 10.1.0.2
  ports: [{name: http, port: 80}, {name: http-again, port: 80, protocol: SCTP}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: route, namespace: demo}
spec: {hosts: [routed.example.com], http: [{route: [{destination: {host: http.demo}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: route-again, namespace: demo}
spec: {hosts: [routed.example.com], http: [{route: [{destination: {host: http.demo}}]}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: rule, namespace: demo}
spec: {host: http.demo, subsets: [{name: v1, labels: {version: v1}}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: rule-again, namespace: demo}
spec: {host: http.demo, subsets: [{name: v1, labels: {version: v2}}]}
";

/// What there is in any case.
const MENDED: &str = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: inbound-http, namespace: demo}
spec:
  hosts: [http.demo]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]
  endpoints: [{address: 10.0.0.1}]
";

#[tokio::test(flavor = "multi_thread")]
async fn conflicts_are_counted_while_they_last_and_somebody_is_concerned() -> Result<()> {
    let lab = Lab::open(&format!("{MENDED}{CONFLICTS}")).await?;
    let nobody =
        GAUGES.map(|(name, value)| (name, if name == "pilot_destrule_subsets" { value } else { "0" }));
    lab.counts_are(&nobody).await?;
    let sidecar = lab.sidecar().await?;
    lab.counts_are(&GAUGES).await?;
    lab.mesh.write(FILE, MENDED)?;
    lab.counts_are(&GAUGES.map(|(name, _)| (name, "0"))).await?;
    sidecar.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn workload_that_no_service_selects_is_counted() -> Result<()> {
    let lab = Lab::open(&MENDED.replace("10.0.0.1", "10.0.0.2")).await?;
    let sidecar = lab.sidecar().await?;
    lab.counts_are(&[("pilot_no_ip", "1")]).await?;
    lab.mesh.write(FILE, MENDED)?;
    lab.counts_are(&[("pilot_no_ip", "0")]).await?;
    sidecar.abort();
    Ok(())
}
