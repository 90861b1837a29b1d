use anyhow::Result;
use canopus_parts::Part;
use serde_json::{Value, json};

/// A package that is in an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    /// The package's name.
    pub name: String,
    /// Version of the package.
    pub version: String,
    /// Licence as an SPDX expression; unknown if empty.
    pub license: String,
    /// Where it is from: the kind of package URL, such as `cargo` or `deb/debian`.
    pub origin: String,
}

/// A bill of materials: what a program is made from, in SPDX 2.3.
#[derive(Clone, Debug)]
pub struct Sbom {
    /// The program.
    pub name: String,
    /// Version of the image.
    pub version: String,
    /// What it is made from.
    pub packages: Vec<Package>,
}

impl Sbom {
    /// The document. Its identity is its content: it has neither a date nor a random name.
    pub fn to_json(&self) -> String {
        let mut packages = self.packages.clone();
        packages.sort();
        packages.dedup();
        let entry = |(at, package): (usize, &Package)| {
            let Package { name, version, license, origin } = package;
            let license = if license.is_empty() { "NOASSERTION" } else { license };
            json!({
                "SPDXID": format!("SPDXRef-Package-{at}"),
                "name": name,
                "versionInfo": version,
                "downloadLocation": "NOASSERTION",
                "filesAnalyzed": false,
                "licenseDeclared": license,
                "externalRefs": [{
                    "referenceCategory": "PACKAGE-MANAGER",
                    "referenceType": "purl",
                    "referenceLocator": format!("pkg:{origin}/{name}@{version}"),
                }],
            })
        };
        let related = |at: usize| {
            json!({
                "spdxElementId": "SPDXRef-DOCUMENT",
                "relationshipType": "DESCRIBES",
                "relatedSpdxElement": format!("SPDXRef-Package-{at}"),
            })
        };
        let document = json!({
            "spdxVersion": "SPDX-2.3",
            "dataLicense": "CC0-1.0",
            "SPDXID": "SPDXRef-DOCUMENT",
            "name": format!("{}-{}", self.name, self.version),
            "documentNamespace": format!("urn:canopus:sbom:{}:{}", self.name, self.version),
            "creationInfo": {"created": "1970-01-01T00:00:00Z", "creators": ["Tool: cargo xtask images"]},
            "packages": packages.iter().enumerate().map(entry).collect::<Vec<Value>>(),
            "relationships": (0..packages.len()).map(related).collect::<Vec<Value>>(),
        });
        format!("{document:#}\n")
    }
}

/// The packages of a part from Debian.
pub fn debian_packages(part: Part) -> Result<Vec<Package>> {
    let package =
        |(name, version)| Package { name, version, license: String::new(), origin: "deb/debian".to_owned() };
    Ok(canopus_parts::debian_packages(part)?.into_iter().map(package).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_names_each_package_once_with_its_url() {
        let package = |name: &str| Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: "MIT".to_owned(),
            origin: "cargo".to_owned(),
        };
        let packages = vec![package("tokio"), package("bytes"), package("tokio")];
        let sbom = Sbom { name: "canopusd".into(), version: "0.1.0".into(), packages };
        let document: Value = serde_json::from_str(&sbom.to_json()).unwrap();
        let packages = document["packages"].as_array().unwrap();
        let urls: Vec<_> = packages
            .iter()
            .map(|package| package["externalRefs"][0]["referenceLocator"].as_str().unwrap())
            .collect();
        assert_eq!(urls, ["pkg:cargo/bytes@1.0.0", "pkg:cargo/tokio@1.0.0"]);
    }
}
