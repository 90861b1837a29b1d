//! Amazon Web Services: the instance metadata service, with a session token where it wants one.

use super::{MetadataServer, Platform};
use crate::locality::Locality;

const TOKEN: &str = "x-aws-ec2-metadata-token";

async fn token(server: &MetadataServer) -> Option<String> {
    let lifetime = [("x-aws-ec2-metadata-token-ttl-seconds", "60")];
    server.ask("PUT", "/latest/api/token", &lifetime).await.map(|(_, token)| token)
}

async fn get(server: &MetadataServer, token: Option<&str>, path: &str) -> Option<String> {
    let headers: Vec<(&'static str, &str)> = token.map(|token| (TOKEN, token)).into_iter().collect();
    server.text(&format!("/latest/meta-data/{path}"), &headers).await
}

/// Whether the metadata service is that of AWS.
pub(super) async fn is_here(server: &MetadataServer) -> bool {
    let token = token(server).await;
    get(server, token.as_deref(), "iam/info").await.is_some_and(|info| info.contains("arn:aws:iam"))
}

pub(super) async fn platform(server: &MetadataServer) -> Platform {
    let token = token(server).await;
    let (region, zone, instance) = tokio::join!(
        get(server, token.as_deref(), "placement/region"),
        get(server, token.as_deref(), "placement/availability-zone"),
        get(server, token.as_deref(), "instance-id"),
    );
    let named = [("aws_region", &region), ("aws_availability_zone", &zone), ("aws_instance_id", &instance)];
    let given = named.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)));
    Platform {
        metadata: given.collect(),
        locality: Locality {
            region: region.clone().unwrap_or_default(),
            zone: zone.clone().unwrap_or_default(),
            sub_zone: String::new(),
        },
    }
}
