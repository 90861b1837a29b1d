//! What ztunnels receive, as scenarios in `tests/goldens/`; see `canopus_golden` for the format.

use std::path::Path;

use canopus_ambient::{Addresses, Authorizations};
use canopus_golden::{Shown, Subject, check_all};

#[test]
fn ztunnels_receive_what_scenarios_expect() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    let count = check_all(&directory, generate).unwrap();
    assert!(count >= 10, "{count} scenarios");
}

fn generate(subject: &Subject) -> anyhow::Result<Vec<Shown>> {
    let addresses = subject.mesh.get::<Addresses>(&())?.to_vec();
    let policies = subject.mesh.get::<Authorizations>(&())?.to_vec();
    Ok(vec![
        Shown::resources("wds", "istio.workload.Address", addresses),
        Shown::resources("authz", "istio.security.Authorization", policies),
    ])
}
