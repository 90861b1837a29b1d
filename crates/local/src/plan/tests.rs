use super::*;

const FILE: &str = "
name: shop
namespace: shop
gateways:
- {name: edge, ports: ['8080:80']}
workloads:
- {name: web, command: ./bin/web, port: 8080}
- {name: reviews-v1, service: reviews, version: v1, command: reviews, port: 8080, replicas: 2}
- {name: reviews-v2, service: reviews, version: v2, command: reviews, port: 8080, env: {VERSION: two}}
- {name: pay, command: pay, port: 8080, external: pay.example.com}
- {name: load, command: load, sidecar: false}
externals:
- {host: db.example.com, port: 5432}
";

fn plan(mode: Mode) -> Plan {
    let file = MeshFile::parse(FILE.as_bytes()).unwrap();
    let mut next = 20000;
    Plan::new(&file, Path::new("/srv/shop"), mode, &mut || {
        next += 1;
        next
    })
}

fn pod<'a>(plan: &'a Plan, name: &str) -> &'a Pod {
    plan.pods.iter().find(|pod| pod.name == name).unwrap()
}

#[test]
fn every_pod_has_its_own_address_and_namespace() {
    let plan = plan(Mode::Namespaces);
    let names: Vec<&str> = plan.pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(names, ["edge", "web", "reviews-v1-1", "reviews-v1-2", "reviews-v2", "pay", "load"]);
    let addresses: BTreeSet<_> = plan.pods.iter().map(|pod| pod.address).collect();
    let namespaces: BTreeSet<_> = plan.pods.iter().map(|pod| &pod.network_namespace).collect();
    assert_eq!((addresses.len(), namespaces.len()), (7, 7));
    assert!(plan.pods.iter().all(|pod| pod.link.len() < 16), "names of interfaces are short");
    assert_eq!(plan.published, [Published { host: 8080, target: "10.78.0.2:80".parse().unwrap() }]);
}

#[test]
fn versions_are_pods_of_one_service() {
    let plan = plan(Mode::Namespaces);
    let services: Vec<&str> = plan.services.iter().map(|service| service.name.as_str()).collect();
    assert_eq!(services, ["web", "reviews"]);
    assert_eq!(pod(&plan, "reviews-v2").labels["version"], "v2");
    assert_eq!(pod(&plan, "reviews-v2").service_account, "reviews");
}

#[test]
fn programs_are_told_where_services_are_as_in_a_cluster() {
    let plan = plan(Mode::Namespaces);
    let environment = &pod(&plan, "web").program.as_ref().unwrap().environment;
    assert_eq!(environment["REVIEWS_SERVICE_HOST"], "reviews.shop.svc.cluster.local");
    assert_eq!(environment["REVIEWS_SERVICE_PORT"], "8080");
    assert_eq!(environment["PAY_SERVICE_HOST"], "pay.example.com");
    assert_eq!(environment["EDGE_SERVICE_HOST"], "10.78.0.2");
    assert_eq!(environment["PORT"], "8080");
    assert_eq!(pod(&plan, "reviews-v2").program.as_ref().unwrap().environment["VERSION"], "two");
}

#[test]
fn program_with_a_slash_is_relative_to_the_directory() {
    let plan = plan(Mode::Namespaces);
    assert_eq!(pod(&plan, "web").program.as_ref().unwrap().command.program, "/srv/shop/./bin/web");
    assert_eq!(pod(&plan, "load").program.as_ref().unwrap().command.program, "load");
}

#[test]
fn program_that_somebody_else_starts_has_a_proxy_and_a_namespace() {
    let file = MeshFile::parse(
        b"name: shop\nworkloads: [{name: web, port: 80}]\ngateways: [{name: edge, ports: [80]}]",
    );
    let plan = Plan::new(&file.unwrap(), Path::new("/srv/shop"), Mode::Namespaces, &mut || 1);
    let elsewhere: Vec<&str> = plan.started_elsewhere().map(|pod| pod.name.as_str()).collect();
    assert_eq!(elsewhere, ["web"]);
    assert_eq!(plan.services[0].name, "web");
}

#[test]
fn external_program_has_no_proxy_and_no_service() {
    let plan = plan(Mode::Namespaces);
    let pay = pod(&plan, "pay");
    assert!(pay.proxy.is_none() && pay.service.is_none());
    assert_eq!(plan.externals[0].endpoint, pay.address);
    assert_eq!(plan.externals[1].forward.as_deref(), Some("db.example.com:5432"));
}

#[test]
fn no_port_of_the_loopback_address_is_given_twice() {
    let plan = plan(Mode::Loopback);
    let mut ports = vec![8080, plan.control_plane.port(), plan.debug.port()];
    for pod in &plan.pods {
        ports.extend(pod.ports.iter().flat_map(|port| [Some(port.target), port.inbound]).flatten());
        if let Some(proxy) = &pod.proxy {
            ports.extend([proxy.admin, proxy.status, proxy.health, proxy.metrics]);
        }
    }
    ports.extend(plan.services.iter().flat_map(|service| &service.ports).map(|port| port.port));
    ports.extend(plan.externals.iter().flat_map(|service| &service.ports).map(|port| port.port));
    let unique: BTreeSet<u16> = ports.iter().copied().collect();
    assert_eq!(unique.len(), ports.len());
    let web = pod(&plan, "web");
    let outbound = &web.proxy.as_ref().unwrap().outbound[1];
    assert_eq!(
        (outbound.host.as_str(), outbound.port),
        ("reviews.shop.svc.cluster.local", plan.services[1].ports[0].port)
    );
    let environment = &web.program.as_ref().unwrap().environment;
    assert_eq!(environment["REVIEWS_SERVICE_HOST"], web.address.to_string());
    assert_eq!(environment["REVIEWS_SERVICE_PORT"], outbound.port.to_string());
}
