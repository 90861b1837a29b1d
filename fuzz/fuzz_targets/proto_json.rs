//! Proto-JSON: no document crashes the reader, and what it accepts survives being written and read again.
#![no_main]

use canopus_base::json;
use canopus_base::tree::Limits;
use canopus_proto::descriptors;
use canopus_proto::json::{Unknown, read_dynamic, write_dynamic};
use libfuzzer_sys::fuzz_target;

/// Between them these have every shape of field: maps, oneofs, wrappers, `Any`, `Struct`, durations, enums, bytes.
const TYPES: [&str; 4] = [
    "istio.networking.v1alpha3.VirtualService",
    "istio.mesh.v1alpha1.MeshConfig",
    "envoy.config.cluster.v3.Cluster",
    "google.protobuf.Struct",
];

fuzz_target!(|data: &[u8]| {
    let Some((choice, document)) = data.split_first() else { return };
    let name = TYPES[usize::from(*choice) % TYPES.len()];
    let descriptor = descriptors::message(name).expect("the set has these types");
    let Ok(node) = json::parse(document, &Limits::default()) else { return };
    let Ok(read) = read_dynamic(&descriptor, &node, Unknown::Report) else { return };
    let written = write_dynamic(&read.value);
    let again = read_dynamic(&descriptor, &written, Unknown::Reject).expect("what we write, we read");
    assert_eq!(write_dynamic(&again.value), written);
});
