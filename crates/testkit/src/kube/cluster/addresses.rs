use std::net::Ipv4Addr;

/// The addresses of one test cluster. Clusters that run at once differ in their number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    number: u8,
}

impl Addresses {
    /// All that there can be.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).map(|number| Self { number })
    }

    /// The name of the cluster's network link and cgroup.
    pub(super) fn name(self) -> String {
        format!("canopus{}", self.number)
    }

    /// This machine's end of the link to the node.
    pub(super) fn host(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 200, self.number, 1)
    }

    pub(super) fn node(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 200, self.number, 2)
    }

    pub(super) fn pods(self) -> String {
        format!("10.201.{}.0/24", self.number)
    }

    pub(super) fn services(self) -> String {
        format!("10.202.{}.0/24", self.number)
    }

    /// The Service of the API server.
    pub(super) fn api_service(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 202, self.number, 1)
    }

    pub(super) fn cluster_dns(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 202, self.number, 10)
    }

    pub(super) fn load_balancers(self) -> String {
        format!("10.203.{}.0/24", self.number)
    }

    pub(super) fn load_balancer(self, index: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 203, self.number, index)
    }
}
