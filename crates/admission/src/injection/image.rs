//! The images of proxies.

use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;
use serde_json::Value as Json;

use super::pod;
use super::values::Values;

const IMAGE_TYPE: &str = "sidecar.istio.io/proxyImageType";
const AGENTGATEWAY_IMAGE: &str = "gateway.istio.io/agentgatewayImage";

/// Suffixes of tags that Istio publishes images under.
const KNOWN_TYPES: [&str; 2] = ["distroless", "debug"];

impl Values {
    /// The image of a pod's proxy: of the type its annotation, its settings or the values name, the first of these.
    pub(super) fn proxy_image_of(&self, config: &ProxyConfig, pod: &Json) -> String {
        let image_type = config.image.as_ref().map_or("", |image| image.image_type.as_str());
        self.image(&self.proxy_image, image_type, pod)
    }

    /// The image of a pod's init container.
    pub(super) fn init_image_of(&self, pod: &Json) -> String {
        self.image(&self.init_image, "", pod)
    }

    /// The image of a gateway's proxy where that is agentgateway.
    pub(super) fn agentgateway_image_of(&self, config: &ProxyConfig, gateway: &Json) -> String {
        let image_type =
            config.image.as_ref().map_or(self.variant.as_str(), |image| image.image_type.as_str());
        let image_type = pod::annotation(gateway, AGENTGATEWAY_IMAGE).unwrap_or(image_type);
        format!("{}/agentgateway:{}", self.hub, with_type(&self.tag, image_type))
    }

    fn image(&self, name: &str, image_type: &str, pod: &Json) -> String {
        let image_type = if image_type.is_empty() { self.variant.as_str() } else { image_type };
        let image_type = pod::annotation(pod, IMAGE_TYPE).unwrap_or(image_type);
        format!("{}/{name}:{}", self.hub, with_type(&self.tag, image_type))
    }
}

/// A tag with a type in the place of the one it has.
fn with_type(tag: &str, image_type: &str) -> String {
    if image_type.is_empty() {
        return tag.to_owned();
    }
    let bare = |known: &&str| tag.strip_suffix(*known)?.strip_suffix('-');
    let tag = KNOWN_TYPES.iter().find_map(bare).unwrap_or(tag);
    if image_type == "default" { tag.to_owned() } else { format!("{tag}-{image_type}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_takes_the_place_of_the_one_in_the_tag() {
        assert_eq!(with_type("1.30", ""), "1.30");
        assert_eq!(with_type("1.30", "distroless"), "1.30-distroless");
        assert_eq!(with_type("1.30-debug", "distroless"), "1.30-distroless");
        assert_eq!(with_type("1.30-distroless", "default"), "1.30");
        assert_eq!(with_type("1.30-asm.1", "default"), "1.30-asm.1");
    }
}
