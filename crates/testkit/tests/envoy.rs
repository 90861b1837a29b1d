//! A real Envoy: started, asked, sent traffic through, refused a bad bootstrap.

use canopus_testkit::{Echo, Echoed, Envoy, http};

const DIRECT: &str = r#"
static_resources:
  listeners:
  - name: web
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: web
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            name: web
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {prefix: "/direct"}
                direct_response: {status: 200, body: {inline_string: "straight from Envoy"}}
              - match: {prefix: "/"}
                route: {cluster: upstream}
  clusters:
  - name: upstream
    type: STATIC
    load_assignment:
      cluster_name: upstream
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $PORT}}}
"#;

fn bootstrap(upstream_port: u16) -> String {
    DIRECT.replace("$PORT", &upstream_port.to_string())
}

#[tokio::test]
async fn envoy_answers_and_forwards_as_its_bootstrap_says() {
    let echo = Echo::start("v1").await.unwrap();
    let envoy = Envoy::start(&bootstrap(echo.address().port())).await.unwrap();
    let web = envoy.listener("web").await.unwrap();

    let direct = http::get(web, "/direct").await.unwrap();
    assert_eq!(direct.ok().unwrap(), "straight from Envoy");

    let forwarded = http::get(web, "/forwarded").await.unwrap();
    assert_eq!(forwarded.headers["server"], "envoy");
    let echoed = Echoed::from_body(&forwarded.ok().unwrap()).unwrap();
    assert_eq!((echoed.upstream.as_str(), echoed.path.as_str()), ("v1", "/forwarded"));
    assert!(echoed.headers.contains_key("x-request-id"));
}

#[tokio::test]
async fn admin_interface_tells_configuration_clusters_and_counters() {
    let echo = Echo::start("v1").await.unwrap();
    let envoy = Envoy::start(&bootstrap(echo.address().port())).await.unwrap();
    let web = envoy.listener("web").await.unwrap();
    http::get(web, "/").await.unwrap().ok().unwrap();

    let dump = envoy.config_dump().await.unwrap().to_string();
    assert!(dump.contains("straight from Envoy"));
    let clusters = envoy.clusters().await.unwrap();
    assert_eq!(clusters["cluster_statuses"][0]["name"], "upstream");
    assert_eq!(envoy.stats().await.unwrap()["cluster.upstream.upstream_rq_200"], 1);
}

#[tokio::test]
async fn validation_repeats_what_envoy_says_when_it_refuses() {
    Envoy::validate(&bootstrap(1)).await.unwrap();

    let error = Envoy::validate(&bootstrap(1).replace("cluster: upstream", "cluster: nowhere")).await;
    let message = error.unwrap_err().to_string();
    assert!(message.contains("nowhere"), "{message}");
}

#[tokio::test]
async fn start_fails_at_once_with_the_log_when_envoy_ends() {
    let message =
        Envoy::start("static_resources: {listeners: [{name: broken}]}").await.unwrap_err().to_string();
    assert!(message.contains("envoy ended"), "{message}");
    assert!(message.contains("address is necessary"), "{message}");
}
