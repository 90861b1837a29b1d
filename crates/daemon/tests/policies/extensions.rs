//! What users bring along: a script through an EnvoyFilter, a module through a WasmPlugin.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{eventually, http, wasm_module};
use serde_json::Value;

use crate::sidecars::{PATIENCE, Sidecars};

/// Inserts a script before the router of the server's proxy.
const SCRIPT: &str = "
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata:
  name: script
  namespace: shop
spec:
  workloadSelector:
    labels: {app: reviews}
  configPatches:
  - applyTo: HTTP_FILTER
    match:
      context: SIDECAR_INBOUND
      listener:
        filterChain:
          filter:
            name: envoy.filters.network.http_connection_manager
            subFilter:
              name: envoy.filters.http.router
    patch:
      operation: INSERT_BEFORE
      value:
        name: test.script
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
          default_source_code:
            inline_string: |
              function envoy_on_response(handle)
                handle:headers():add(\"x-script\", \"was here\")
              end
";

#[tokio::test]
async fn script_of_an_envoy_filter_runs_and_is_gone_with_it() -> Result<()> {
    let sidecars = Sidecars::start(SCRIPT, "").await?;
    let answer = sidecars.answered("/items", 200).await?;
    assert_eq!(answer.headers["x-script"], "was here");
    sidecars.write("")?;
    eventually("no script any more", PATIENCE, async || {
        let answer = sidecars.answered("/items", 200).await?;
        ensure!(!answer.headers.contains_key("x-script"), "{:?}", answer.headers);
        Ok(())
    })
    .await?;
    sidecars.check_accepted().await
}

/// Patches that no proxy could take: a filter without configuration, one after the router, one that only Istio's proxy
/// has, a listener without its router; and an object that is not even valid, for a type that does not exist.
const BROKEN: &str = "
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata:
  name: broken
  namespace: shop
spec:
  workloadSelector:
    labels: {app: reviews}
  configPatches:
  - applyTo: HTTP_FILTER
    match: {context: SIDECAR_INBOUND}
    patch:
      operation: INSERT_FIRST
      value: {name: test.empty}
  - applyTo: HTTP_FILTER
    match: {context: SIDECAR_INBOUND}
    patch:
      operation: ADD
      value:
        name: test.late
        typed_config: {\"@type\": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua}
  - applyTo: HTTP_FILTER
    match: {context: SIDECAR_INBOUND}
    patch:
      operation: INSERT_FIRST
      value:
        name: test.foreign
        typed_config: {\"@type\": type.googleapis.com/istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig}
  - applyTo: HTTP_FILTER
    match:
      context: SIDECAR_INBOUND
      listener:
        filterChain:
          filter:
            name: envoy.filters.network.http_connection_manager
            subFilter: {name: envoy.filters.http.router}
    patch: {operation: REMOVE}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata:
  name: invalid
  namespace: shop
spec:
  configPatches:
  - applyTo: HTTP_FILTER
    match: {context: SIDECAR_INBOUND}
    patch:
      operation: INSERT_FIRST
      value:
        name: test.unknown
        typed_config: {\"@type\": type.googleapis.com/no.such.Type}
";

#[tokio::test]
async fn patches_that_no_proxy_could_take_do_not_harm_the_others() -> Result<()> {
    let sidecars = Sidecars::start(&format!("{SCRIPT}{BROKEN}"), "").await?;
    let answer = sidecars.answered("/items", 200).await?;
    assert_eq!(answer.headers["x-script"], "was here");
    sidecars.check_accepted().await?;
    let report = http::get(sidecars.mesh.http, "/debug/envoyfilterz?proxyID=reviews-1.shop").await?.ok()?;
    let report: Value = serde_json::from_str(&report)?;
    let outcomes: BTreeSet<_> = report["reviews-1.shop"]
        .as_array()
        .context("no patches")?
        .iter()
        .map(|patch| (patch["name"].as_str(), patch["patch"].as_u64(), patch["outcome"].as_str()))
        .collect();
    let broken = (0..4).map(|index| (Some("broken"), Some(index), Some("refused")));
    let expected = broken.chain([(Some("script"), Some(0), Some("applied"))]).collect();
    assert_eq!(outcomes, expected, "{report:#}");
    let log = sidecars.mesh.log();
    assert!(log.contains("no.such.Type"), "the invalid object is reported: {log}");
    Ok(())
}

fn plugin(url: &str) -> String {
    format!(
        "
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata:
  name: module
  namespace: shop
spec:
  selector:
    matchLabels: {{app: reviews}}
  url: {url}
  phase: STATS
"
    )
}

#[tokio::test]
async fn module_of_a_wasm_plugin_is_discovered_and_runs() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("module.wasm");
    fs::write(&path, wasm_module("x-module", "was here"))?;
    let sidecars = Sidecars::start(&plugin(&format!("file://{}", path.display())), "").await?;
    let answer = sidecars.answered("/items", 200).await?;
    assert_eq!(answer.headers["x-module"], "was here");
    let stats = sidecars.server.envoy.stats().await?;
    let discovered =
        stats.iter().any(|(name, count)| name.contains("extension_config_discovery") && *count > 0);
    assert!(discovered, "the module came as a resource of its own");

    let other = directory.path().join("other.wasm");
    fs::write(&other, wasm_module("x-other", "was here"))?;
    sidecars.write(&plugin(&format!("file://{}", other.display())))?;
    eventually("the other module", PATIENCE, async || {
        let answer = sidecars.answered("/items", 200).await?;
        ensure!(answer.headers.contains_key("x-other"), "{:?}", answer.headers);
        Ok(())
    })
    .await?;
    sidecars.check_accepted().await
}
