//! The descriptor set of everything this crate knows, for code that meets types only at run time.

use std::io::Read;
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use prost::{Message, Name};
pub use prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey,
    MessageDescriptor, ReflectMessage, Value as ReflectValue,
};

use crate::Any;

static COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.binpb.gz"));

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let mut raw = Vec::new();
    GzDecoder::new(COMPRESSED).read_to_end(&mut raw).expect("the embedded set was compressed by our build");
    DescriptorPool::decode(raw.as_slice())
        .expect("the embedded set was checked when the types were generated")
});

/// Every file of the Envoy, xDS and Istio APIs. Unpacked on first use.
pub fn pool() -> &'static DescriptorPool {
    &POOL
}

/// The descriptor of a message by its full name, such as `envoy.config.cluster.v3.Cluster`.
pub fn message(full_name: &str) -> Option<MessageDescriptor> {
    pool().get_message_by_name(full_name)
}

/// The descriptor of `istio.mesh.v1alpha1.ProxyConfig` in a pool of its own, which goes when the descriptor does.
///
/// The agent reads this one message at its start and must not hold the descriptors of all APIs for it.
pub fn proxy_config() -> MessageDescriptor {
    let set: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/proxy_config.binpb"));
    let pool = DescriptorPool::decode(set).expect("the embedded set was made by our build");
    pool.get_message_by_name("istio.mesh.v1alpha1.ProxyConfig").expect("the set was made for this message")
}

/// The descriptor of a generated type.
pub fn message_descriptor<M: Name>() -> MessageDescriptor {
    message(&M::full_name()).expect("generated types come from the embedded set")
}

/// A dynamic copy of a typed message.
pub fn to_dynamic<M: Message + Name>(message: &M) -> DynamicMessage {
    DynamicMessage::decode(message_descriptor::<M>(), message.encode_to_vec().as_slice())
        .expect("a generated type and its descriptor agree on the encoding")
}

/// A typed copy of a dynamic message; fails if it is of another type.
pub fn from_dynamic<M: Message + Name + Default>(message: &DynamicMessage) -> Result<M, prost::DecodeError> {
    debug_assert_eq!(message.descriptor().full_name(), M::full_name());
    M::decode(message.encode_to_vec().as_slice())
}

/// Opens an `Any` of whatever known type; `None` if the type is unknown, an error if its bytes are malformed.
pub fn open(any: &Any) -> Option<Result<DynamicMessage, prost::DecodeError>> {
    let descriptor = message(any.message_name())?;
    Some(DynamicMessage::decode(descriptor, any.value.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_contains_every_api_the_mesh_speaks() {
        for name in [
            "envoy.service.discovery.v3.DeltaDiscoveryRequest",
            "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "envoy.extensions.filters.network.mysql_proxy.v3.MySQLProxy",
            "envoy.extensions.private_key_providers.cryptomb.v3alpha.CryptoMbPrivateKeyMethodConfig",
            "envoy.extensions.private_key_providers.qat.v3alpha.QatPrivateKeyMethodConfig",
            "envoy.tcp.metadataexchange.config.MetadataExchange",
            "istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig",
            "io.istio.http.peer_metadata.Config",
            "stats.PluginConfig",
            "udpa.type.v1.TypedStruct",
            "xds.type.v3.TypedStruct",
            "istio.mesh.v1alpha1.MeshConfig",
            "istio.mcp.v1alpha1.Resource",
            "istio.networking.nds.v1.NameTable",
            "istio.networking.v1alpha3.VirtualService",
            "istio.security.Authorization",
            "istio.v1.HealthInformation",
            "istio.v1.auth.IstioCertificateRequest",
            "istio.workload.Address",
            "istio.workload.zds.WorkloadRequest",
        ] {
            assert!(message(name).is_some(), "{name} is missing");
        }
    }
}
