//! What users bring along: a script through an EnvoyFilter, a module through a WasmPlugin.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{eventually, http};
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
    fs::write(&path, module("x-module", "was here"))?;
    let sidecars = Sidecars::start(&plugin(&format!("file://{}", path.display())), "").await?;
    let answer = sidecars.answered("/items", 200).await?;
    assert_eq!(answer.headers["x-module"], "was here");
    let stats = sidecars.server.envoy.stats().await?;
    let discovered =
        stats.iter().any(|(name, count)| name.contains("extension_config_discovery") && *count > 0);
    assert!(discovered, "the module came as a resource of its own");

    let other = directory.path().join("other.wasm");
    fs::write(&other, module("x-other", "was here"))?;
    sidecars.write(&plugin(&format!("file://{}", other.display())))?;
    eventually("the other module", PATIENCE, async || {
        let answer = sidecars.answered("/items", 200).await?;
        ensure!(answer.headers.contains_key("x-other"), "{:?}", answer.headers);
        Ok(())
    })
    .await?;
    sidecars.check_accepted().await
}

/// Assembles a module of the proxy-wasm interface that adds a header to responses. As text it would read:
///
/// ```wat
/// (module
///   (import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
///   (memory (export "memory") 1)
///   (data (i32.const 0) "<name><value>")
///   (func (export "proxy_abi_version_0_2_1"))
///   (func (export "malloc") (param i32) (result i32) (i32.const 1024))
///   (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
///     (drop (call $add (i32.const 2) (i32.const 0) (i32.const <name length>)
///                      (i32.const <name length>) (i32.const <value length>)))
///     (i32.const 0)))
/// ```
fn module(name: &str, value: &str) -> Vec<u8> {
    const I32: u8 = 0x7f;
    let constant = |number: usize| [vec![0x41], signed(number)].concat();
    let body = |code: &[u8]| sized(&[&[0], code, &[0x0b]].concat());
    let add = [
        constant(2),
        constant(0),
        constant(name.len()),
        constant(name.len()),
        constant(value.len()),
        vec![0x10, 0, 0x1a],
        constant(0),
    ]
    .concat();
    let sections = [
        (
            1,
            list(&[
                vec![0x60, 5, I32, I32, I32, I32, I32, 1, I32],
                vec![0x60, 0, 0],
                vec![0x60, 1, I32, 1, I32],
                vec![0x60, 3, I32, I32, I32, 1, I32],
            ]),
        ),
        (2, list(&[[text("env"), text("proxy_add_header_map_value"), vec![0, 0]].concat()])),
        (3, list(&[vec![1], vec![2], vec![3]])),
        (5, list(&[vec![0, 1]])),
        (
            7,
            list(&[
                [text("memory"), vec![2, 0]].concat(),
                [text("proxy_abi_version_0_2_1"), vec![0, 1]].concat(),
                [text("malloc"), vec![0, 2]].concat(),
                [text("proxy_on_response_headers"), vec![0, 3]].concat(),
            ]),
        ),
        (10, list(&[body(&[]), body(&constant(1024)), body(&add)])),
        (11, list(&[[vec![0], constant(0), vec![0x0b], text(&format!("{name}{value}"))].concat()])),
    ];
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    for (id, content) in sections {
        module.push(id);
        module.extend(sized(&content));
    }
    module
}

fn text(text: &str) -> Vec<u8> {
    sized(text.as_bytes())
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [unsigned(bytes.len()), bytes.to_vec()].concat()
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [unsigned(items.len()), items.concat()].concat()
}

/// A number in groups of seven bits, the lowest first.
fn unsigned(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let group = u8::try_from(number & 0x7f).expect("seven bits");
        number >>= 7;
        if number == 0 {
            bytes.push(group);
            return bytes;
        }
        bytes.push(group | 0x80);
    }
}

/// As [`unsigned`], with room for a sign.
fn signed(number: usize) -> Vec<u8> {
    let mut bytes = unsigned(number);
    if let Some(last) = bytes.last_mut()
        && *last & 0x40 != 0
    {
        *last |= 0x80;
        bytes.push(0);
    }
    bytes
}
