//! Texts of clients as labels. A series lives as long as the process, so its labels are bounded in bytes and in number.

use canopus_api::Kind;

/// What stands for everything that is not known.
pub(super) const OTHER: &str = "other";

/// The most bytes of a label that clients choose.
const MAX_BYTES: usize = 64;

/// The most bytes of the name of a proxy: that of a pod, a dot and that of a namespace.
const MAX_NAME_BYTES: usize = 253 + 1 + 63;

/// A version as clients write it; what does not look like one is not kept.
pub(super) fn version(text: &str) -> &str {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_+".contains(c);
    match text {
        "" => "unknown",
        text if text.len() <= MAX_BYTES && text.chars().all(is_plain) => text,
        _ => OTHER,
    }
}

/// The name of a proxy, cut off where no pod's name goes on.
pub(super) fn proxy(name: &str) -> &str {
    let end = (0..=MAX_NAME_BYTES.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
    &name[..end.unwrap_or_default()]
}

/// Group, version and resource of an object, if there are such; else each of them is [`OTHER`].
pub(super) fn resource<'a>(group: &'a str, version: &'a str, resource: &'a str) -> [&'a str; 3] {
    let mut kinds = Kind::ALL.iter().map(|kind| kind.info());
    let is_known =
        kinds.any(|kind| kind.group == group && kind.plural == resource && kind.versions.contains(&version));
    if is_known { [group, version, resource] } else { [OTHER; 3] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_kept_if_it_looks_like_one() {
        assert_eq!(version(""), "unknown");
        assert_eq!(version("1.32.0-alpha+x_y"), "1.32.0-alpha+x_y");
        assert_eq!(version(&"1".repeat(65)), OTHER);
        assert_eq!(version("1\n2"), OTHER);
    }

    #[test]
    fn name_is_cut_at_a_character() {
        let long = "é".repeat(400);
        assert!(proxy(&long).len() <= MAX_NAME_BYTES && long.starts_with(proxy(&long)));
        assert_eq!(proxy("gateway.demo"), "gateway.demo");
    }

    #[test]
    fn only_resources_that_exist_are_named() {
        let known = ["networking.istio.io", "v1", "virtualservices"];
        assert_eq!(resource(known[0], known[1], known[2]), known);
        assert_eq!(resource("networking.istio.io", "v1", "secrets"), [OTHER; 3]);
        assert_eq!(resource("x", &"v".repeat(1000), "y"), [OTHER; 3]);
    }
}
